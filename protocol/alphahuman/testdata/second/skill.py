"""A skill of the second generation with the standard tools: tools/list, blocks as content, skill/ hooks, and
calls back to the host, in an id space of its own. What it does not know, initialize among it, is -32603, as
in the field."""

import json
import os
import sys
import time

OBJECT = {"type": "object", "properties": {}, "required": None}
NAMES = ("echo", "fail", "hang", "events", "flood", "crash", "say", "blocks", "ask", "hooks", "burst")
TOOLS = [{"name": n, "description": n, "inputSchema": OBJECT} for n in NAMES]
SEEN = []
LATER = []
NEXT = 0


def send(message, flush=True):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    if flush:
        sys.stdout.flush()


def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def host(method, params=None):
    """Calls the host. Requests that come meanwhile wait."""
    global NEXT
    NEXT += 1
    mine = NEXT
    message = {"id": mine, "method": method}
    if params is not None:
        message["params"] = params
    send(message)
    while True:
        answer = receive()
        if "method" in answer:
            LATER.append(answer)
        elif answer["id"] == mine:
            if "error" in answer:
                raise RuntimeError(answer["error"]["message"])
            return answer["result"]


def log(text):
    host("intelligence/emitEvent", {"eventType": "log", "data": {"level": "info", "message": text}})


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], "isError": False, **more}


def call(name, args):
    if name == "echo":
        return text(json.dumps(args), structuredContent=args)
    if name == "fail":
        return {"content": [{"type": "text", "text": args["message"]}], "isError": True}
    if name == "hang":
        log("hanging")
        time.sleep(100000)
    if name == "crash":
        os._exit(3)
    if name == "events":
        for n in range(args["count"]):
            log("event %d" % (n + 1))
        return text("done")
    if name == "flood":
        while True:
            log("x" * 1024)
    if name == "say":
        return text(args.get("text", ""))
    if name == "blocks":
        return {"content": args["content"]}
    if name == "ask":
        return text(json.dumps(host(args["method"], args.get("params"))))
    if name == "hooks":
        return text(json.dumps(SEEN))
    if name == "burst":  # asks a lot at once and waits for nothing
        for n in range(args["count"]):
            send({"id": 1000000 + n, "method": "state/set", "params": {"partial": {str(n): n}}}, flush=False)
        return text("done")
    if name == "silent":  # is on no list, and never answers
        return None
    raise ValueError("Unknown tool: " + name)


def dispatch(method, params):
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params["arguments"])
    if not method.startswith("skill/"):
        raise ValueError("Unknown method: " + method)
    SEEN.append([method, params])
    with open(os.environ.get("HOOKS", os.devnull), "a") as f:
        f.write(json.dumps([method, params]) + "\n")
    if method == "skill/beforeMessage":
        return {"message": params["message"].upper()}
    if method == "skill/afterResponse":
        return {"response": None}
    if method == "skill/status":
        return {"state": "fine"}
    if method == "skill/tick" and "TICK_STATE" in os.environ:
        host("state/set", {"partial": {"ticks": len(SEEN)}})
    return {"ok": True}


while True:
    request = LATER.pop(0) if LATER else receive()
    if "method" not in request:
        continue  # a late answer
    try:
        result = dispatch(request["method"], request["params"])
        if result is not None:
            send({"id": request["id"], "result": result})
    except Exception as problem:
        send({"id": request["id"], "error": {"code": -32603, "message": str(problem)}})
    if request["method"] == "skill/shutdown":
        break
