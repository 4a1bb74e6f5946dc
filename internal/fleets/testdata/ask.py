"""An MCP server of the legacy era, whose tool asks in the middle of a call, and says who got the answer."""

import json
import sys


def send(message):
    print(json.dumps(dict(message, jsonrpc="2.0")), flush=True)


for line in sys.stdin:
    r = json.loads(line)
    method, params = r.get("method"), r.get("params") or {}
    if method == "initialize":
        about = {"name": "asks", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": [{"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]}
    elif method == "tools/call":
        form = {"type": "object", "properties": {"colour": {"type": "string"}}}
        send({"id": "q", "method": "elicitation/create", "params": {"message": sys.argv[1], "requestedSchema": form}})
        answer = json.loads(sys.stdin.readline())["result"]["content"]["colour"]
        result = {"content": [{"type": "text", "text": sys.argv[1] + " got " + answer}]}
    else:
        result = {}
    if "id" in r and method:
        send({"id": r["id"], "result": result})
