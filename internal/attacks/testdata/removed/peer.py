# A caller at every door. Once each has answered, the caller leaves the config: then none does, on open connections too.
import http.client, json, socket, sys, time
url, nats, token, keep = sys.argv[1].split("//")[1], sys.argv[2], "the-token-of-ada-0123456789", open("keep.yaml").read()
AUTH = {"Authorization": "Bearer " + token}

class Web:
    def __init__(self, headers): self.conn, self.headers = http.client.HTTPConnection(url, timeout=20), headers
    def ask(self, path, body, more={}):
        self.conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **self.headers, **more})
        sock = self.conn.sock
        r = self.conn.getresponse()
        return r.status, r.read().decode(), r.headers, sock
    def call(self):
        return self.ask("/v1/tools/readFile/call", {"path": "notes.txt"})[:2]

class Cookie(Web):
    def __init__(self):
        super().__init__({"Toolpost-Console": "1"})
        status, text, headers, _ = self.ask("/v1/session", {"token": token})
        assert status == 200, text
        self.headers = {"Cookie": headers["Set-Cookie"].split(";")[0], "Toolpost-Console": "1"}

class MCP(Web):
    def __init__(self):
        super().__init__({**AUTH, "Accept": "application/json, text/event-stream"})
        status, text, headers, _ = self.ask("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "peer", "version": "1"}}})
        assert status == 200, text
        self.headers.update({"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": "2025-06-18"})
        self.ask("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"})
    def call(self):
        return self.ask("/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "readFile", "arguments": {"path": "notes.txt"}}})[:2]

class Stream(MCP):  # what the server sends by itself, until it ends
    def __init__(self):
        super().__init__()
        self.conn.request("GET", "/mcp", headers=self.headers)
        self.sock, self.text = self.conn.sock, b""
        self.sock.settimeout(0.2)
    def call(self):
        try:
            more = self.sock.recv(65536)
            self.text += more
            return (401, "") if not more or self.text.endswith(b"0\r\n\r\n") or b"no longer has its caller" in self.text else (200, "a note")
        except TimeoutError: return 200, "a note"

class Post(Stream):  # a stream that begins with a POST
    def open(self, path, body, more={}):
        Web.__init__(self, {**AUTH, "Content-Type": "application/json", **more})
        self.conn.request("POST", path, json.dumps(body), self.headers)
        self.sock, self.text = self.conn.sock, b""
        self.sock.settimeout(0.2)

class Listen(Post):
    def __init__(self):
        self.open("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}},
            "notifications": {"toolsListChanged": True}}}, {"Accept": "application/json, text/event-stream",
            "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"})

class Running(Post):  # a call that takes long
    def __init__(self, who=token):
        self.open("/v1/tools/nap/call", {}, {"Accept": "text/event-stream", "Authorization": "Bearer " + who})

class Modern(Post):
    def __init__(self):
        self.open("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nap", "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}},
            {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "nap"})

class Legacy(Post, MCP):
    def __init__(self):
        MCP.__init__(self)
        self.open("/mcp", {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "nap", "arguments": {}}}, self.headers)

class Slow(Post):  # whose body comes when its caller has gone
    def __init__(self):
        self.sock, self.text = socket.create_connection(url.split(":"), timeout=20), b""
        self.sock.sendall(("POST /v1/tools/readFile/call HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
            "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n" % (url, token)).encode())
        self.sock.settimeout(0.2)
        self.first = True
    def call(self):
        if not gone: return 200, "a note"
        if self.first: self.sock.sendall(b'{"path":"notes.txt"}')
        self.first = False
        try: self.text += self.sock.recv(65536)
        except TimeoutError: pass
        return (401 if b" 401 " in self.text else 200), self.text.decode()

class NATS:
    def __init__(self):
        host, port = nats.split(":")
        self.sock = socket.create_connection((host, int(port)), timeout=20)
        self.file = self.sock.makefile("rb")
        self.file.readline()
        self.send('CONNECT {"verbose":false,"pedantic":false,"auth_token":"%s","headers":true}\r\nSUB _INBOX.x 1\r\nPING\r\n' % token)
        assert self.file.readline() == b"PONG\r\n"
    def send(self, text): self.sock.sendall(text.encode())
    def call(self):
        body = json.dumps({"path": "notes.txt"})
        try:
            self.send("PUB tools.file.read _INBOX.x %d\r\n%s\r\n" % (len(body), body))
            while line := self.file.readline():
                if line.startswith(b"MSG"):
                    text = self.file.read(int(line.split()[-1]) + 2).decode()
                    return (200 if "a note" in text else 401), text
                if line.startswith(b"PING"): self.send("PONG\r\n")
                if line.startswith(b"-ERR"): return 401, line.decode()
        except OSError as e: return 401, str(e)
        return 401, "closed"

gone = False
doors = {"http": Web(AUTH), "cookie": Cookie(), "mcp": MCP(), "stream": Stream(), "nats": NATS(), "a body that comes slowly": Slow(),
    "a subscription": Listen(), "a call that runs": Running(), "of MCP, modern": Modern(), "of MCP, legacy": Legacy()}
stays = Running("the-token-of-ben-0123456789")
for name, door in doors.items():
    status, text = door.call()
    assert status == 200 and "a note" in text, (name, status, text)
open("toolpost.yaml", "w").write(keep)
end, left = time.time() + 60, dict(doors)
while left and time.time() < end:
    for name, door in list(left.items()):
        status, text = door.call()
        if status in (401, 403, 404) and "a note" not in text:
            del left[name]
            gone = gone or name == "http"
    time.sleep(0.1)
for name in left: print(name, "still answers")
if stays.call()[0] != 200: print("the call of another caller has ended:", stays.text)
stays.sock.close()
