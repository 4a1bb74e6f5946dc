"""A client of tools over NATS, written from the contract: it asks, takes every path that the answer has, and uses it in the next
requests as it is. Roots may have files of the same names, so it also looks whether what it gets is of the right one.

Usage: paths.py URL TOKEN, and on stdin a line for each request: {"subject", "request", "root"}; root is a word that every file of
the right root has in it, or empty where any will do. It prints a line for each path that could not be used, and how many could."""

import json
import socket
import sys
from urllib.parse import urlsplit


class Nats:
    def __init__(self, url, token):
        at = urlsplit(url)
        self.s = socket.create_connection((at.hostname, at.port), timeout=60)
        self.buffer = b""
        self.line()
        self.send("CONNECT " + json.dumps({"verbose": False, "pedantic": False, "auth_token": token}))
        self.send("SUB inbox 1")

    def send(self, line):
        self.s.sendall(line.encode() + b"\r\n")

    def more(self):
        block = self.s.recv(1 << 20)
        if not block:
            sys.exit("the server closed the connection")
        self.buffer += block

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, _, self.buffer = self.buffer.partition(b"\r\n")
        return line.decode()

    def ask(self, subject, request):
        body = json.dumps(request).encode()
        self.s.sendall(f"PUB {subject} inbox {len(body)}\r\n".encode() + body + b"\r\n")
        while not (line := self.line()).startswith("MSG "):
            if line.startswith("-ERR"):
                sys.exit(line)
            if line == "PING":
                self.send("PONG")
        size = int(line.split()[-1])
        while len(self.buffer) < size + 2:
            self.more()
        reply, self.buffer = self.buffer[:size], self.buffer[size + 2:]
        return json.loads(reply)


def paths(answer):
    """Everything in an answer that is a path: what is called so, the plain texts of a list, and the nodes of a graph."""
    if isinstance(answer, dict):
        if "path" in answer:
            yield answer["path"]
        for node in answer.get("nodes", []):
            if not node.get("external"):
                yield node["id"]
        for value in answer.values():
            yield from paths(value)
    if isinstance(answer, list):
        for one in answer:
            if isinstance(one, str):
                yield one
            else:
                yield from paths(one)


def command(line, path, kind):
    """Uses a path as an argument and as the folder where a command starts."""
    requests = [{"command": "ls", "args": ["-d", path]}]
    if kind == "directory":
        requests.append({"command": "ls", "cwd": path})
    elif "/" in path[1:]:
        requests.append({"command": "ls", "cwd": path.rpartition("/")[0]})
    for request in requests:
        seen = nats.ask("tools.shell.exec", request)
        if seen["error"] or seen["data"]["exit_code"] != 0:
            print(line.strip(), "gave", path, "which a command cannot use:", request, seen)
    if kind == "file":
        shown = nats.ask("tools.shell.exec", {"command": "cat", "args": [path]})
        content = nats.ask("tools.file.read", {"path": path})["data"]
        if shown["error"] or shown["data"]["stdout"] != content:
            print(line.strip(), "gave", path, "of which cat says:", shown)


nats = Nats(sys.argv[1], sys.argv[2])
used = 0
commanded = set()
for line in sys.stdin:
    test = json.loads(line)
    answer = nats.ask(test["subject"], test["request"])
    found = sorted(set(paths(answer["data"])) - {"external"})
    if answer["error"] or not found:
        print(line.strip(), "gave no path:", answer["error"])
    for path in found:
        stat = nats.ask("tools.execute.statFile", {"path": path})
        if stat["error"]:
            print(line.strip(), "gave", path, "which cannot be used:", stat["error"])
            continue
        used += 1
        if stat["data"]["path"] != path:
            print(line.strip(), "gave", path, "which statFile calls", stat["data"]["path"])
        if path not in commanded:
            commanded.add(path)
            command(line, path, stat["data"]["type"])
        if stat["data"]["type"] != "file":
            below = nats.ask("tools.file.list", {"path": path, "recursive": True})
            if below["error"]:
                print(line.strip(), "gave", path, "which cannot be listed:", below["error"])
            continue
        content = nats.ask("tools.file.read", {"path": path})["data"]
        lines = nats.ask("tools.code.grep", {"pattern": "root", "path": path})
        if test["root"] not in content:
            print(line.strip(), "gave", path, "which is another file:", content)
        if lines["error"] or not lines["data"] or lines["data"][0]["path"] != path:
            print(line.strip(), "gave", path, "in which grep finds:", lines)
        edit = {"path": path, "old": "root", "new": "root"}
        if edited := nats.ask("tools.execute.editFile", edit)["error"]:
            print(line.strip(), "gave", path, "which cannot be edited:", edited)
print(f"{used} paths were used")
