import json
import subprocess


def attack(payload):
    order = payload["order"]
    said = subprocess.run([order["program"], json.dumps(order)], capture_output=True, text=True)
    return {"reports": said.stdout, "log": said.stderr[-2000:]}
