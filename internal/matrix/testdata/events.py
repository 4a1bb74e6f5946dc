"""The tools of the matrix as one Narratoria tool, chosen by the request's tool."""

import json
import os
import sys
import tempfile
import time


def send(what, **more):
    print(json.dumps(dict({"version": "0", "type": what}, **more)), flush=True)


def asset():
    path = os.path.join(tempfile.mkdtemp(dir=os.environ["MATRIX_ASSETS"]), "torch.txt")
    with open(path, "w") as f:
        f.write("a torch")
    return path


request = json.load(sys.stdin)
name, args = request["tool"], request["input"]
output = {"done": True}
if name == "echo":
    output = args
elif name == "fail":
    send("error", errorCode="NoTorch", errorMessage=args["message"])
    send("done", ok=False, summary=args["message"])
    sys.exit(0)
elif name in ("hang", "wait"):
    time.sleep(600)
elif name == "ask" and "answers" not in request:
    form = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    send("ui_event", event="ask", payload={"message": "Which colour?", "schema": form})
elif name == "ask":
    output = {"answers": request["answers"]}
elif name == "report":
    send("log", level="info", message="half way", fields={"progress": 1, "total": 2})
elif name == "patch":
    send("state_patch", patch={"torch": {"lit": True}})
elif name == "asset":
    send("asset", assetId="torch", kind="text", mediaType="text/plain", path=asset())
elif name == "choose":
    choices = ["Go north", {"id": "s", "label": "Go south", "hint": "it is cold"}]
    send("ui_event", event="narrative_choice", payload={"choices": choices})
elif name == "large":
    output = {"text": "x" * (1 << 20)}
send("done", ok=True, output=output)
