"""A tool written from the contract alone: it reads one request from stdin, holds it to the contract, and
writes what its payload tells it to. Nothing of Toolpost's own Python side is used."""

import json
import os
import sys
import time

FIELDS = {
    "protocol_version": int,
    "tool": str,
    "entry": str,
    "payload": dict,
    "sandbox": bool,
    "trace_id": str,
    "capability_context": dict,
}
OPTIONAL = {"sandbox", "trace_id", "capability_context"}


def check(request):
    wrong = [f"unknown field {name}" for name in request if name not in FIELDS]
    for name, kind in FIELDS.items():
        if name not in request:
            if name not in OPTIONAL:
                wrong.append(f"{name} is missing")
        elif not isinstance(request[name], kind):
            wrong.append(f"{name} is of type {type(request[name]).__name__}")
    if request.get("protocol_version") != 1:
        wrong.append("protocol_version is not 1")
    return wrong


def main():
    raw = sys.stdin.buffer.read()
    request = json.loads(raw)
    payload = request["payload"]
    wrong = check(request)
    if wrong:
        reply = {"ok": False, "protocol_version": 1, "error": {"type": "ContractError", "message": "; ".join(wrong)}}
        sys.stdout.write(json.dumps(reply))
        return 0
    if "stderr" in payload:
        sys.stderr.write(payload["stderr"])
    if "say" in payload:
        os.write(1, payload["say"].encode("latin-1"))
    else:
        reply = {"ok": True, "protocol_version": 1, "result": {"request": request, "raw": raw.decode()}}
        sys.stdout.write(json.dumps(reply))
    sys.stdout.flush()
    if payload.get("close"):
        os.close(1)
        time.sleep(payload["close"])
    if payload.get("signal"):
        os.kill(os.getpid(), payload["signal"])
    return payload.get("exit", 0)


sys.exit(main())
