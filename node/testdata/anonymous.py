"""Clients that show no credentials, a wrong one, or signs of a browser, at the doors of a server: each on a socket of its
own, with nothing but the standard library. It prints a line for each: what was tried, and what came of it."""

import base64
import json
import socket
import sys
from urllib.parse import urlsplit

HTTP, NATS, SERVICE, TOKEN = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]


def say(what, outcome):
    print(f"{what}: {outcome}")


def dial(url):
    """Goes by the host and the port of an address: a user and a password in it are dropped, as known clients do."""
    if url.startswith("unix:"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(30)
        s.connect(url[len("unix:"):])
        return s
    at = urlsplit(url)
    return socket.create_connection((at.hostname, at.port), timeout=30)


def http(url, method, path, headers=(), body=None, host="localhost"):
    s = dial(url)
    at = urlsplit(url)
    if at.hostname and host == "localhost":
        host = at.netloc.rpartition("@")[2]
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    data = b""
    if body is not None:
        data = json.dumps(body).encode()
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    s.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    got = b""
    while block := s.recv(65536):
        got += block
    head, _, text = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(text)


def sees(url, *headers, host="localhost"):
    status, answer = http(url, "GET", "/v1/tools", headers, host=host)
    return " ".join(t["name"] for t in answer["tools"] if t["source"] != "toolpost") if status == 200 else status


class Nats:
    """A client of NATS: the line protocol on a socket."""

    def __init__(self, connect):
        self.s = dial(NATS)
        self.buffer = b""
        info = self.line()
        assert info.startswith("INFO "), info
        self.error = ""
        if connect is not None:
            self.send("CONNECT " + json.dumps(connect))
        self.send("PING")
        while (line := self.line()) != "PONG":
            if line.startswith("-ERR") or line == "":
                self.error = line or "closed"
                return

    def send(self, line):
        self.s.sendall(line.encode() + b"\r\n")

    def more(self):
        try:
            block = self.s.recv(65536)
        except ConnectionError:
            return False
        self.buffer += block
        return bool(block)

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.more():
                return ""
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line.decode()

    def request(self, subject, body):
        body = json.dumps(body).encode()
        self.send("SUB inbox.1 1")
        self.s.sendall(f"PUB {subject} inbox.1 {len(body)}\r\n".encode() + body + b"\r\n")
        while not (line := self.line()).startswith("MSG "):
            if line.startswith("-ERR") or line == "":
                return line or "closed"
            if line == "PING":
                self.send("PONG")
        size = int(line.split()[-1])
        while len(self.buffer) < size + 2:
            self.more()
        reply, self.buffer = self.buffer[:size], self.buffer[size + 2:]
        return json.loads(reply)


def over_nats(connect, subject="tools.execute.reads"):
    client = Nats(connect)
    if client.error:
        return client.error
    reply = client.request(subject, {})
    return (reply["error"] or "ok") if "error" in reply else " ".join(t["name"] for t in reply["tools"] if t["source"] != "toolpost")


def service(url, *headers, tool="reads"):
    call = {"protocol_version": 1, "tool_name": tool, "kind": "python", "entry": "x:y", "payload": {}, "timeout_ms": 10000, "trace_id": "t"}
    status, answer = http(url, "POST", "/tools", headers, call)
    if status != 200:
        return status
    return "ok" if answer["ok"] else answer["error"]["reason_code"]


basic = "Authorization: Basic " + base64.b64encode(b"guest:wrong").decode()
empty = "Authorization: Basic " + base64.b64encode(b"guest:").decode()
wrong = {
    "a wrong token": ["Authorization: Bearer tp_guessed"], "an empty token": ["Authorization: Bearer "], "an empty header": ["Authorization:"],
    "another scheme": ["Authorization: Digest x"], "a wrong password": [basic], "an empty password": [empty],
    "two headers": ["Authorization: Bearer a", "Authorization: Bearer b"],
}
page = {
    "an origin": ["Origin: http://evil.example"], "no origin that it would tell": ["Origin: null"], "an empty origin": ["Origin:"],
    "another site": ["Sec-Fetch-Site: cross-site"], "the same site": ["Sec-Fetch-Site: same-origin"], "an address that was typed": ["Sec-Fetch-Site: none"],
    "an image": ["Sec-Fetch-Dest: image"], "a link": ["Referer: http://evil.example/"], "a cookie": ["Cookie: a=b"],
    "an old browser": ["User-Agent: Mozilla/5.0 (X11; Linux x86_64)"], "a proxy": ["X-Forwarded-For: 203.0.113.7"], "another proxy": ["Forwarded: for=203.0.113.7"],
}
node = ["user-agent: node", "accept-language: *", "sec-fetch-mode: cors"]

if HTTP.startswith("http"):
    port = urlsplit(HTTP).port
    secret = HTTP.replace("://", f"://toolpost:{TOKEN}@")
    say("http, nothing", sees(HTTP))
    say("http, a URL with the owner's token", sees(secret))
    say("http, fetch of Node", sees(HTTP, *node))
    say("http, the owner's token", sees(HTTP, "Authorization: Bearer " + TOKEN))
    say("http, a tool that it may use", http(HTTP, "POST", "/v1/tools/reads/call", body={})[0])
    say("http, a tool that it may not use", http(HTTP, "POST", "/v1/tools/writes/call", body={})[0])
    say("http, its own origin", sees(HTTP, f"Origin: http://127.0.0.1:{port}"))
    for what, headers in (wrong | page).items():
        say("http, " + what, sees(HTTP, *headers))
    say("http, another host", sees(HTTP, host=f"evil.example:{port}"))
if HTTP.startswith("unix"):
    say("http, nothing", sees(HTTP))
    say("http, the owner's token", sees(HTTP, "Authorization: Bearer " + TOKEN))
    for what, headers in wrong.items():
        say("http, " + what, sees(HTTP, *headers))
if SERVICE:
    base = SERVICE.removesuffix("/tools")
    say("namel3ss, nothing", service(base))
    say("namel3ss, a URL with the owner's token", service(base.replace("://", f"://toolpost:{TOKEN}@")))
    say("namel3ss, the owner's token", service(base, "Authorization: Bearer " + TOKEN, tool="writes"))
    say("namel3ss, a tool that it may not use", service(base, tool="writes"))
    for what, headers in (wrong | page).items():
        say("namel3ss, " + what, service(base, *headers))
if NATS:
    js = {"lang": "nats.js", "version": "2.29.1", "verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}
    say("nats, nothing", over_nats(js))
    say("nats, next to nothing", over_nats({}))
    say("nats, a tool that it may not use", over_nats(js, "tools.execute.writes"))
    say("nats, the catalogue", over_nats(js, "toolpost.catalog"))
    say("nats, the owner's token", over_nats(js | {"auth_token": TOKEN}, "tools.execute.writes"))
    for what, shown in {
        "a wrong token": {"auth_token": "guessed"}, "a user without a password": {"user": "guest"}, "an unknown user": {"user": "x", "pass": ""},
        "a wrong password": {"user": "guest", "pass": "wrong"}, "a wrong password alone": {"pass": "wrong"},
        "a JWT": {"jwt": "e30.e30.e30", "sig": "abc"}, "a key": {"nkey": "UABC"}, "a signature": {"sig": "abc"},
    }.items():
        say("nats, " + what, over_nats(js | shown))
    say("nats, no CONNECT", over_nats(None))
    # A page can send a form to any port: what is in it must not be taken for words of the protocol.
    s = dial(NATS)
    form = b"CONNECT {}\r\nPUB tools.execute.reads 2\r\n{}\r\nPING\r\n"
    s.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: %d\r\n\r\n%s" % (len(form), form))
    got = b""
    try:
        while block := s.recv(65536):
            got += block
    except ConnectionError:
        pass
    say("nats, a form of a page", "PONG" if b"PONG" in got else "closed")
