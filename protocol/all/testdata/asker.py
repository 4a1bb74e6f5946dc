"""An MCP server of the legacy era that calls an HTTPS API with the key from its environment."""
import json
import os
import sys
import threading
import urllib.error
import urllib.request

lock = threading.Lock()


def send(message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(url):
    headers = {"Authorization": "Bearer " + os.environ.get("API_KEY", "")}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=50) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"


def call(number, params):
    try:
        arguments = params.get("arguments", {})
        text = ask(arguments["url"]) if params["name"] == "ask" else json.dumps(dict(os.environ))
    except OSError as error:
        text = repr(error)
    if "say" in arguments:  # the answer comes first, so that the line belongs to no call
        threading.Timer(0.2, print, ["the key is", os.environ["API_KEY"]], {"file": sys.stderr, "flush": True}).start()
    send({"id": number, "result": {"content": [{"type": "text", "text": text}]}})


TOOLS = [
    {"name": "ask", "inputSchema": {"type": "object", "properties": {"url": {"type": "string"}}}},
    {"name": "environment", "inputSchema": {"type": "object", "properties": {"say": {"type": "string"}}}},
]

for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            send({"id": message["id"], "result": {
                "protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "asker", "version": "1"}}})
        case "tools/list":
            send({"id": message["id"], "result": {"tools": TOOLS}})
        case "tools/call":
            threading.Thread(target=call, args=(message["id"], message["params"])).start()
        case _ if "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
