"""The tools of the matrix as a skill, after the contract's template."""

import json
import sys
import time

ECHO = {
    "type": "object",
    "properties": {"value": {}, "n": {"type": "number"}},
    "required": ["value"],
}
TOOLS = [
    {"name": "echo", "description": "gives back what it gets", "parameters": ECHO},
    {"name": "fail", "description": "fails with a message", "parameters": {"type": "object"}},
    {"name": "hang", "description": "never ends", "parameters": {"type": "object"}},
    {"name": "wait", "description": "waits until it is cancelled", "parameters": {"type": "object"}},
    {"name": "report", "description": "says how far it is", "parameters": {"type": "object"}},
    {"name": "large", "description": "1 MiB of output", "parameters": {"type": "object"}},
    {"name": "danger", "description": "needs a lease", "parameters": {"type": "object"}},
]


def call(name, args):
    if name == "echo":
        return {"content": json.dumps(args, ensure_ascii=False)}
    if name == "fail":
        return {"content": args["message"], "isError": True}
    if name in ("hang", "wait"):
        time.sleep(600)
    if name == "report":
        print("half way", file=sys.stderr, flush=True)
        time.sleep(0.2)  # two pipes have no order: what is said has to be read before the answer
        return {"content": json.dumps({"done": True})}
    if name == "large":
        return {"content": json.dumps({"text": "x" * (1 << 20)})}
    return {"content": "nobody has a lease for " + name, "isError": True}


def handle_request(request):
    method = request.get("method", "")
    params = request.get("params", {})
    reply = {"jsonrpc": "2.0", "id": request.get("id")}
    if method == "initialize":
        reply["result"] = {"name": "matrix-one", "description": "The tools of the matrix", "version": "1.0.0", "tools": TOOLS}
    elif method == "tools/call":
        reply["result"] = call(params["name"], params["arguments"])
    elif method.startswith("lifecycle/") or method == "shutdown":
        reply["result"] = {"ok": True}
    else:
        reply["error"] = {"code": -32601, "message": "Unknown: " + method}
    return reply


for line in sys.stdin:
    line = line.strip()
    if not line:
        continue
    request = json.loads(line)
    print(json.dumps(handle_request(request)), flush=True)
    if request.get("method") == "shutdown":
        break
