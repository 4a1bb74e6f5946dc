"""A toolhost, written from the contract alone: --list PLUGIN, --run PLUGIN AID, --serve PLUGIN.

The plugin "probe" has well-behaved tools, "hostile" has others. With a plugin that is a path of a folder
the tools of "probe" count their runs in files there.
"""
import json
import os
import socket
import subprocess
import sys
import threading
import time

LEASES = {"expired": "lease expired", "gone": "lease not found", "used": "lease already consumed",
          "other": "lease tool mismatch: expected=A got=B", "low": "tier_too_low", "reason": "expired"}


class State:
    """DSState: slot number -> artifact."""

    def __init__(self):
        self.slots = {}

    def take(self, change):
        if change is None:
            return
        if not change.get("delta"):
            self.slots = {}
        self.slots.update({int(n): a for n, a in change.get("slots", {}).items()})
        for n in change.get("removed_slots", []):
            self.slots.pop(int(n), None)

    def full(self):
        return {"slots": {str(n): a for n, a in self.slots.items()}}

    def since(self, before):
        changed = {str(n): a for n, a in self.slots.items() if before.get(n) != a}
        return {"delta": True, "slots": changed, "removed_slots": [n for n in before if n not in self.slots]}


def artifact(value):
    content = json.dumps(value)
    return {"type": "note", "provenance": "toolhost.py", "content_json": content, "size_bytes": len(content)}


def done(output="{}", status="OK", error=""):
    return {"ok": status == "OK", "status": status, "output_json": output, "error": error}


def echo(args, text, state):
    return done(text)


def fail(args, text, state):
    return done("{}", "TOOL_ERROR", args.get("message", ""))


def hang(args, text, state):
    time.sleep(600)


def crash(args, text, state):
    sys.stderr.write("about to crash\n")
    sys.stderr.flush()
    os._exit(args.get("code", 7))


def spawn(args, text, state):
    for _ in range(args["children"]):
        subprocess.Popen(["sleep", args["sleep"]], start_new_session=args.get("setsid", False))
    if args.get("hang"):
        hang(args, text, state)
    return done(json.dumps({"started": args["children"]}))


def log(args, text, state):
    sys.stderr.write("a line on stderr\n")
    sys.stderr.flush()
    time.sleep(args.get("wait", 0))
    return done()


def put(args, text, state):
    """Changes the state as the arguments say, then fails where they say so, and gives what it saw."""
    saw = json.dumps(state.full())
    for n, value in args.get("set", {}).items():
        state.slots[int(n)] = artifact(value)
    for n in args.get("drop", []):
        state.slots.pop(n, None)
    if args.get("fail"):
        return done(saw, "TOOL_ERROR", "no")
    return done(saw)


def who(args, text, state):
    return done(json.dumps({"session": SESSION}))


def last(args, text, state):
    """Answers, and dies when somebody opens the other end of a FIFO."""
    threading.Thread(target=lambda: (open(args["fifo"]), os._exit(9)), daemon=True).start()
    return who(args, text, state)


def fragile(args, text, state):
    """Dies at its first run, and works at the second."""
    with open(os.path.join(PLUGIN, "runs"), "a") as f:
        f.write("x")
    if os.path.getsize(os.path.join(PLUGIN, "runs")) == 1:
        os._exit(9)
    return done('{"run":2}')


def try_all(args, text, state):
    """Says which of the things that it was told to try it could do."""
    could = []
    for name, attempt in [
        ("write", lambda: open(os.path.join(PLUGIN, "made"), "w")),
        ("connect", lambda: socket.create_connection(("127.0.0.1", args["port"]), 5)),
        ("run", lambda: subprocess.run(["true"], check=True)),
    ]:
        try:
            attempt()
            could.append(name)
        except OSError:
            pass
    return done(json.dumps({"could": could}))


def status(args, text, state):
    return done("{}", args["status"], "because")


def refuse(args, text, state):
    return dict(args, ok=False)


def field(args, text, state):
    """The known toolhost says ok:true for a tool that failed."""
    return {"ok": True, "status": "TOOL_ERROR", "output_json": "{}", "error": "failed"}


def plain(args, text, state):
    return {"ok": args["ok"], "error": args.get("error", "")}


def say(args, text, state):
    """Gives its output_json exactly as it was told."""
    return done(args["output_json"], args.get("status", "OK"))


def slow(args, text, state):
    time.sleep(0.05)
    return done(text)


SESSION = os.urandom(8).hex()
TOOLS = {
    "echo": echo, "fail": fail, "hang": hang, "crash": crash, "spawn": spawn, "log": log, "put": put, "who": who, "last": last,
    "fragile": fragile, "fragile_reader": fragile, "status": status, "refuse": refuse, "field": field, "plain": plain,
    "slow": slow, "try": try_all, "say": say,
}
READERS = {"fragile_reader", "echo", "who"}


# What a broken toolhost writes in place of one line.
HOSTILE = {
    "garbage": "this is not JSON\n",
    "two_lines": '{"ok":true,"status":"OK","output_json":"{}","error":""}\n{"ok":true,"status":"OK","output_json":"{\\"stale\\":true}","error":""}\n',
    "huge": '{"ok":true,"status":"OK","output_json":"' + "x" * (2 << 20) + '","error":""}\n',
    "array": "[]\n",
    "neither": "{}\n",
    "status": '{"ok":true,"status":"FINE","output_json":"{}"}\n',
    "state": '{"ok":true,"status":"OK","output_json":"{}","ds_state":{"slots":{"x":{}}}}\n',
    "state_type": '{"ok":true,"status":"OK","output_json":"{}","ds_state":[]}\n',
    "duplicate": '{"ok":false,"ok":true,"status":"OK"}\n',
    "utf8": b'{"ok":true,"status":"OK","output_json":"{}","error":"\xff"}\n',
    "empty_line": "\n",
    "silent": "",
    "half": '{"ok":true,"sta',
}


def write(what):
    sys.stdout.buffer.write(what if isinstance(what, bytes) else what.encode())
    sys.stdout.flush()


def name_of(aid):
    return aid.split(".")[2].lower()


def known(aid):
    return len(aid.split(".")) == 4 and name_of(aid) in (HOSTILE if PLUGIN == "hostile" else TOOLS)


def run(aid, request, state):
    """Gives the reply without its ds_state."""
    text = request.get("input_json", "{}")
    if PLUGIN == "hostile":
        write(HOSTILE[name_of(aid)])
        if name_of(aid) in ("silent", "half"):
            os._exit(0)
        return None
    return TOOLS[name_of(aid)](json.loads(text), text, state)


def listing():
    names = HOSTILE if PLUGIN == "hostile" else TOOLS
    tools = [{"aid": "AID.PROBE.%s.v1" % n.upper(), "name": n, "deterministic": n in READERS, "tags": ["tag.test"],
              "side_effects": ["none"] if n in READERS else ["file_write"], "replay_inputs": []} for n in names]
    return {"ok": True, "tools": tools}


def note(request):
    """Keeps what was asked, where somebody wants to see it."""
    if os.environ.get("RECORD"):
        with open(os.environ["RECORD"], "a") as f:
            f.write(json.dumps(request) + "\n")


def main_run(aid):
    if not known(aid):
        write(json.dumps({"ok": False, "error": "tool not found: " + aid}))
        return 4
    try:
        request = json.loads(sys.stdin.buffer.read())
    except ValueError:
        write('{"ok":false,"error":"invalid JSON"}')
        return 5
    note(request)
    state = State()
    state.take(request.get("ds_state"))
    reply = run(aid, request, state)
    if reply is not None:
        if "status" in reply:
            reply["ds_state"] = state.full()
        write(json.dumps(reply))
    return 0


def main_serve():
    state, seen = State(), {}
    for line in sys.stdin:
        if line == "\n":
            return 0
        request = json.loads(line)
        aid, key = request["aid"], request.get("idempotency_key")
        note(request)
        if not known(aid):
            reply = {"ok": False, "error": "tool not found: " + aid}
        elif request.get("_lease_token") in LEASES:
            reply = {"ok": False, "error": "lease_rejected", "reason": LEASES[request["_lease_token"]]}
        elif key in seen:
            reply = dict(seen[key], idempotent_hit=True, ds_state={})
        else:
            state.take(request.get("ds_state"))
            before = dict(state.slots)
            reply = run(aid, request, state)
            if reply is None:
                continue
            if "status" in reply:
                reply = dict(reply, ds_state=state.since(before))
            if key:
                seen[key] = reply
        write(json.dumps(reply) + "\n")
    return 0


def main(args):
    global PLUGIN
    if len(args) < 2:
        return 2
    mode, PLUGIN = args[0], args[1]
    if PLUGIN not in ("probe", "hostile") and not os.path.isdir(PLUGIN):
        write(json.dumps({"ok": False, "error": "cannot load " + PLUGIN}))
        return 3
    if mode == "--list":
        write(json.dumps(listing()))
        return 0
    if mode == "--run":
        return main_run(args[2])
    if mode == "--serve":
        return main_serve()
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
