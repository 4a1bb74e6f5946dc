"""Makes attempts: each argument is the code of one, which calls escaped() when it has succeeded."""

import ctypes
import errno
import os
import signal
import socket
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *args):
    """Make a system call."""
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def escaped():
    os.write(1, f"ESCAPED {attempt}\n".encode())


def new(path):
    """Make a file."""
    open(path, "x").close()
    return path


def marked(path):
    """Look whether a file has a set-id bit."""
    if os.stat(path).st_mode & 0o6000:
        escaped()


for attempt, code in enumerate(sys.argv[1:]):
    try:
        exec(compile(code, "<attempt>", "exec"), dict(globals()))
    except BaseException as err:
        os.write(2, f"{attempt}: {type(err).__name__}: {err}\n".encode())

os.write(1, b"DONE\n")
