"""A skill of the second generation that is a package, as its host starts it: python -m skills.notes."""

import json
import sys

from .handlers import ALL


def answer(method, params):
    if method == "tools/list":
        return {"tools": [{"name": n, "description": n, "inputSchema": {"type": "object"}} for n in ALL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": ALL[params["name"]](params["arguments"])}]}
    if method.startswith("skill/"):
        return {"ok": True}
    raise ValueError("Unknown method: " + method)


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request["method"], request["params"])
        except Exception as problem:
            reply["error"] = {"code": -32603, "message": str(problem)}
        print(json.dumps(reply), flush=True)
        if request["method"] == "skill/shutdown":
            break
