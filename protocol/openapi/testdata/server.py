"""An HTTP API for the tests: it tells what arrived, as the standard library of Python reads it, and misbehaves when asked.

It prints its port, and ends when its standard input does.
"""
import base64
import email
import email.policy
import http.server
import json
import sys
import threading
import time
import urllib.parse

KEYS = {"header": "k-header", "query": "k query&more", "cookie": "k-cookie", "bearer": "k-bearer", "basic": "user:pass:word"}


def parts_of(kind, body):
    """The parts of a multipart body, read by the email package."""
    message = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body, policy=email.policy.HTTP)
    assert message.is_multipart(), "not a multipart body"
    return [
        {
            "name": part.get_param("name", header="content-disposition"),
            "filename": part.get_filename(),
            "type": part.get_content_type(),
            "base64": base64.b64encode(part.get_payload(decode=True)).decode(),
        }
        for part in message.iter_parts()
    ]


def cookies_of(text):
    return dict(part.split("=", 1) for part in text.split("; ")) if text else {}


class API(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write for head and body: else each waits for an acknowledgement

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def authorised(self, how):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        given = self.headers.get("Authorization", "")
        shown = {
            "header": self.headers.get_all("X-Api-Key") == [KEYS["header"]],
            "query": query.get("api_key") == [KEYS["query"]],
            "cookie": cookies_of(self.headers.get("Cookie", "")).get("session") == KEYS["cookie"],
            "bearer": given == "Bearer " + KEYS["bearer"],
            "basic": given == "Basic " + base64.b64encode(KEYS["basic"].encode()).decode(),
            "none": given == "",
        }
        return all(shown[one] for one in how.split("+"))

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        split = urllib.parse.urlsplit(self.path)
        steps = [urllib.parse.unquote(step) for step in split.path.split("/")]
        query = urllib.parse.parse_qs(split.query, keep_blank_values=True)
        if steps[1] == "auth" and not self.authorised(steps[2]):
            return self.answer(401, {"message": "who are you?"})
        if steps[1] == "odd":
            return self.odd(steps[2], query)
        kind = self.headers.get("Content-Type", "")
        told = {
            "method": self.command,
            "target": self.path,
            "steps": steps,
            "query": query,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "cookies": cookies_of(self.headers.get("Cookie", "")),
            "base64": base64.b64encode(body).decode(),
        }
        if kind.startswith("multipart/"):
            told["parts"] = parts_of(kind, body)
        elif kind == "application/x-www-form-urlencoded":
            told["form"] = urllib.parse.parse_qs(body.decode(), keep_blank_values=True, strict_parsing=True)
        elif kind == "application/json":
            told["json"] = json.loads(body)
        self.answer(200, told)

    def odd(self, what, query):
        if what == "status":
            status = int(query["code"][0])
            said = {"why": "because of %d" % status} if status == 418 else {"title": "no", "detail": "because of %d" % status}
            self.answer(status, said, "application/problem+json", Retry_After="7")
        elif what == "page":
            self.answer(500, b"<html>" + b"x" * 1_000_000, "text/html")
        elif what == "huge":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(1 << 30))
            self.end_headers()
            for _ in range(1 << 14):
                self.wfile.write(b"x" * (1 << 16))
        elif what == "never":
            time.sleep(600)
        elif what == "drip":
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            while True:
                self.wfile.write(b".")
                self.wfile.flush()
                time.sleep(0.05)
        elif what == "out":
            self.answer(302, b"", Location=query["to"][0])
        elif what == "in":
            self.answer(302, b"", Location="/landed?by=redirect")
        elif what == "loop":
            self.answer(302, b"", Location="/odd/loop")
        elif what == "bytes":
            self.answer(200, bytes(range(256)) * int(query["blocks"][0]), "application/octet-stream")
        elif what == "text":
            self.answer(200, "grüß".encode(), "text/plain; charset=utf-8")
        elif what == "empty":
            self.send_response(204)
            self.end_headers()
        elif what == "liar":
            self.answer(200, b'{"a": 1, "a": 2}', "application/json")
        elif what == "packed":
            self.answer(200, b"\x1f\x8b", "application/json", Content_Encoding="gzip")
        elif what == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
        elif what == "garbage":
            self.wfile.write(b"\x00\x01 not HTTP at all\r\n\r\n")
            self.close_connection = True
        elif what == "next":
            self.answer(201, {"ok": True}, Link='</things?page=2>; rel="next"', Location="/things/7")

    do_GET = do_PUT = do_POST = do_DELETE = do_OPTIONS = do_HEAD = do_PATCH = serve

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # the client has had enough


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), API)
server.daemon_threads = True
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
