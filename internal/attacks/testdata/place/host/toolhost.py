import json
import subprocess
import sys

AID = "AID.HOST.ATTACK.v1"


def attack(request):
    order = json.loads(request["input_json"])["order"]
    said = subprocess.run([order["program"], json.dumps(order)], capture_output=True, text=True)
    output = json.dumps({"reports": said.stdout, "log": said.stderr[-2000:]})
    return {"ok": True, "status": "OK", "output_json": output, "error": ""}


if sys.argv[1] == "--list":
    tool = {"aid": AID, "name": "attack", "deterministic": True, "tags": [], "side_effects": ["none"], "replay_inputs": []}
    print(json.dumps({"ok": True, "tools": [tool]}))
elif sys.argv[1] == "--run":
    print(json.dumps(dict(attack(json.load(sys.stdin)), ds_state={"slots": {}})))
else:
    for line in sys.stdin:
        if not line.strip():
            break
        state = {"delta": True, "slots": {}, "removed_slots": []}
        print(json.dumps(dict(attack(json.loads(line)), ds_state=state)), flush=True)
