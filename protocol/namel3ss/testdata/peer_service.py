"""A tool service, written from the contract alone: the POST endpoint and the capability handshake.

It prints its port. The name of the tool says how it behaves.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FIELDS = {
    "protocol_version": int, "tool_name": str, "kind": str, "entry": str,
    "payload": dict, "timeout_ms": int, "trace_id": str, "project": dict,
}
HANDSHAKES = {"n": 0}


def greeter(request):
    for name, kind in FIELDS.items():
        if not isinstance(request.get(name), kind):
            return {"ok": False, "error": {"type": "TypeError", "message": f"{name} is not {kind.__name__}"}}
    if set(request) != set(FIELDS) or not set(request["project"]) <= {"app_root", "flow"}:
        return {"ok": False, "error": {"type": "TypeError", "message": f"fields {sorted(request)}"}}
    if "name" not in request["payload"]:
        return {"ok": False, "error": {"type": "ValueError", "message": "Missing input"}}
    return {"ok": True, "result": {"message": "Hello " + request["payload"]["name"], "request": request}}


def handshake(request):
    HANDSHAKES["n"] += 1
    if request["protocol_version"] != 1 or request["runner"] != "service":
        return {"ok": False, "error": {"type": "ValueError", "message": "not a handshake"}}
    answer = {"ok": True, "enforcement": "enforced", "supported_guarantees": dict(request["required_guarantees"]), "service_version": "1.0.0"}
    name = request["tool_name"]
    if name == "declares":
        answer["enforcement"] = "declared"
    elif name == "half":
        answer["supported_guarantees"]["no_network"] = False
    elif name == "tight":
        answer["supported_guarantees"]["secrets_allowed"] = ["A"]
    elif name == "silent":
        del answer["supported_guarantees"]
    elif name == "wordy":
        answer["supported_guarantees"] = {k: "true" for k in request["required_guarantees"]}
    elif name == "refuses":
        answer = {"ok": False, "error": {"type": "LookupError", "message": "no such tool here"}}
    return answer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, length=None, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = request["tool_name"]
        if self.path == "/capabilities/handshake":
            if name == "old":
                return self.answer(404, b"no handshakes here")
            return self.answer(200, json.dumps(handshake(request)).encode())
        if name == "broken":
            return self.answer(500, b"<h1>the database\n is down</h1>" + b"x" * 100_000)
        if name == "halfway":
            self.answer(200, b'{"ok": true, "resu', length=1000)
            self.close_connection = True
            return None
        if name == "never":
            time.sleep(120)
        if name == "garbage":
            return self.answer(200, b"it worked!", kind="text/plain")
        if name == "list":
            return self.answer(200, b"[1]")
        if name == "moved":
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if name == "huge":
            return self.answer(200, b'{"ok":true,"result":"' + b"x" * (9 << 20) + b'"}')
        if name == "secret":
            return self.answer(403, ("not with " + self.headers.get("Authorization", "")).encode())
        if name == "handshakes":
            return self.answer(200, json.dumps({"ok": True, "result": HANDSHAKES["n"]}).encode())
        return self.answer(200, json.dumps(greeter(request), ensure_ascii=False).encode())


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *args):
        pass


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
