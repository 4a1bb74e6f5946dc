"""Holds the NDJSON of a tool on stdin against the Narratoria contract, specification 001.

Prints the events as one JSON list, or says what is wrong and exits with 1.
Arguments: the requestId that every line must repeat, if one was sent.
"""

import datetime
import json
import sys

STRING, OBJECT, BOOLEAN, ANY = str, dict, bool, object
REQUIRED = {
    "log": {"level": STRING, "message": STRING},
    "state_patch": {"patch": OBJECT},
    "asset": {"assetId": STRING, "kind": STRING, "mediaType": STRING, "path": STRING},
    "ui_event": {"event": STRING},
    "error": {"errorCode": STRING, "errorMessage": STRING},
    "done": {"ok": BOOLEAN},
}
OPTIONAL = {
    "log": {"fields": OBJECT},
    "state_patch": {},
    "asset": {"metadata": OBJECT},
    "ui_event": {"payload": ANY},
    "error": {"details": OBJECT},
    "done": {"summary": STRING, "output": OBJECT},
}


def no_duplicates(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), "duplicate names: %r" % names
    return dict(pairs)


def check(event, request_id):
    assert isinstance(event, dict), "not an object"
    assert event.get("version") == "0", "version must be the string 0"
    kind = event.get("type")
    assert kind in REQUIRED, "unknown type %r" % kind
    for name, want in REQUIRED[kind].items():
        assert name in event, "%s without %s" % (kind, name)
        assert isinstance(event[name], want), "%s.%s is of the wrong type" % (kind, name)
    for name, want in OPTIONAL[kind].items():
        assert name not in event or isinstance(event[name], want), "%s.%s is of the wrong type" % (kind, name)
    if kind == "log":
        assert event["level"] in ("debug", "info", "warn", "error"), "level %r" % event["level"]
    if kind == "asset":
        assert event["mediaType"].count("/") == 1, "mediaType %r" % event["mediaType"]
    if "timestamp" in event:
        datetime.datetime.strptime(event["timestamp"][:19], "%Y-%m-%dT%H:%M:%S")
    if request_id is not None:
        assert event.get("requestId") == request_id, "requestId is not repeated"


def main():
    data = sys.stdin.buffer.read()
    assert b"\r" not in data, "newlines must be Unix style"
    assert data.endswith(b"\n"), "the last line does not end"
    request_id = sys.argv[1] if len(sys.argv) > 1 else None
    events = []
    for number, line in enumerate(data.decode("utf-8").split("\n")[:-1], 1):
        try:
            event = json.loads(line, object_pairs_hook=no_duplicates)
            check(event, request_id)
        except (AssertionError, ValueError) as why:
            raise AssertionError("line %d: %s: %s" % (number, why, line[:200]))
        events.append(event)
    dones = [event for event in events if event["type"] == "done"]
    assert len(dones) == 1, "%d done events" % len(dones)
    assert events[-1]["type"] == "done", "events after done"
    print(json.dumps(events))


try:
    main()
except AssertionError as why:
    sys.exit(str(why))
