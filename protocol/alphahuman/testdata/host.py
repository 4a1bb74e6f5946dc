"""A host of the second generation, as far as state goes: it starts the skill that its arguments name, has its tool
`patch` apply each patch of its input, a JSON list, in a call of its own, merges one level deep, and prints the state."""

import json
import subprocess
import sys

skill = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
state = {"torch": {"lit": False, "place": "cellar"}, "steps": 1}


def send(message):
    skill.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    skill.stdin.flush()


def ask(number, method, params):
    """Asks the skill, and answers what it asks meanwhile."""
    send({"id": number, "method": method, "params": params})
    while True:
        message = json.loads(skill.stdout.readline())
        if "method" not in message:
            assert message["id"] == number, message
            return message["result"]
        if message["method"] == "state/get":
            send({"id": message["id"], "result": {"state": state}})
        elif message["method"] == "state/set":
            state.update(message["params"]["partial"])
            send({"id": message["id"], "result": {"ok": True}})
        else:
            send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


ask(1, "skill/load", {})
for n, patch in enumerate(json.load(sys.stdin)):
    ask(n + 2, "tools/call", {"name": "patch", "arguments": patch})
ask(1000, "skill/shutdown", {})
skill.wait()
print(json.dumps(state, sort_keys=True))
