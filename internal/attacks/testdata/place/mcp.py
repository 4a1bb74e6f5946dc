import json
import subprocess
import sys


def answer(method, params):
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "tools/list":
        return {"tools": [{"name": "mcp", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"}
    order = params["arguments"]["order"]
    said = subprocess.run([order["program"], json.dumps(order)], capture_output=True, text=True)
    return {"content": [{"type": "text", "text": said.stdout + said.stderr[-2000:]}]}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = {"resultType": "complete", **answer(request["method"], request.get("params", {}))}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
