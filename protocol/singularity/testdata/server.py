"""A server of the contract on a socket, with nothing but the standard library. It answers each request with what the request's
argument "answer" says, and writes ID in it as the id of the call. Usage: server.py HOST PORT. It says "ready" when it is."""

import json
import socket
import sys

s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
s.settimeout(None)
lines = s.makefile("rb")
lines.readline()
s.sendall(b'CONNECT {"verbose":false}\r\nSUB tools.shell.exec 1\r\nSUB tools.file.read 2\r\nPING\r\n')
while line := lines.readline():
    word = line.split()
    if word[0] == b"PONG":
        print("ready", flush=True)
    if word[0] == b"PING":
        s.sendall(b"PONG\r\n")
    if word[0] != b"MSG":
        continue
    body = json.loads(lines.read(int(word[-1]) + 2))
    call = ""
    if "function" in body:
        call, body = body["tool_call_id"], json.loads(body["function"]["arguments"])
    reply = body["answer"].replace("ID", call).encode()
    s.sendall(b"PUB %s %d\r\n%s\r\n" % (word[3], len(reply), reply))
