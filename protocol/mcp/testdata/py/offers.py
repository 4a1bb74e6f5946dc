"""A hostile MCP server on stdin and stdout: what it lists beside its one tool has no end and hides things, what it gives
is not what was asked for, and it tells of changes all the time. Written from the specification alone."""

import json
import sys

ERA = sys.argv[1]
CAN = {"tools": {}, "prompts": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}, "completions": {}}
ODD = [{"uri": "no uri"}, {"uri": "x://a\u202eb", "name": "a"}, {"uri": "x://" + "a" * 5000, "name": "a"}, {"uri": 7}, 7, {},
       {"uri": "x://hides", "name": "a\u200bb", "description": "c\U000e0041d", "annotations": {"audience": ["\u202e"]}}]
pages = 0


def send(**m):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **m}) + "\n")
    sys.stdout.flush()


def flood():
    for n in range(2000):
        send(method="notifications/resources/updated", params={"uri": "x://other/%d" % n})
    send(method="notifications/resources/updated", params={"uri": 7})
    send(method="notifications/resources/updated", params={"uri": "x://" + "a/" * 100000})
    send(method="notifications/resources/updated", params={"uri": "x://followed"})


def answer(method, params):
    global pages
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": CAN, "serverInfo": {"name": "h", "version": "1"}}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": CAN}
    if method == "tools/list":
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "ok"}]}
    if method == "prompts/list":
        many = [{"name": "a%d" % n} for n in range(200)]
        odd = [{"name": "a\u200bb"}, {"name": ""}, {"name": "many", "arguments": many}, {"name": "good", "arguments": [{"name": "x"}]},
               {"name": "good", "description": "another"}, {"name": "n" * 500}, 7]
        return {"prompts": odd, "nextCursor": "again"}
    if method == "resources/list":
        pages += 1
        return {"resources": ODD + [{"uri": "x://%d/%d" % (pages, n), "name": "r"} for n in range(20)], "nextCursor": str(pages)}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "x://{", "name": "a"}, {"uriTemplate": "x://{id}", "name": "a"}] + [{"uriTemplate": "y://{id}", "name": "a"}] * 30000}
    if method == "resources/read":
        return {"x://shape": {"contents": "none"}, "x://empty": {}, "x://giant": {"contents": [{"uri": "x://giant", "text": "a" * 3_000_000}]}}.get(
            params["uri"], {"contents": [{"uri": "x://elsewhere", "text": "ok"}, 7]})
    if method == "prompts/get":
        return {"messages": {}, "description": 7}
    if method == "completion/complete":
        return {"completion": {"values": ["v%d" % n for n in range(5000)], "total": -5}}
    return {}


for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        continue
    method = m["method"]
    if method == "server/discover" and ERA == "legacy":
        send(id=m["id"], error={"code": -32601, "message": "no"})
    elif method == "subscriptions/listen":
        send(method="notifications/subscriptions/acknowledged", params={"_meta": {"io.modelcontextprotocol/subscriptionId": m["id"]}})
        flood()
    else:
        result = answer(method, m.get("params", {}))
        if ERA == "modern":
            result = {"resultType": "complete", **result}
        send(id=m["id"], result=result)
        if method == "resources/subscribe":
            flood()
