"""A policy, written from the contract alone: reads the menu on stdin and prints one selection."""
import base64
import json
import sys
import time

payload = json.load(sys.stdin)
assert payload["run_header"]["spec_version"] == "1.4.2" and payload["run_header"]["profile_id"] == "A"
wish = payload["inputs"].get("wish")
sid = {offer["name"]: offer["sid"] for offer in payload["menu"]}.get(wish)
if wish == "crash":
    sys.exit(3)
if wish == "hang":
    time.sleep(600)
if wish == "flood":
    print("x" * (1 << 20))
elif wish == "supervisor":
    print("<ASK_SUP><END>")
elif wish == "nothing":
    print("<NOOP><END>")
elif wish == "other":
    print("<PICK><SID9999><END>")
elif sid is None:
    print("I would like a tool, please.")
else:
    patch = json.dumps({"k": "3", "aid": [o["aid"] for o in payload["menu"] if o["sid"] == sid][0]})
    print("<PICK><%s><INP64>%s</INP64><END>" % (sid, base64.b64encode(patch.encode()).decode()))
