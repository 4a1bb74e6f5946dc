"""A tool that reports events: one JSON object a line on stdout, and `done` at the end."""

import json
import os
import sys
import tempfile
import time


def emit(event_type, **fields):
    print(json.dumps({"version": "0", "type": event_type, **fields}), flush=True)


def draw():
    handle, path = tempfile.mkstemp(prefix="torch-", suffix=".svg")
    with os.fdopen(handle, "w") as f:
        f.write(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 40">'
            '<rect x="8" y="18" width="4" height="20" fill="#654"/>'
            '<path d="M10 2 Q17 12 10 18 Q3 12 10 2" fill="#f80"/></svg>\n'
        )
    return path


def main():
    request = json.load(sys.stdin)
    steps = request.get("input", {}).get("steps", 3)
    emit("log", level="info", message="Striking the flint")
    for step in range(1, steps + 1):
        time.sleep(0.05)
        emit("log", level="info", message=f"Spark {step} of {steps}", fields={"progress": step, "total": steps})
    emit("state_patch", patch={"inventory": {"torch": {"lit": True}}})
    emit("asset", assetId="torch", kind="image", mediaType="image/svg+xml", path=draw())
    emit("done", ok=True, summary="The torch is lit.")


main()
