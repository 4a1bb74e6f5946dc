"""A skill of the first generation with the standard tools. One request after the other, as the contract's
template does. echo also says its output as it is, in structuredContent."""

import json
import os
import socket
import subprocess
import sys
import time

OBJECT = {"type": "object"}
TOOLS = [{"name": n, "description": n, "parameters": OBJECT} for n in ("echo", "fail", "hang", "spawn", "crash", "pid", "say", "env", "hooks", "try")]
SEEN = []


def could(port, file):
    """Which of these it could do."""
    done = []
    for name, attempt in [
        ("write", lambda: open(file, "w").close()),
        ("connect", lambda: socket.create_connection(("127.0.0.1", port), 5).close()),
        ("run", lambda: subprocess.run(["true"], check=True)),
    ]:
        try:
            attempt()
            done.append(name)
        except OSError:
            pass
    return done


def call(name, args):
    if name == "echo":
        return {"content": json.dumps(args), "structuredContent": args}
    if name == "fail":
        return {"content": args["message"], "isError": True}
    if name == "hang":
        time.sleep(100000)
    if name == "crash":
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "spawn":
        for _ in range(args["children"]):
            subprocess.Popen(["sleep", args["sleep"]], start_new_session=args.get("setsid", False), stdout=subprocess.DEVNULL)
        return {"content": "started", "structuredContent": {"started": args["children"]}}
    if name == "pid":
        return {"content": str(os.getpid())}
    if name == "say":
        return {"content": args.get("text", "")}
    if name == "env":
        return {"content": json.dumps(sorted(k for k in os.environ if k != "LC_CTYPE"))}
    if name == "try":
        return {"content": json.dumps(could(args["port"], args["file"]))}
    if name == "hooks":
        return {"content": json.dumps(SEEN)}
    return {"content": "unknown tool", "isError": True}


for line in sys.stdin:
    request = json.loads(line)
    method, params = request["method"], request["params"]
    assert request["jsonrpc"] == "2.0" and isinstance(params, dict), line
    result = {"ok": True}
    if method == "initialize":
        result = {"name": "first", "description": "d", "version": "1.0.0", "tools": TOOLS}
    elif method == "tools/call":
        result = call(params["name"], params["arguments"])
    else:
        SEEN.append([method, params])
        with open(os.environ.get("HOOKS", os.devnull), "a") as f:
            f.write(json.dumps([method, params]) + "\n")
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
    if method == "shutdown":
        break
