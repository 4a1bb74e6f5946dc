"""The tool of a root folder: it reads a request, as the contract has it, and does what payload.do says."""
import ctypes
import glob
import json
import os
import socket
import sys
import time


def tried(action):
    """What became of an attempt: the name of its error, or "done"."""
    try:
        action()
    except OSError as e:
        return type(e).__name__ if e.errno is None else os.strerror(e.errno)
    return "done"


def read(path):
    with open(path, "rb") as f:
        return f.read()


def change(path):
    """Opens a file to be changed, which makes it where there is none, and changes nothing."""
    flags = os.O_WRONLY if path.startswith("/proc/") else os.O_WRONLY | os.O_CREAT
    os.close(os.open(path, flags))


def connect(family, address):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect(address)


def unshare():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) != 0:  # CLONE_NEWUSER
        raise OSError(ctypes.get_errno(), "unshare")


def environments():
    """All variables of all processes that can be seen."""
    text = b""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            text += read(path)
        except OSError:
            pass
    return text


def look(p):
    return {
        "canary": p["canary"].encode() in environments() + repr(dict(os.environ)).encode(),
        "greeting": os.environ.get("GREETING"),
        "secret": os.environ.get("SECRET"),
        "parent": os.path.exists("/proc/%d" % p["pid"]),
        "kill": tried(lambda: os.kill(p["pid"], 0)),
        "processes": len(glob.glob("/proc/[0-9]*")),
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,
        "network": tried(lambda: connect(socket.AF_INET, ("127.0.0.1", p["port"]))),
        "unix": tried(lambda: connect(socket.AF_UNIX, p["socket"])),
        "unshare": tried(unshare),
        "changed": [path for path in p["change"] if tried(lambda: change(path)) == "done"],
        "readable": [path for path in p["read"] if tried(lambda: read(path)) == "done" and read(path)],
        "folder": os.getcwd(),
    }


def hog(p):
    held = []
    for n in range(64):  # enough, and no harm where nothing stops it
        held.append(b"x" * (4 << 20))


def bomb(p):
    for n in range(100):
        if os.fork() == 0:
            os.setsid()
            time.sleep(3600)


def fill(p):
    with open("/tmp/file", "wb") as f:
        for n in range(80):
            f.write(b"x" * (1 << 20))


def hang(p):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        time.sleep(3600)
    print("hanging", file=sys.stderr, flush=True)
    time.sleep(3600)


def greet(p):
    return "hello " + p["name"]


request = json.load(sys.stdin)
payload = request["payload"]
result = globals()[payload["do"]](payload)
print(json.dumps({"ok": True, "protocol_version": 1, "result": result}))
