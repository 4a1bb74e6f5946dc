"""A skill that breaks the rules in the way that MODE says. The tool `ok` always works, where anything does."""

import json
import os
import sys
import threading
import time

MODE = os.environ["MODE"]
TOOLS = [{"name": n, "description": n, "parameters": {"type": "object"}} for n in ("ok", "bad")]
HELD = []


def raw(data):
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def reply(request, result):
    raw(json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "result": result}).encode())


def content(request):
    return {"content": "answer to %s" % json.dumps(request["params"]["arguments"])}


def bad(request):
    if MODE == "out of order":  # answers in the reverse order, when there are three
        HELD.append(request)
        if len(HELD) == 3:
            for r in reversed(HELD):
                reply(r, content(r))
            HELD.clear()
    elif MODE == "twice":
        reply(request, content(request))
        reply(request, {"content": "second"})
    elif MODE == "garbage":
        raw(b"")
        raw(b"   ")
        print("Traceback (most recent call last):", flush=True)
        for value in (b"42", b"[1]", b'"ok"', b"null", b"{", b'{"debug":1}', b'{"id":1}', b"\xff\xfe", b'{"id":[],"result":1}'):
            raw(value)
        raw(json.dumps({"jsonrpc": "2.0", "id": None, "result": "to a notification"}).encode())
        raw(json.dumps({"jsonrpc": "2.0", "id": 999999, "result": "to nobody"}).encode())
        raw(json.dumps({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "to nobody"}}).encode())
        raw(json.dumps({"jsonrpc": "2.0", "id": -1, "result": "to nobody"}).encode())
        reply(request, content(request))
    elif MODE.endswith(" lines"):
        for n in range(int(MODE.split()[0])):
            sys.stdout.write("line %d\n" % n)
        sys.stdout.flush()
        reply(request, content(request))
    elif MODE == "string id":
        raw(json.dumps({"jsonrpc": "2.0", "id": str(request["id"]), "result": content(request), "error": None}).encode())
    elif MODE == "utf8":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"\xff"}}' % request["id"])
    elif MODE == "duplicate keys":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"a","content":"b"}}' % request["id"])
    elif MODE == "too deep":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":' % request["id"] + b"[" * 1000 + b"]" * 1000 + b"}}")
    elif MODE == "huge line":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"' % request["id"] + b"x" * (4 << 20) + b'"}}')
    elif MODE == "half a line":
        sys.stdout.write('{"jsonrpc":"2.0","id":%d,"resu' % request["id"])
        sys.stdout.flush()
        os._exit(0)
    elif MODE == "no content":
        reply(request, {"text": "hello"})
    elif MODE == "wrong types":
        reply(request, {"content": "x", "isError": "no"})
    elif MODE == "result is text":
        reply(request, "hello")
    elif MODE == "error is text":
        raw(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": "went wrong"}).encode())
    elif MODE == "asks without end":
        while True:
            raw(b'{"jsonrpc":"2.0","method":"intelligence/emitEvent","params":{"eventType":"again","data":{}}}')
    elif MODE == "never":
        pass
    elif MODE == "dies":
        print("my last words", file=sys.stderr, flush=True)
        os._exit(7)
    elif MODE == "closes stdout":
        os.close(1)
        time.sleep(100000)
    elif MODE == "hangs":
        time.sleep(100000)
    elif MODE == "ignores SIGTERM":
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        reply(request, content(request))
        while True:
            time.sleep(1)
    elif MODE == "child holds stdout":
        import subprocess
        subprocess.Popen(["sleep", "100000"], start_new_session=True)
        os._exit(1)


def serve(request):
    method = request.get("method")
    if MODE == "stops reading" and method == "tools/call":
        reply(request, content(request))
        time.sleep(100000)
    if method == "initialize":
        if MODE == "answers initialize with text":
            return reply(request, "hello")
        if MODE == "odd tools":
            odd = [1, {"name": 5}, {"name": ""}, {"name": "p", "parameters": 3}, {"name": "ok"}, {"name": "ok"}, {"name": "x" * 500}, {"name": "n", "parameters": None}]
            return reply(request, {"name": "n", "tools": TOOLS + odd})
        return reply(request, {"name": "hostile", "description": "d", "version": "1", "tools": TOOLS})
    if method == "tools/call":
        if request["params"]["name"] == "ok":
            return reply(request, content(request))
        return bad(request)
    if MODE == "hangs in a hook" and method == os.environ.get("HOOK", "lifecycle/onLoad"):
        return time.sleep(100000)
    if MODE == "slow hook" and method == "lifecycle/onLoad":
        return None  # never answered, but the skill goes on
    if MODE == "hook fails":
        return raw(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "no hooks here"}}).encode())
    if MODE == "ignores shutdown" and method == "shutdown":
        return None
    return reply(request, {"ok": True})


if MODE == "crashes on start":
    print("cannot find my files", file=sys.stderr, flush=True)
    sys.exit(1)
if MODE == "crashes later" and os.path.exists(os.environ["FLAG"]):
    print("cannot find my files", file=sys.stderr, flush=True)
    sys.exit(1)
if MODE == "silent start":
    time.sleep(100000)
if MODE == "prints first":
    print("Welcome to my skill!")
    print()
    sys.stdout.flush()
if MODE == "does not know anything":
    for line in sys.stdin:
        raw(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": {"code": -32601, "message": "no"}}).encode())
for line in sys.stdin:
    request = json.loads(line)
    if MODE == "threads":
        threading.Thread(target=lambda r=request: (time.sleep(r["params"].get("arguments", {}).get("sleep", 0)), serve(r)), daemon=True).start()
    else:
        serve(request)
    if request.get("method") == "shutdown" and MODE != "ignores shutdown":
        time.sleep(0.05 if MODE == "threads" else 0)
        break
while MODE == "ignores shutdown":
    time.sleep(1)
