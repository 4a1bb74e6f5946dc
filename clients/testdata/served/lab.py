"""Tools that do what a client has to cope with. The first word says which one this is."""

import json
import sys
import time


def emit(kind, **fields):
    print(json.dumps({"version": "0", "type": kind, **fields}), flush=True)


def echo(given, request):
    emit("done", ok=True, output=given)


def fail(given, request):
    emit("error", errorCode="NoTorch", errorMessage="there is no torch")
    emit("done", ok=False, summary="nothing was lit")


def steps(given, request):
    for n in range(given.get("steps", 3)):
        emit("log", level="info", message=f"step {n}")
        time.sleep(given.get("pause", 0))
    emit("state_patch", patch={"steps": given.get("steps", 3)})
    import tempfile
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write("an asset")
    emit("asset", assetId="note", mediaType="text/plain", path=file.name)
    emit("done", ok=True, output={"steps": given.get("steps", 3)}, summary="done")


def flood(given, request):
    for _ in range(given["events"]):
        emit("log", level="info", message="x" * given["size"])
    emit("done", ok=True)


def greeter(given, request):
    if answers := request.get("answers"):
        emit("done", ok=True, output={"hello": answers["name"]})
        return
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    emit("ui_event", event="ask", payload={"message": "What is your name?", "schema": schema})
    emit("done", ok=True)


def forever(given, request):
    while True:
        emit("log", level="info", message="still here")
        time.sleep(0.02)


request = json.load(sys.stdin)
globals()[sys.argv[1]](request["input"], request)
