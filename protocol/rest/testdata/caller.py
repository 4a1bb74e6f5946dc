"""A caller of the HTTP door, written from the description of its routes alone.

usage: caller.py HOST PORT TOKEN
Prints one line for every sentence that held; stops at the first that did not.
"""
import http.client
import json
import sys
import threading
import urllib.error
import urllib.request

host, port, token = sys.argv[1], int(sys.argv[2]), sys.argv[3]
base = f"http://{host}:{port}"


def ask(method, path, body=None, auth=True, **headers):
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    if auth:
        headers["Authorization"] = "Bearer " + token
    data = body.encode() if isinstance(body, str) else body
    req = urllib.request.Request(base + path, data=data, method=method, headers=headers)
    if data is not None and "Content-Type" not in headers:
        req.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(req, timeout=30) as resp:
            return resp.status, resp.headers, resp.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def stream(name, args, call_id):
    """Yields (event, id, data) as the messages come."""
    conn = http.client.HTTPConnection(host, port, timeout=30)
    conn.request("POST", f"/v1/tools/{name}/call", json.dumps(args), {
        "Authorization": "Bearer " + token, "Accept": "text/event-stream", "Toolpost-Call": call_id,
        "Content-Type": "application/json"})
    resp = conn.getresponse()
    assert resp.status == 200, resp.status
    assert resp.getheader("Toolpost-Call") == call_id
    fields = {}
    for line in resp:
        line = line.decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if line:
            key, _, value = line.partition(": ")
            fields[key] = value
        elif fields:
            yield fields["event"], fields.get("id"), json.loads(fields["data"])
            fields = {}
    conn.close()


def says(sentence, held):
    if not held:
        sys.exit("does not hold: " + sentence)
    print(sentence)


status, _, body = ask("GET", "/healthz", auth=False)
says("healthz needs no token", status == 200 and json.loads(body)["ok"] is True)
status, _, body = ask("GET", "/readyz", auth=False)
says("readyz needs no token", status == 200)

status, _, body = ask("GET", "/v1/tools")
tools = {t["name"]: t for t in json.loads(body)["tools"]}
says("tools are listed", status == 200 and tools["echo"]["available"] is True and tools["echo"]["input"]["type"] == "object")
status, _, body = ask("GET", "/v1/tools/echo")
says("a tool is shown", status == 200 and json.loads(body) == tools["echo"])

args = {"text": "größer 日本語 🔧", "n": [1, 2.5, None, {"deep": []}]}
status, headers, body = ask("POST", "/v1/tools/echo/call", json.dumps(args))
answer = json.loads(body)
says("the body is the arguments", status == 200 and answer["ok"] is True and answer["output"] == args)
says("the answer names the call", answer["call"] == headers["Toolpost-Call"] != "")
status, _, body = ask("POST", "/v1/tools/echo/call", b"")
says("an empty body is an empty object", status == 200 and json.loads(body)["output"] == {})
status, _, body = ask("POST", "/v1/tools/fail/call", '{"message":"no"}')
answer = json.loads(body)
says("a tool's failure is a 200", status == 200 and answer["ok"] is False and answer["error"]["message"] == "no")
status, _, body = ask("POST", "/v1/tools/nope/call", "{}")
says("an unknown tool is a 404", status == 404 and json.loads(body)["error"]["code"] == "not_found")
status, _, body = ask("POST", "/v1/tools/hang/call", "{}", Toolpost_Timeout="50ms")
says("a timeout is a 504", status == 504 and json.loads(body)["error"]["code"] == "timeout")
status, _, body = ask("POST", "/v1/tools/echo/call", "{}", Content_Type="text/plain")
says("text is a 415", status == 415)
status, headers, body = ask("GET", "/v1/tools", auth=False)
says("no token is a 401", status == 401 and headers["WWW-Authenticate"].startswith("Bearer"))
status, _, _ = ask("GET", "/v1/tools", Host="evil.example.com")
says("another host is a 421", status == 421)
status, _, _ = ask("GET", "/v1/tools", Origin="https://evil.example.com")
says("another origin is a 403", status == 403)

got = list(stream("events", {"count": 20}, "stream-1"))
logs = [data["data"]["message"] for event, _, data in got[:-1] if event == "log"]
says("events come in order", logs == [f"event {n}" for n in range(1, 21)])
says("every event has its number as its id", all(i == str(data["seq"]) for _, i, data in got[:-1]))
says("the result is last", got[-1][0] == "result" and got[-1][2]["ok"] is True and got[-1][2]["call"] == "stream-1")
got = list(stream("crash", {}, "stream-2"))
says("no outcome is said last", [g[0] for g in got] == ["no_outcome"] and got[0][2]["error"]["code"] == "crash")

hanging, ended = threading.Event(), []


def hang():
    for event, _, data in stream("hang", {}, "stream-3"):
        ended.append((event, data))
        hanging.set()


thread = threading.Thread(target=hang)
thread.start()
assert hanging.wait(30)
status, _, _ = ask("DELETE", "/v1/calls/stream-3")
says("a running call is cancelled by its id", status == 204)
thread.join(30)
says("a cancelled call says so", ended[-1][0] == "no_outcome" and ended[-1][1]["error"]["code"] == "cancelled")
status, _, _ = ask("DELETE", "/v1/calls/stream-3")
says("a call that has ended is unknown", status == 404)
print("all held")
