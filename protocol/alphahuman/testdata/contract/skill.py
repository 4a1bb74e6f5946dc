#!/usr/bin/env python3
import json
import sys

def handle_request(request):
    method = request.get("method", "")
    params = request.get("params", {})
    req_id = request.get("id")

    if method == "initialize":
        return {
            "jsonrpc": "2.0", "id": req_id,
            "result": {
                "name": "my-skill",
                "description": "Description",
                "version": "1.0.0",
                "tools": []
            }
        }
    elif method == "tools/call":
        # Handle tool calls
        return {"jsonrpc": "2.0", "id": req_id, "result": {"content": "ok"}}
    elif method.startswith("lifecycle/"):
        return {"jsonrpc": "2.0", "id": req_id, "result": {"ok": True}}
    elif method == "shutdown":
        return {"jsonrpc": "2.0", "id": req_id, "result": {"ok": True}}
    else:
        return {
            "jsonrpc": "2.0", "id": req_id,
            "error": {"code": -32601, "message": f"Unknown: {method}"}
        }

for line in sys.stdin:
    line = line.strip()
    if not line:
        continue
    request = json.loads(line)
    response = handle_request(request)
    print(json.dumps(response), flush=True)
    if request.get("method") == "shutdown":
        break
