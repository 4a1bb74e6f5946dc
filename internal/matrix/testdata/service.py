"""A namel3ss tool service, written from the contract: POST a call, get {ok, result} or {ok, error}.

It listens on a free port and prints its address as its first line.
"""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(request):
    name, payload = request["tool_name"], request["payload"]
    if name == "echo":
        return {"ok": True, "result": payload}
    if name == "fail":
        return {"ok": False, "error": {"type": "NoTorch", "message": payload["message"]}}
    if name == "large":
        return {"ok": True, "result": {"text": "x" * (1 << 20)}}
    if name == "hang":
        time.sleep(3)  # far longer than the caller waits, and not so long that the end of the test waits for it
    if name == "wait":
        time.sleep(60)  # in a thread that ends with the process
    return {"ok": False, "error": {"type": "LookupError", "message": "no tool " + name}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(answer(request)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # a caller that gave up has closed its connection


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print("http://127.0.0.1:%d" % server.server_port, flush=True)
    server.serve_forever()
