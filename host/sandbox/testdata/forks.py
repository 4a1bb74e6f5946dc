"""A server that forks a confined child for each call, as sandbox.ForkPython makes it.

Arguments: the file of ForkPython, the script, and the calls, each the code of a child. A child that has done
its work says so; one that is refused says why.
"""

import ctypes
import importlib.util
import os
import socket  # noqa: F401  for the calls
import subprocess  # noqa: F401
import sys
import time

spec = importlib.util.spec_from_file_location("confine", sys.argv[1])
confine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(confine)
with open(sys.argv[2], "rb") as f:
    room = confine.Room(f.read())

libc = ctypes.CDLL(None, use_errno=True)
before = room.left()


def fail():
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


for number, code in enumerate(sys.argv[3:]):
    if os.fork() == 0:
        status = 0
        try:
            room.enter()
            os.write(1, f"{number} entered\n".encode())
            exec(code, globals())
            os.write(1, f"{number} done\n".encode())
        except BaseException as err:
            os.write(1, f"{number} {type(err).__name__} {err}\n".encode())
            status = 1
        os._exit(status)
    os.wait()


os.write(1, f"{before} objects before, {room.left()} after\n".encode())


def forks(confined):
    began = time.perf_counter()
    for _ in range(50):
        if os.fork() == 0:
            if confined:
                room.enter()
            os._exit(0)
        os.wait()
    return (time.perf_counter() - began) / 50 * 1e6


os.write(1, f"a fork takes {forks(False):.0f} us, a confined one {forks(True):.0f} us\n".encode())
