"""The tools of the matrix as an MCP server on the standard streams, of either era: tools.py ERA.

The wire is that of server.py, which is written from the specification.
"""

import json

import server

ECHO = {"type": "object", "properties": {"value": {}, "n": {"type": "number"}}, "required": ["value"]}
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
NAMES = ["fail", "hang", "wait", "ask", "report", "asset", "large", "danger"]


def structured(value):
    return server.done({"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value})


def ask(wire, params):
    question = {"message": "Which colour?", "requestedSchema": FORM}
    if not server.MODERN:
        return structured({"answers": server.ask(wire, "elicitation/create", question)[1]()})
    if params.get("inputResponses") is None:
        request = {"method": "elicitation/create", "params": dict(question, mode="form")}
        return {"resultType": "input_required", "inputRequests": {"colour": request}, "requestState": "asked"}
    return structured({"answers": params["inputResponses"]})


def call(wire, rid, params):
    name, args = params["name"], params.get("arguments") or {}
    if name == "echo":
        return structured(args)
    if name == "fail":
        return server.text(args["message"], isError=True)
    if name in ("hang", "wait"):
        server.CANCELLED.setdefault(str(rid), server.threading.Event()).wait(600)
    if name == "ask":
        return ask(wire, params)
    if name == "report":
        token = params["_meta"]["progressToken"]
        said = {"progressToken": token, "progress": 1, "total": 2, "message": "half way"}
        server.note(wire, "notifications/progress", said)
    if name == "asset":
        torch = {"uri": "torch://one", "mimeType": "text/plain", "text": "a torch"}
        return server.done({"content": [{"type": "resource", "resource": torch}]})
    if name == "large":
        return structured({"text": "x" * (1 << 20)})
    return structured({"done": True})


server.TOOLS.all = [server.tool("echo", ECHO)] + [server.tool(name) for name in NAMES]
server.call = call
server.stdio()
