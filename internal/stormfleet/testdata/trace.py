"""An MCP server whose tools leave a line on the disk before they answer: which of them ran for whom, when, and what it then said."""

import json
import os
import sys
import threading
import time

trace = os.open("out/trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
lock = threading.Lock()
hints = {
    "read": {"readOnlyHint": True},
    "put": {"idempotentHint": True, "destructiveHint": False},
    "mark": {"destructiveHint": False},
    "pay": {"destructiveHint": False},
    "meter": {"destructiveHint": False},
}
schema = {"type": "object", "properties": {"id": {"type": "string"}, "wait": {"type": "integer"}}, "required": ["id"]}


def send(message):
    with lock:
        print(json.dumps(dict(message, jsonrpc="2.0")), flush=True)


def run(request, tool, given):
    """A line that did not fit on the disk has no full stop at its end, and its call fails."""
    said = "ran:%s:%s" % (given["id"], os.urandom(8).hex())
    line = ("\n%s %d %s %s." % (tool, time.time_ns(), sys.argv[1], said)).encode()
    if sys.argv[2] == "twice" and said.endswith("0"):
        line += line  # the planted fault
    try:
        with lock:
            if os.write(trace, line) < len(line):
                raise OSError("the disk is full")
            os.fsync(trace)
        time.sleep(given.get("wait", 0) / 1000)
        result = {"content": [{"type": "text", "text": said}]}
    except OSError as e:
        result = {"content": [{"type": "text", "text": str(e)}], "isError": True}
    send({"id": request, "result": result})


for text in sys.stdin:
    r = json.loads(text)
    method, params = r.get("method"), r.get("params") or {}
    if method == "tools/call":
        threading.Thread(target=run, args=(r["id"], params["name"], params["arguments"]), daemon=True).start()
    elif method == "initialize":
        about = {"name": "trace", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        send({"id": r["id"], "result": result})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": schema, "annotations": hint} for name, hint in hints.items()]
        send({"id": r["id"], "result": {"tools": tools}})
    elif "id" in r:
        send({"id": r["id"], "result": {}})
