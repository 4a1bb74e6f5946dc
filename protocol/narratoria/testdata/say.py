"""Writes the lines of its input as they are, then exits as it is told.

input: lines (strings), bytes (base64, written after them), end (what ends the last line), stderr, exit
"""

import base64
import json
import sys

told = json.load(sys.stdin)["input"]
out = sys.stdout.buffer
lines = told.get("lines", [])
for number, line in enumerate(lines, 1):
    last = number == len(lines)
    out.write(line.encode() + (told.get("end", "\n") if last else "\n").encode())
out.write(base64.b64decode(told.get("bytes", "")))
out.flush()
sys.stderr.write(told.get("stderr", ""))
sys.stderr.flush()
sys.exit(told.get("exit", 0))
