import json
import subprocess
import sys

TOOLS = [{"name": "skill", "description": "attacks", "parameters": {"type": "object"}}]


def answer(method, params):
    if method == "initialize":
        return {"name": "one", "description": "Attacks from a skill.", "version": "1.0.0", "tools": TOOLS}
    if method == "tools/call":
        order = params["arguments"]["order"]
        said = subprocess.run([order["program"], json.dumps(order)], capture_output=True, text=True)
        return {"content": said.stdout + said.stderr[-2000:]}
    return {"ok": True}


for line in sys.stdin:
    if line.strip():
        request = json.loads(line)
        reply = {"jsonrpc": "2.0", "id": request.get("id"), "result": answer(request["method"], request.get("params", {}))}
        print(json.dumps(reply), flush=True)
        if request["method"] == "shutdown":
            break
