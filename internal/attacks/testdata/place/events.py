import json
import subprocess
import sys

order = json.load(sys.stdin)["input"]["order"]
said = subprocess.run([order["program"], json.dumps(order)], capture_output=True, text=True)
output = {"reports": said.stdout, "log": said.stderr[-2000:]}
print(json.dumps({"version": "0", "type": "done", "ok": True, "summary": "tried", "output": output}))
