"""A Narratoria tool that tells as much as it is asked for: lines, or a file."""

import json
import sys


def send(what, **more):
    print(json.dumps(dict({"version": "0", "type": what}, **more)), flush=True)


asked = json.load(sys.stdin)["input"]
with open("out/told", "w") as told:
    for n in range(asked["lines"]):
        send("log", level="info", message="line", fields={"n": n, "filler": "x" * asked.get("filler", 0)})
        told.seek(0)
        told.write(str(n + 1))
        told.flush()
if "file" in asked:
    with open("out/file", "wb") as f:
        f.write(bytes(i * i % 251 for i in range(asked["file"])))
    send("asset", assetId="a", kind="data", mediaType="application/octet-stream", path="out/file")
send("done", ok=True)
