"""The tools of the matrix as a Machina toolhost, written from the contract: --list, --run and --serve."""

import json
import sys
import time

NAMES = ["echo", "fail", "hang", "wait", "report", "patch", "large", "danger"]


def artifact(value):
    content = json.dumps(value)
    return {"type": "torch", "provenance": "toolhost.py", "content_json": content, "size_bytes": len(content)}


def done(output, status="OK", error=""):
    return {"ok": status == "OK", "status": status, "output_json": json.dumps(output), "error": error}


def call(name, args, slots):
    if name == "echo":
        return done(args)
    if name == "fail":
        return done({}, "TOOL_ERROR", args["message"])
    if name in ("hang", "wait"):
        time.sleep(600)
    if name == "report":
        print("half way", file=sys.stderr, flush=True)
        time.sleep(0.2)  # two pipes have no order: what is said has to be read before the answer
    if name == "patch":
        slots["7"] = artifact({"lit": True})
    if name == "large":
        return done({"text": "x" * (1 << 20)})
    return done({"done": True})


def known(aid):
    return aid.startswith("AID.MATRIX.") and name_of(aid) in NAMES


def name_of(aid):
    return aid.split(".")[2].lower()


def take(slots, change):
    """Applies what a request says about the state."""
    if change is None:
        return
    if not change.get("delta"):
        slots.clear()
    slots.update(change.get("slots", {}))
    for n in change.get("removed_slots", []):
        slots.pop(str(n), None)


def run(aid):
    if not known(aid):
        print(json.dumps({"ok": False, "error": "tool not found: " + aid}))
        return 4
    request, slots = json.load(sys.stdin), {}
    take(slots, request.get("ds_state"))
    reply = call(name_of(aid), json.loads(request.get("input_json", "{}")), slots)
    print(json.dumps(dict(reply, ds_state={"slots": slots})))
    return 0


def serve():
    slots = {}
    for line in sys.stdin:
        if not line.strip():
            return 0
        request = json.loads(line)
        aid = request["aid"]
        if not known(aid):
            reply = {"ok": False, "error": "tool not found: " + aid}
        else:
            take(slots, request.get("ds_state"))
            before = dict(slots)
            reply = call(name_of(aid), json.loads(request.get("input_json", "{}")), slots)
            changed = {n: a for n, a in slots.items() if before.get(n) != a}
            reply["ds_state"] = {"delta": True, "slots": changed, "removed_slots": [n for n in before if n not in slots]}
        print(json.dumps(reply), flush=True)
    return 0


def main(mode, plugin, aid=""):
    if mode == "--list":
        tools = [{"aid": "AID.MATRIX.%s.v1" % n.upper(), "name": n, "deterministic": True, "tags": [],
                  "side_effects": ["none"], "replay_inputs": []} for n in NAMES]
        print(json.dumps({"ok": True, "tools": tools}))
        return 0
    return run(aid) if mode == "--run" else serve()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
