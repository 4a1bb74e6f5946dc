"""A host written from the contract alone: it starts the command it is given as a tool, sends it one
request, and holds the reply to the contract. It prints the reply, or what is wrong with it."""

import json
import subprocess
import sys


def request(tool, payload):
    return {
        "protocol_version": 1,
        "tool": tool,
        "entry": "tools.sample_tool:greet",
        "payload": payload,
        "sandbox": True,
        "trace_id": "1c2f3a54-4b1d-4a2e-9f6d-0f1e2d3c4b5a",
        "capability_context": {"guarantees": {"no_network": True}},
    }


def check_walls(reply):
    for check in reply.get("capability_checks", []):
        assert set(check) == {"capability", "allowed", "guarantee_source", "reason"}, f"fields of a check {sorted(check)}"
        assert check["guarantee_source"] in ("engine", "tool", "pack", "user", "policy"), check["guarantee_source"]


def check(reply):
    assert isinstance(reply, dict), "the reply is not an object"
    assert type(reply["protocol_version"]) is int and reply["protocol_version"] == 1, "protocol_version"
    assert isinstance(reply["ok"], bool), "ok"
    if reply["ok"]:
        assert set(reply) == {"ok", "protocol_version", "result"}, f"fields {sorted(reply)}"
        return
    assert set(reply) == {"ok", "protocol_version", "error"}, f"fields {sorted(reply)}"
    error = reply["error"]
    assert set(error) <= {"type", "message", "reason_code"}, f"fields of error {sorted(error)}"
    assert all(isinstance(v, str) for v in error.values()), "error has other things than text"
    assert error["type"] and "message" in error, "error without type or message"


def main():
    tool, payload, command = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
    done = subprocess.run(
        command, input=json.dumps(request(tool, payload)).encode(), stdout=subprocess.PIPE, timeout=60
    )
    assert done.returncode == 0, f"exit code {done.returncode}"
    reply = json.loads(done.stdout)
    check_walls(reply)
    check({key: value for key, value in reply.items() if key != "capability_checks"})
    print(json.dumps(reply, sort_keys=True))


main()
