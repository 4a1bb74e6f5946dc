"""A server that speaks Toolpost's HTTP, written from the description of its routes alone.

usage: server.py TOKEN
Prints its port. It ends when its standard input does.
"""
import http.server
import json
import sys
import threading

token = sys.argv[1]
cancelled = {}  # id -> event


class Door(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, doc):
        body = json.dumps(doc).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def problem(self, status, code, message):
        self.reply(status, {"ok": False, "error": {"code": code, "message": message}})

    def known(self):
        if self.headers["Authorization"] == "Bearer " + token:
            return True
        self.problem(401, "access_denied", "who are you?")
        return False

    def do_GET(self):
        if self.known():
            echo = {"name": "echo", "source": "py", "protocol": "py", "tier": 0, "available": True, "future": [1]}
            self.reply(200, {"tools": [echo], "future": {}})

    def do_DELETE(self):
        if not self.known():
            return
        event = cancelled.get(self.path.rsplit("/", 1)[1])
        if event is None:
            self.problem(404, "not_found", "no such call")
            return
        event.set()
        self.send_response(204)
        self.end_headers()

    def do_POST(self):
        args = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.known():
            return
        name = self.path.split("/")[3]
        if name not in ("echo", "hang"):
            self.problem(404, "not_found", "no such tool")
            return
        call = self.headers["Toolpost-Call"]
        cancelled[call] = threading.Event()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.message("log", {"level": "info", "message": "here"}, 1)
        if name == "hang":
            cancelled[call].wait(30)
            self.last("no_outcome", {"ok": False, "error": {"code": "cancelled", "message": "stopped"}})
        else:
            self.last("result", {"ok": True, "output": json.loads(args), "call": call})

    def message(self, kind, data, seq):
        doc = {"seq": seq, "time": "2026-01-02T03:04:05.5Z", "kind": kind, "data": data}
        # over several lines, as the format allows
        lines = "\r\n".join("data: " + line for line in json.dumps(doc, indent=1).split("\n"))
        self.wfile.write(f": hello\r\n\r\nid: {seq}\r\nevent: {kind}\r\n{lines}\r\n\r\n".encode())

    def last(self, event, doc):
        try:
            self.wfile.write(f"event: {event}\ndata: {json.dumps(doc)}\n\n".encode())
        except OSError:
            pass  # the caller has gone


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
