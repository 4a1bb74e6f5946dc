#!/usr/bin/env python3
"""Compares what two builds of the program say on the wire, byte for byte: `transcripts.py OLD NEW`.

Each program serves the same tools, in every protocol, and gets the same requests through every door. Only what is new
in every run is replaced before the comparison: ids, times, ports, and the folder. It prints every exchange that differs,
and exits with 1 if there is one. `transcripts.py NEW` alone prints the exchanges.
"""
import difflib, http.client, http.server, json, os, pathlib, re, shutil, socket, subprocess, sys, tempfile, threading

REPO = pathlib.Path(__file__).resolve().parents[2]
TOKEN = "transcripts-0123456789abcdef"
ECHO = '{"type":"object","properties":{"value":{},"n":{"type":"number"}},"required":["value"]}'
RICH = '{"value":{"text":"Grüße, 日本語, 🔥, \\u2028, \\"q\\" \\\\","list":[1,-2.5,true,null,[],{}],"big":9007199254740993,"b":1,"a":2}}'
FAIL = '{"message":"no torch: \\"große\\" 🔥"}'
CALLS = [  # tool and arguments
    ("echo", RICH), ("echo", '{"value":1,"n":"not a number"}'), ("echo", "{}"), ("echo", '{"value":1,"value":2}'), ("echo", '{"value":'),
    ("fail", FAIL), ("report", "{}"), ("patch", "{}"), ("asset", "{}"), ("choose", "{}"), ("ask", "{}"), ("danger", "{}"), ("hang", "{}"),
]


def sources(dir, api):
    tale = "".join(
        f"- {{name: tale-{t}, protocol: narratoria, tool: {t}, command: [python3, events.py], env: {{MATRIX_ASSETS: '{dir}/assets'}}, "
        f"walls: {{write: [assets]}}, timeout: {'300ms' if t == 'hang' else '30s'}, tier: {3 if t == 'danger' else 1}"
        + (f", input: {ECHO}" if t == "echo" else "") + "}\n"
        for t in ("echo", "fail", "report", "patch", "asset", "choose", "ask", "danger", "hang"))
    aids = ", ".join(f"{{aid: AID.MATRIX.{t.upper()}.v1, name: {t}" + (f", input: {ECHO}}}" if t == "echo" else ", tier: 3}" if t == "danger" else "}")
                     for t in ("echo", "fail", "report", "patch", "danger"))
    skills = "".join(f"- {{name: {n}, protocol: alphahuman, skill: {f}, env: {{MATRIX_ASSETS: '{dir}/assets'}}, walls: {{write: [assets]}}}}\n"
                     for n, f in (("one", "skill1"), ("two", "skill2")))
    hosts = "".join(f"- {{name: {m}, protocol: machina, command: [python3, toolhost.py], plugin: matrix, mode: {m}, tools: [{aids}]}}\n"
                    for m in ("run", "serve"))
    servers = "".join(f"- {{name: mcp-{era}, protocol: mcp, command: [python3, mcp/tools.py, {era}], tier: 1}}\n" for era in ("modern", "legacy"))
    return f"""- {{name: files, protocol: builtin, roots: [{{path: assets}}]}}
- {{name: n3, protocol: namel3ss, app: app}}
- {{name: api, protocol: openapi, document: api.json}}
- name: plain
  protocol: command
  dir: assets
  tools:
  - {{tool: echo, command: [cat], stdin: "{{*}}", output: json, input: {ECHO}}}
  - {{tool: fail, command: [sh, -c, 'printf %s "$1" >&2; exit 3', sh, "{{message}}"], exits: [{{code: 3, reason: NoTorch}}]}}
  - {{tool: report, command: [sh, -c, 'echo "1/2 half way" >&2'], progress: '(?P<done>\\d+)/(?P<total>\\d+) (?P<message>.+)'}}
  - {{tool: asset, command: [sh, -c, 'printf "a torch" >torch'], assets: [torch]}}
  - {{tool: danger, command: ["true"], tier: 3}}
  walls: {{write: [assets]}}
{tale}{skills}{hosts}{servers}"""


ROWS = {  # where each source has its tools
    **{n: lambda t, n=n: f"{n}.{t}" for n in ("n3", "one", "two", "run", "serve", "plain", "mcp-modern", "mcp-legacy", "api")},
    "tale": lambda t: f"tale-{t}.{t}", "nowhere": lambda t: f"nowhere.{t}",
}


class Service(http.server.BaseHTTPRequestHandler):
    """An HTTP API with an OpenAPI document, and a model server of the three APIs, which calls one tool and then says what it got."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_): pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        status, kind, out = 200, "application/json", body
        if self.path == "/fail":
            status, out = 418, {"message": body.get("message")}
        elif self.path != "/echo":
            out = model(self.path, body)
            if body.get("stream"):
                kind, out = "text/event-stream", stream(self.path, out)
        raw = out if isinstance(out, bytes) else json.dumps(out).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def model(path, body):
    text = json.dumps(body, ensure_ascii=False)
    names = re.findall(r'"name": "([^"]*echo[^"]*)"', json.dumps(body.get("tools") or []))
    calls = names and not any(w in text for w in ('"role": "tool"', "tool_result", "function_call_output"))
    args, words = '{"value": "é"}', f"{len(body.get('tools') or [])} tools; done"
    if "chat" in path:
        m = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": names[0], "arguments": args}}]} \
            if calls else {"role": "assistant", "content": words}
        return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": m, "finish_reason": "tool_calls" if calls else "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
    if "responses" in path:
        item = {"type": "function_call", "id": "fc1", "call_id": "c1", "name": names[0], "arguments": args, "status": "completed"} if calls else \
            {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": words, "annotations": []}]}
        return {"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [item],
                "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}
    block = {"type": "tool_use", "id": "c1", "name": names[0], "input": json.loads(args)} if calls else {"type": "text", "text": words}
    return {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [block], "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 2}}


def stream(path, whole):
    if "chat" in path:
        choice = whole["choices"][0]
        delta = dict(choice["message"])
        if delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": 0, **delta["tool_calls"][0]}]
        chunk = lambda **more: {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", **more}
        events = [chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}]),
                  chunk(choices=[{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]), chunk(choices=[], usage=whole["usage"])]
        return "".join(f"data: {json.dumps(e)}\n\n" for e in events).encode() + b"data: [DONE]\n\n"
    if "responses" in path:
        item = whole["output"][0]
        events = [{"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
                  {"type": "response.output_item.added", "output_index": 0, "item": item}]
        if item["type"] == "message":
            events.append({"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 0, "delta": item["content"][0]["text"]})
        events += [{"type": "response.output_item.done", "output_index": 0, "item": item}, {"type": "response.completed", "response": whole}]
    else:
        block = whole["content"][0]
        used = block["type"] == "tool_use"
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])} if used else {"type": "text_delta", "text": block["text"]}
        events = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
                  {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}} if used else {"type": "text", "text": ""}},
                  {"type": "content_block_delta", "index": 0, "delta": delta}, {"type": "content_block_stop", "index": 0},
                  {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None}, "usage": {"output_tokens": 2}}, {"type": "message_stop"}]
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def document(port):
    answer = {"200": {"description": "ok", "content": {"application/json": {"schema": {"type": "object"}}}}}
    operation = lambda name, schema: {"post": {"operationId": name, "responses": answer, "requestBody": {
        "required": True, "content": {"application/json": {"schema": schema}}}}}
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": f"http://127.0.0.1:{port}"}],
            "paths": {"/echo": operation("echo", json.loads(ECHO)), "/fail": operation("fail", {"type": "object"})}}


class Run:
    """One program in a folder, its server, and what was said."""

    def __init__(self, program, port):
        self.program, self.said = program, {}
        self.dir = tempfile.mkdtemp(prefix="transcripts-")
        for to, frm in (("", "internal/matrix/testdata"), ("mcp", "protocol/mcp/testdata/py")):
            shutil.copytree(REPO / frm, os.path.join(self.dir, to), dirs_exist_ok=True)
        os.makedirs(self.dir + "/assets", exist_ok=True)
        models = "".join(f"- {{name: {k}, url: 'http://127.0.0.1:{port}/v1', api: {k}, tools: offer}}\n" for k in ("openai", "responses", "anthropic"))
        pathlib.Path(self.dir, "api.json").write_text(json.dumps(document(port)))
        pathlib.Path(self.dir, "toolpost.yaml").write_text(
            f"sources:\n{sources(self.dir, port)}models:\n{models}limits: {{lease_tier: 3}}\n"
            'doors: {http: {listen: "127.0.0.1:0"}, nats: {embedded: true, listen: "127.0.0.1:0"}, namel3ss: {listen: "127.0.0.1:0"}}\n')
        self.env = {"PATH": os.environ["PATH"], "HOME": self.dir, "TOOLPOST_TOKEN": TOKEN}

    def __enter__(self):
        self.log = open(self.dir + "/log", "w")
        self.server = subprocess.Popen([self.program, "serve"], cwd=self.dir, env=self.env, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.ports = {}
        while len(self.ports) < 3:
            line = self.server.stdout.readline()
            if not line:
                sys.exit("the server did not start: " + pathlib.Path(self.dir, "log").read_text())
            if found := re.search(r"(http|nats)://127\.0\.0\.1:(\d+)(/tools)?$", line.strip()):
                self.ports.setdefault("service" if found[3] else found[1], int(found[2]))
        threading.Thread(target=self.server.stdout.read, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def say(self, name, raw):
        self.said[name] = self.same(raw if isinstance(raw, str) else raw.decode(errors="backslashreplace"))

    def same(self, text):
        """Replaces what is new in every run."""
        text = text.replace(self.dir, "DIR").replace(os.path.basename(self.dir), "DIR")
        for pattern, word in (
            (r'(?m)^.*"notifications/tools/list_changed".*\n', ""),  # as often as sources open late
            (r"127\.0\.0\.1:\d+", "ADDR"), (r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)", "TIME"), (r"(?m)^Date: .*$", "Date: TIME"),
            (r"\b(call|apr|ask|job|plan|lease|tok|resp|msg|chatcmpl|fc|toolu|srvtoolu|mcp|ses)_[0-9A-Za-z-]{10,}", r"\1_ID"),
            (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"), (r"\b[0-9a-f]{16,64}\b", "HEX"),
            (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ULID"), (r'("[a-z_]*(?:_ms|_us|ms|created|created_at|duration|elapsed)":) ?[0-9.]+', r"\1 N"),
            (r"(?m)^Content-Length: .*$", "Content-Length: N"), (r"\b\d+(\.\d+)?(ns|µs|ms|s)\b", "DURATION"), (r"pid[ =]\d+", "pid N"),
            (r"/tmp/[A-Za-z0-9._-]+", "TMP"), (r'"[A-Za-z0-9_-]{100,}"', '"SEALED"'),
        ):
            text = re.sub(pattern, word, text)
        return text

    def http(self, method, path, body=None, port="http", **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.ports[port], timeout=60)
        headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        c.request(method, path, body if body is None else body.encode(), headers)
        r = c.getresponse()
        kept = sorted(f"{k}: {v}" for k, v in r.getheaders())
        out = "\n".join([f"{r.status} {r.reason}", *kept, "", r.read().decode(errors="backslashreplace")])
        c.close()
        return out

    def talk(self, words, stdin, until=None):
        """Runs a command. With until it reads that many lines before it ends the input."""
        p = subprocess.Popen([self.program, *words], cwd=self.dir, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        p.stdin.write(stdin.encode())
        p.stdin.flush()
        lines = [p.stdout.readline() for _ in range(until or 0)]
        p.stdin.close()
        return b"".join([*lines, p.stdout.read(), f"exit {p.wait()}".encode()])


def rpc(method, id=1, **params):
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}, ensure_ascii=False)


def raw_call(tool, args, meta="", id=7):
    return f'{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{json.dumps(tool)},"arguments":{args}{meta}}}}}'


MODERN = ',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},' \
         '"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/logLevel":"debug","progressToken":"p"}'
META = json.loads("{" + MODERN[1:] + "}")["_meta"]


def doors(r):
    """Every door that listens, with every call."""

    def legacy():
        made = r.http("POST", "/mcp", rpc("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"}),
                      Accept="application/json, text/event-stream")
        id = re.search(r"(?im)^mcp-session-id: (\S+)$", made)[1]
        r.http("POST", "/mcp", '{"jsonrpc":"2.0","method":"notifications/initialized"}', Accept="application/json, text/event-stream", Mcp_Session_Id=id)
        return id

    stateful = legacy()
    both = "application/json, text/event-stream"

    def flat(name): return re.sub(r"[^a-zA-Z0-9_-]", "_", name)

    yield "http", lambda n, a: r.http("POST", f"/v1/tools/{n}/call", a)
    yield "http stream", lambda n, a: r.http("POST", f"/v1/tools/{n}/call", a, Accept="text/event-stream", Toolpost_Session="s1")
    yield "openai", lambda n, a: r.http("POST", "/v1/openai/tool_calls", json.dumps({"tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": n, "arguments": a}}]}))
    yield "mcp modern", lambda n, a: r.http("POST", "/mcp", raw_call(flat(n), a, MODERN), Accept=both, MCP_Protocol_Version="2026-07-28",
                                            Mcp_Method="tools/call", Mcp_Name=flat(n))
    yield "mcp legacy", lambda n, a: r.http("POST", "/mcp", raw_call(flat(n), a), Accept=both, MCP_Protocol_Version="2025-11-25", Mcp_Session_Id=stateful)
    yield "namel3ss", lambda n, a: r.http("POST", "/tools", '{"protocol_version":1,"tool_name":%s,"kind":"python","entry":"tools.any:any","payload":%s,'
                                          '"timeout_ms":30000,"trace_id":"t","project":{"app_root":"/","flow":"demo"}}' % (json.dumps(n), a), port="service")
    with Nats(r.ports["nats"]) as nats:
        yield "nats", lambda n, a: nats.ask("tools.execute." + n, a)
        yield "nats tool_call", lambda n, a: nats.ask("tools.execute", json.dumps({"tool_call_id": "c", "function": {"name": n, "arguments": a}}))


class Nats:
    """As little of a NATS client as a request needs."""

    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.f = self.s.makefile("rb")
        self.f.readline()
        self.send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"auth_token":"%s"}\r\nSUB in.* 1\r\nPING\r\n' % TOKEN.encode())

    def __enter__(self): return self

    def __exit__(self, *_): self.s.close()

    def send(self, b): self.s.sendall(b)

    def ask(self, subject, body):
        body = body.encode()
        self.send(b"PUB %s in.a %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        while True:
            line = self.f.readline().split()
            if not line:
                return "closed"
            if line[0] == b"PING":
                self.send(b"PONG\r\n")
            elif line[0] == b"-ERR":
                return b" ".join(line)
            elif line[0] in (b"MSG", b"HMSG"):
                return self.f.read(int(line[-1]) + 2)


def programs(r):
    """Every door on the standard streams, with some of the calls: each is a program to start."""
    def machina(n, a): return r.talk(["as", "machina", "--run", n.split(".")[0], f"AID.MATRIX.{n.split('.')[1].upper()}.v1"], json.dumps({"input_json": a}) + "\n")
    def skill(n, a):
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", n)
        return r.talk(["as", "alphahuman"], "\n".join([rpc("initialize"), rpc("tools/list", 2), raw_call(name, a, id=3), rpc("shutdown", 4)]) + "\n", 3)
    def mcp(n, a):
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", n)
        hello = rpc("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"})
        return r.talk(["as", "mcp"], hello + '\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n' + raw_call(name, a) + "\n", 2)
    yield "cli", lambda n, a: r.talk(["call", n, "-", "--json"], a)
    yield "as namel3ss", lambda n, a: r.talk(["as", "namel3ss"], '{"protocol_version":1,"tool":%s,"entry":"a.b:c","payload":%s}' % (json.dumps(n), a))
    yield "as narratoria", lambda n, a: r.talk(["as", "narratoria", n], '{"requestId":"r1","tool":"any","operation":"run","input":%s}\n' % a)
    yield "as machina", machina
    yield "as alphahuman", skill
    yield "as mcp", mcp


def lists(r):
    """What is offered, and requests that are wrong."""
    both = "application/json, text/event-stream"
    for path in ("/v1/tools", "/v1/tools/plain.echo", "/v1/tools/none", "/v1/models", "/v1/state/s1", "/healthz", "/readyz", "/openapi.json", "/v1/nothing", "/mcp"):
        r.say("GET " + path, r.http("GET", path))
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list", "server/discover", "completion/complete", "nothing/known", "resources/read"):
        r.say("mcp " + method, r.http("POST", "/mcp", rpc(method, _meta=META, **({"uri": "toolpost://sessions/s1"} if method == "resources/read" else {})), Accept=both,
                                      MCP_Protocol_Version="2026-07-28", Mcp_Method=method, Mcp_Name="toolpost://sessions/s1"))
    for body in ("", "{", "[]", "null", "7", '{"a":1,"a":2}', '{"jsonrpc":"2.0"}', '{"jsonrpc":"1.0","id":1,"method":"ping"}', "[" * 3000, '"\\ud800"'):
        for path in ("/mcp", "/v1/tools/plain.echo/call", "/v1/openai/tool_calls", "/v1/chat/completions", "/v1/responses", "/v1/messages"):
            r.say(f"{path} {body[:40]}", r.http("POST", path, body, Accept=both))
        r.say(f"/tools {body[:40]}", r.http("POST", "/tools", body, port="service"))


def models(r):
    mine = {"name": "mine_echo", "description": "d", "parameters": json.loads(ECHO)}
    for name in ("openai", "responses", "anthropic"):
        for streamed in (False, True):
            for offer in ("none", "ours", "mine"):
                head = {"Toolpost_Tools": "offer"} if offer == "ours" else {}
                own = offer == "mine"
                chat = {"model": name, "messages": [{"role": "user", "content": "hé"}], "stream": streamed} | ({"tools": [{"type": "function", "function": mine}]} if own else {})
                resp = {"model": name, "input": "hé", "stream": streamed} | ({"tools": [{"type": "function", **mine}]} if own else {})
                said = {"model": name, "max_tokens": 9, "messages": [{"role": "user", "content": "hé"}], "stream": streamed} | (
                    {"tools": [{"name": "mine_echo", "input_schema": mine["parameters"]}]} if own else {})
                for path, body in (("/v1/chat/completions", chat), ("/v1/responses", resp), ("/v1/messages", said)):
                    r.say(f"{path} {name} {'stream' if streamed else 'whole'} {offer}", r.http("POST", path, json.dumps(body, ensure_ascii=False), **head))


def record(program, port):
    with Run(os.path.abspath(program), port) as r:
        for door, call in doors(r):
            for row, where in ROWS.items():
                for tool, args in CALLS[:None if row in ("tale", "nowhere") else -1]:  # only a tale has a short timeout
                    r.say(f"{door} | {row} | {tool} {args[:40]}", call(where(tool), args))
        for door, call in programs(r):
            for row in ("tale", "mcp-legacy", "run", "two"):
                for tool, args in (CALLS[0], CALLS[1], CALLS[5], CALLS[6]):
                    r.say(f"{door} | {row} | {tool} {args[:40]}", call(ROWS[row](tool), args))
        models(r)
        lists(r)
        return r.said


def main():
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    said = [record(program, service.server_port) for program in sys.argv[1:3]]
    if len(said) == 1:
        print("\n".join(f"== {name}\n{text}" for name, text in said[0].items()))
        return
    old, new = said
    different = [name for name in old if old[name] != new.get(name)] + [name for name in new if name not in old]
    for name in different:
        print("==", name)
        print("\n".join(line[:600] for line in difflib.unified_diff(old.get(name, "").split("\n"), new.get(name, "").split("\n"), lineterm="", n=0)))
    print(f"{len(old)} exchanges, {len(different)} different")
    sys.exit(bool(different))


main()
