"""An MCP server written from the specification, over stdio or HTTP, of either era, with tools that behave and tools that do not.

    server.py ERA [http]

ERA: modern, legacy, mute (legacy, does not answer what it does not know), blunt (legacy, ends at a first word that it does
not know), future (modern, of a version to come), liar (legacy, answers initialize with a version that nobody knows).
"""
import base64, json, os, queue, sys, threading, time

ERA = sys.argv[1]
MODERN = ERA in ("modern", "future")
META = "io.modelcontextprotocol/"
DEEP = {
    "type": "object", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "number"}}}},
    "properties": {"root": {"$ref": "#/$defs/node"}}, "x-mine": {"kept": [1.50, "é"]},
}
FORM = {"type": "object", "properties": {"colour": {"type": "string"}, "size": {"type": "integer", "default": 7}}, "required": ["colour"]}


def tool(name, schema=None, **more):
    return {"name": name, "inputSchema": schema or {"type": "object"}, **more}


class Tools:
    """The list, which `change` changes. Pages are of three tools."""

    def __init__(self):
        self.all = [
            tool("echo", {"type": "object", "properties": {"text": {"type": "string"}}}, title="Echo", description="Says it again.",
                 annotations={"readOnlyHint": True, "openWorldHint": False},
                 outputSchema={"type": "object", "properties": {"text": {"type": "string"}}}),
            tool("deep", DEEP), tool("fail"), tool("refuse"), tool("media"), tool("progress"), tool("sleep"), tool("ask"),
            tool("asktwice"), tool("visit"), tool("visitfirst"), tool("sample"), tool("roots"), tool("withdraw"), tool("flood"),
            tool("twice"), tool("unknown"), tool("noise"), tool("die"), tool("never"), tool("huge"), tool("change"), tool("oddkeys"),
            tool("seen"), tool("task", execution={"taskSupport": "required"}), tool("endless"), tool("wrongera"), tool("nocontent"),
            tool("pid"), tool("listflood"), tool("state"),
            {"name": "noschema"}, {"name": "", "inputSchema": {"type": "object"}}, tool("echo"), "nothing",
        ]

    def page(self, cursor):
        at = int(cursor or 0)
        out = {"tools": self.all[at:at + 3]}
        if at + 3 < len(self.all):
            out["nextCursor"] = str(at + 3)
        return out


TOOLS = Tools()
SEEN = []  # notifications and cancelled requests
CANCELLED = {}
LISTENERS = []


class Wire:
    """How messages go out, and how we ask. Over HTTP there is one for each request."""

    def __init__(self, send, raw=None):
        self.send, self.raw = send, raw


ASKED = {}
LAST = [0]
LOCK = threading.Lock()


def ask(wire, method, params, wait=30):
    with LOCK:
        LAST[0] += 1
        rid = "srv-%d" % LAST[0]
        ASKED[rid] = queue.Queue()
    wire.send({"jsonrpc": "2.0", "id": rid, "method": method, "params": params})
    return rid, (lambda: ASKED[rid].get(timeout=wait))


def text(s, **more):
    return done({"content": [{"type": "text", "text": s}], **more})


def done(result):
    if MODERN:
        result.setdefault("resultType", "complete")
    return result


def note(wire, method, params):
    wire.send({"jsonrpc": "2.0", "method": method, "params": params})


TASKS = {}


def call(wire, rid, params):
    name, args, meta = params.get("name"), params.get("arguments") or {}, params.get("_meta") or {}
    stop = CANCELLED.setdefault(str(rid), threading.Event())
    given, state = params.get("inputResponses"), params.get("requestState")
    if name == "echo":
        return done({"content": [{"type": "text", "text": json.dumps(args)}], "structuredContent": {"text": args.get("text"), "meta": meta}})
    if name == "deep":
        return text(json.dumps(args))
    if name == "fail":
        return text("it did not work", isError=True)
    if name == "refuse":
        return {"__error__": {"code": -32055, "message": "no such luck"}}
    if name == "media":
        blob = base64.b64encode(b"\x89PNG").decode()
        return done({"content": [
            {"type": "text", "text": "one"}, {"type": "image", "data": blob, "mimeType": "image/png"},
            {"type": "audio", "data": blob, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "mem://a", "mimeType": "text/csv", "text": "a,b"}},
            {"type": "resource_link", "uri": "mem://linked", "name": "linked"}, {"type": "resource_link", "uri": "mem://gone", "name": "gone"},
            {"type": "hologram"}, {"type": "text", "text": "two"}]})
    if name == "progress":
        for n in range(1, 4):
            note(wire, "notifications/progress", {"progressToken": meta.get("progressToken"), "progress": n, "total": 3, "message": "step"})
        note(wire, "notifications/message", {"level": "warning", "logger": "me", "data": "careful"})
        note(wire, "notifications/message", {"level": "info", "data": {"a": 1}})
        note(wire, "notifications/message", {"level": "info", "data": {"message": "of a Toolpost", "fields": {"b": 2}}})
        return text("counted")
    if name == "sleep":
        stop.wait(args.get("seconds", 30))
        return text("slept")
    if name in ("ask", "asktwice", "visit", "sample", "roots", "withdraw") and MODERN:
        return question(name, args, given, state)
    if name == "ask":
        _, answer = ask(wire, args.get("method", "elicitation/create"), args.get("params") or {"message": "Which?", "requestedSchema": FORM})
        return text(json.dumps(answer()))
    if name == "asktwice":
        _, first = ask(wire, "elicitation/create", {"message": "Which?", "requestedSchema": FORM})
        a = first()
        _, second = ask(wire, "elicitation/create", {"message": "Really?", "requestedSchema": FORM})
        return text(json.dumps([a, second()]))
    if name == "visit":
        _, answer = ask(wire, "elicitation/create", {"mode": "url", "message": "Go", "url": "https://example.com/x", "elicitationId": "e1"})
        return text(json.dumps(answer()))
    if name == "visitfirst":
        if SEEN.count("visited"):
            return text("welcome back")
        SEEN.append("visited")
        return {"__error__": {"code": -32042, "message": "go there first", "data": {"elicitations": [
            {"mode": "url", "message": "Go", "url": "https://example.com/y", "elicitationId": "e2"}]}}}
    if name == "sample":
        _, answer = ask(wire, "sampling/createMessage", {"maxTokens": 5, "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]})
        return text(json.dumps(answer()))
    if name == "roots":
        _, answer = ask(wire, "roots/list", {})
        return text(json.dumps(answer()))
    if name == "withdraw":
        asked, answer = ask(wire, "elicitation/create", {"message": "Which?", "requestedSchema": FORM})
        time.sleep(0.3)
        note(wire, "notifications/cancelled", {"requestId": asked, "reason": "never mind"})
        SEEN.append("withdrawn")
        return text("went on without")
    if name == "flood":
        for n in range(args.get("count", 20000)):
            note(wire, "notifications/message", {"level": "info", "data": "line %d" % n})
            note(wire, "notifications/made_up", {})
        return text("flooded")
    if name == "listflood":
        for n in range(2000):
            note(wire, "notifications/tools/list_changed", {})
        return text("flooded")
    if name == "twice":
        wire.send({"jsonrpc": "2.0", "id": rid, "result": text("first")})
        return text("second")
    if name == "unknown":
        wire.send({"jsonrpc": "2.0", "id": 987654, "result": text("whose?")})
        wire.send({"jsonrpc": "2.0", "id": "nobody", "error": {"code": 1, "message": "whose?"}})
        return text("mine")
    if name == "noise":
        for line in (b"hello, I am a log line\n", b"\xff\xfe\n", b"[1]\n", b"{}\n", b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}\n', b"\n"):
            wire.raw(line)
        return text("noisy")
    if name == "die":
        os._exit(3)
    if name == "never":
        time.sleep(3600)
    if name == "huge":
        return text("x" * args.get("bytes", 40 << 20))
    if name == "change":
        TOOLS.all = [t for t in TOOLS.all if not isinstance(t, dict) or t.get("name") not in ("fail", "late")] + [tool("late")]
        changed(wire)
        return text("changed")
    if name == "late":
        return text("late")
    if name == "oddkeys":
        wire.raw(b'{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[{"type":"text","text":"b"}]}}\n' % json.dumps(rid).encode())
        return None
    if name == "seen":
        return text(json.dumps(SEEN))
    if name == "pid":
        return text(str(os.getpid()))
    if name == "task":
        return task(args, params)
    if name == "endless":
        return done({"resultType": "input_required", "requestState": "again"}) if MODERN else text("no")
    if name == "wrongera":
        if MODERN:
            _, answer = ask(wire, "elicitation/create", {"message": "Which?", "requestedSchema": FORM})
            return text(json.dumps(answer()))
        return {"resultType": "input_required", "content": [{"type": "text", "text": "legacy all the same"}], "inputRequests": {}}
    if name == "nocontent":
        return done({})
    if name == "state":
        return text(json.dumps([state, given]))
    return {"__error__": {"code": -32602, "message": "Unknown tool: %s" % name}}


def question(name, args, given, state):
    """Questions of the modern era."""
    form = {"method": "elicitation/create", "params": {"mode": "form", "message": "Which?", "requestedSchema": FORM}}
    if given is None:
        wants = {
            "ask": {"q": form}, "asktwice": {"q": form}, "withdraw": {"q": form},
            "visit": {"v": {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": "https://example.com/x"}}},
            "sample": {"s": {"method": "sampling/createMessage", "params": {"maxTokens": 5, "messages": []}}, "q": form},
            "roots": {"r": {"method": "roots/list", "params": {}}},
        }[name]
        return {"resultType": "input_required", "inputRequests": wants, "requestState": "secret-%s" % name}
    if name == "asktwice" and state == "secret-asktwice":
        return {"resultType": "input_required", "inputRequests": {"again": form}, "requestState": "second"}
    return text(json.dumps({"given": given, "state": state}))


def task(args, params):
    if not MODERN:
        if "task" not in params:
            return {"__error__": {"code": -32601, "message": "only as a task"}}
        TASKS["t1"] = {"polls": 0}
        return {"task": {"taskId": "t1", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": None}}
    TASKS["t1"] = {"polls": 0, "asks": args.get("asks"), "forever": args.get("forever"), "fails": args.get("fails")}
    return {"resultType": "task", **status("t1", "working")}


def status(tid, s, **more):
    return {"taskId": tid, "status": s, "statusMessage": "at it", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
            "ttlMs": None, "pollIntervalMs": 20, **more}


def about_task(method, params):
    t = TASKS.get(params.get("taskId"))
    if t is None:
        return {"__error__": {"code": -32602, "message": "no such task"}}
    if method == "tasks/result":
        time.sleep(0.2)
        return text("task done")
    if method == "tasks/cancel":
        SEEN.append("task cancelled")
        return done({})
    if method == "tasks/update":
        t["answer"] = params.get("inputResponses")
        return done({})
    t["polls"] += 1
    if t.get("forever"):
        return done(status("t1", "working"))
    if t.get("fails"):
        return done(status("t1", "failed", error={"code": -32603, "message": "task broke"}))
    if t.get("asks") and "answer" not in t:
        return done(status("t1", "input_required", inputRequests={"k": {"method": "elicitation/create", "params": {
            "mode": "form", "message": "Which?", "requestedSchema": FORM}}}))
    if t["polls"] < 3:
        return done(status("t1", "working"))
    return done(status("t1", "completed", result=text("task done %s" % json.dumps(t.get("answer")))))


def changed(wire):
    if not MODERN:
        note(wire, "notifications/tools/list_changed", {})
        return
    for sub, to in list(LISTENERS):
        note(to, "notifications/tools/list_changed", {"_meta": {META + "subscriptionId": sub}})


READY = [False]


def handle(wire, rid, method, params):
    """The result of a request; {"__error__"} for an error, None where it was answered, or will not be."""
    version = (params.get("_meta") or {}).get(META + "protocolVersion")
    if ERA == "future" and method == "server/discover":
        return {"__error__": {"code": -32022, "message": "Unsupported", "data": {"supported": ["2099-01-01"], "requested": version}}}
    if MODERN:
        if version != "2026-07-28" or META + "clientCapabilities" not in params["_meta"]:
            return {"__error__": {"code": -32602, "message": "bad _meta: %s" % json.dumps(params)}}
        if method == "server/discover":
            return done({"supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private", "capabilities": {
                "tools": {"listChanged": True}, "resources": {}, "extensions": {META + "tasks": {}}}})
        if method == "subscriptions/listen":
            LISTENERS.append((rid, wire))
            SEEN.append(method)
            note(wire, "notifications/subscriptions/acknowledged", {"_meta": {META + "subscriptionId": rid}, "notifications": params["notifications"]})
            return None
    else:
        if method == "initialize":
            READY[0] = True
            return {"protocolVersion": "1899-01-01" if ERA == "liar" else "2025-11-25", "serverInfo": {"name": "py", "version": "1"}, "capabilities": {
                "tools": {"listChanged": True}, "resources": {}, "logging": {}, "tasks": {"requests": {"tools": {"call": {}}}}}}
        if not READY[0] and ERA == "mute":
            return None
        if not READY[0] and ERA == "blunt":
            os._exit(4)
        if not READY[0]:
            return {"__error__": {"code": -32601, "message": "Method not found before initialize"}}
        if method == "logging/setLevel":
            SEEN.append(params["level"])
        if method in ("ping", "logging/setLevel"):
            return {}
    if method == "tools/list":
        return done({**TOOLS.page(params.get("cursor")), **({"ttlMs": 0, "cacheScope": "private"} if MODERN else {})})
    if method == "tools/call":
        return call(wire, rid, params)
    if method == "resources/read" and params.get("uri") == "mem://linked":
        return done({"contents": [{"uri": "mem://linked", "mimeType": "text/plain", "text": "linked text"}]})
    if method == "resources/read":
        return {"__error__": {"code": -32602, "message": "no such resource"}}
    if method.startswith("tasks/"):
        return about_task(method, params)
    return {"__error__": {"code": -32601, "message": "Method not found"}}


def take(wire, m):
    """One message of the client."""
    if "method" not in m:
        q = ASKED.get(m.get("id"))
        SEEN.append("an error" if "error" in m else "an answer")
        if q is not None:
            q.put(m.get("result", {"error": m.get("error")}))
        return
    if "id" not in m:
        SEEN.append(m["method"])
        if m["method"] == "notifications/cancelled":
            CANCELLED.setdefault(str(m["params"]["requestId"]), threading.Event()).set()
        return
    result = handle(wire, m["id"], m["method"], m.get("params") or {})
    if result is None:
        return
    if "__error__" in result:
        wire.send({"jsonrpc": "2.0", "id": m["id"], "error": result["__error__"]})
    else:
        wire.send({"jsonrpc": "2.0", "id": m["id"], "result": result})


def stdio():
    out = threading.Lock()

    def raw(line):
        with out:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    wire = Wire(lambda m: raw(json.dumps(m).encode() + b"\n"), raw)
    for line in sys.stdin.buffer:
        m = json.loads(line)
        threading.Thread(target=take, args=(wire, m), daemon=True).start() if m.get("method") == "tools/call" else take(wire, m)


if __name__ == "__main__":
    if sys.argv[2:3] == ["http"]:
        import overhttp
        overhttp.serve(sys.modules[__name__])
    stdio()
