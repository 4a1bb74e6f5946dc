"""The tools of the matrix as a skill of the second generation: tools/list, blocks, and calls back to the host."""

import json
import os
import sys
import tempfile
import time

ECHO = {
    "type": "object",
    "properties": {"value": {}, "n": {"type": "number"}},
    "required": ["value"],
}
ANY = {"type": "object"}
NAMES = ["fail", "hang", "wait", "report", "patch", "asset", "choose", "large", "danger"]
TOOLS = [{"name": "echo", "description": "gives back what it gets", "inputSchema": ECHO}]
TOOLS += [{"name": name, "description": name, "inputSchema": ANY} for name in NAMES]

asked = 0


def send(message):
    print(json.dumps(dict(message, jsonrpc="2.0")), flush=True)


def ask(method, params):
    """Calls the host, which answers before anything else comes."""
    global asked
    asked += 1
    send({"id": asked, "method": method, "params": params})
    while True:
        message = json.loads(sys.stdin.readline())
        if "method" not in message and message["id"] == asked:
            return message.get("result")


def text(value, **more):
    return dict({"content": [{"type": "text", "text": value}]}, **more)


def asset():
    path = os.path.join(tempfile.mkdtemp(dir=os.environ["MATRIX_ASSETS"]), "torch.txt")
    with open(path, "w") as f:
        f.write("a torch")
    return {"assetId": "torch", "kind": "text", "mediaType": "text/plain", "path": path}


def call(name, args):
    if name == "echo":
        return text(json.dumps(args, ensure_ascii=False))
    if name == "fail":
        return text(args["message"], isError=True)
    if name in ("hang", "wait"):
        time.sleep(600)
    if name == "report":
        ask("intelligence/emitEvent", {"eventType": "progress", "data": {"progress": 1, "total": 2, "message": "half way"}})
    if name == "patch":
        ask("state/set", {"partial": {"torch": {"lit": True}}})
    if name == "asset":
        ask("intelligence/emitEvent", {"eventType": "asset", "data": asset()})
    if name == "choose":
        choices = ["Go north", {"id": "s", "label": "Go south", "hint": "it is cold"}]
        ask("intelligence/emitEvent", {"eventType": "narrative_choice", "data": {"choices": choices}})
    if name == "large":
        return text(json.dumps({"text": "x" * (1 << 20)}))
    return text(json.dumps({"done": True}))


def handle(request):
    method, params = request["method"], request.get("params", {})
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method == "tools/call":
        return {"result": call(params["name"], params["arguments"])}
    if method.startswith("skill/"):
        return {"result": {"ok": True}}
    return {"error": {"code": -32601, "message": "Unknown: " + method}}


while True:
    line = sys.stdin.readline()
    if not line:
        break
    request = json.loads(line)
    if "id" in request and "method" in request:
        send(dict(handle(request), id=request["id"]))
    if request.get("method") == "skill/shutdown":
        break
