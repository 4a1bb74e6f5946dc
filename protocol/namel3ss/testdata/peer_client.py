"""A caller of a tool service, written from the contract alone. It prints what it gets, a line each."""

import json
import sys
import urllib.error
import urllib.request

base = sys.argv[1]
headers = {"Content-Type": "application/json"}
if len(sys.argv) > 2:
    headers["Authorization"] = "Bearer " + sys.argv[2]


def post(path, document):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(base + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            print(reply.status, json.dumps(json.load(reply), sort_keys=True))
    except urllib.error.HTTPError as err:
        print(err.code, json.dumps(json.load(err), sort_keys=True))


call = {
    "protocol_version": 1, "tool_name": "echo", "kind": "python", "entry": "tools.sample_tool:greet",
    "payload": {"name": "Ada ü"}, "timeout_ms": 10000, "trace_id": "0198a7c0-0000-7000-8000-000000000000",
    "project": {"app_root": "/path/to/app", "flow": "demo"},
}
post("/tools", call)
post("/tools", dict(call, tool_name="fail", payload={"message": "Missing input"}))
post("/tools", dict(call, tool_name="hang", timeout_ms=50))
post("/tools", dict(call, tool_name="nobody"))
post("/tools", b'{"tool_name":')
shake = {"protocol_version": 1, "tool_name": "echo", "runner": "service", "required_guarantees": {"no_network": True}}
post("/capabilities/handshake", shake)
post("/capabilities/handshake", dict(shake, tool_name="walled"))
post("/capabilities/handshake", dict(shake, tool_name="nobody"))
