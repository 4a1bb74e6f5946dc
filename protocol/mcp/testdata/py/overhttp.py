"""The transport of server.py over HTTP, of either era. It prints the port that it listens on."""
import json, sys, threading, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSIONS = {}  # legacy: the id, and where unasked messages go


def serve(server):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def plain(self, status, body=b"", **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def stream(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            lock = threading.Lock()

            def raw(line):
                with lock:
                    self.wfile.write(b": keep\n\ndata: " + line.rstrip(b"\n") + b"\n\n")
                    self.wfile.flush()

            return server.Wire(lambda m: raw(json.dumps(m).encode()), raw)

        def do_POST(self):
            m = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            method, params = m.get("method"), m.get("params") or {}
            if server.MODERN:
                same = self.headers.get("MCP-Protocol-Version") == (params.get("_meta") or {}).get(server.META + "protocolVersion")
                if not same or self.headers.get("Mcp-Method") != method:
                    return self.plain(400, json.dumps({"jsonrpc": "2.0", "id": m.get("id"), "error": {
                        "code": -32020, "message": "headers differ"}}).encode(), Content_Type="application/json")
            elif method == "initialize":
                sid = uuid.uuid4().hex
                SESSIONS[sid] = None
                result = server.handle(None, m["id"], method, params)
                return self.plain(200, json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}).encode(),
                                  Content_Type="application/json", Mcp_Session_Id=sid)
            elif self.headers.get("Mcp-Session-Id") not in SESSIONS:
                # Without one it is somebody who does not know us yet; with one it is a session that is over.
                return self.plain(404 if self.headers.get("Mcp-Session-Id") else 400, b"no session")
            if params.get("name") == "forget":
                SESSIONS.clear()
            if method is None or "id" not in m:
                server.take(None, m)
                return self.plain(202)
            if method in ("tools/list", "server/discover"):
                box = []
                server.take(server.Wire(box.append), m)
                return self.plain(200, json.dumps(box[0]).encode(), Content_Type="application/json")
            wire = self.stream()
            if params.get("name") == "change" and not server.MODERN:
                own = SESSIONS.get(self.headers.get("Mcp-Session-Id"))
                if own is not None:  # unasked, on the stream that is for that
                    server.changed(own)
            try:
                server.take(wire, m)
                if method == "subscriptions/listen":
                    threading.Event().wait()
            except BrokenPipeError:
                pass
            if params.get("name") == "sleep":
                try:
                    self.wfile.write(b": gone?\n\n")
                except OSError:
                    server.SEEN.append("stream closed")

        def do_GET(self):
            sid = self.headers.get("Mcp-Session-Id")
            if server.MODERN or sid not in SESSIONS:
                return self.plain(405)
            SESSIONS[sid] = self.stream()
            self.wfile.write(b": open\n\n")
            self.wfile.flush()
            threading.Event().wait()

        def do_DELETE(self):
            SESSIONS.pop(self.headers.get("Mcp-Session-Id"), None)
            self.plain(200)

    front = ThreadingHTTPServer(("127.0.0.1", int((sys.argv[3:] or ["0"])[0])), Handler)
    front.daemon_threads = True
    print(front.server_address[1], flush=True)
    front.serve_forever()
