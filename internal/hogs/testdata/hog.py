"""A tool that takes as much as it can get of what its first argument says.

The second argument is a mark by which its processes are known; the third is a folder that it may write to.
"""

import json
import os
import sys
import time


def fork():
    while True:
        os.fork()


def bomb():
    while True:
        try:
            os.fork()
        except OSError:
            pass  # it does not give up


def memory():
    blocks = []
    while True:
        blocks.append(bytearray(1 << 20))


def herd():
    for _ in range(4):
        if os.fork() == 0:
            memory()
    _, status = os.wait()
    sys.exit("one of the herd ended with %d" % status)


def fill(path):
    written = 0
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                written += file.write(bytes(1 << 20))
        except OSError as e:
            sys.exit("%s after %d bytes" % (e.strerror, written))


def tmp():
    fill("/tmp/big")


def disk():
    fill(os.path.join(sys.argv[3], "big"))


def files():
    taken = []
    try:
        while True:
            taken.append(open("/dev/null"))
    except OSError as e:
        sys.exit("%s after number %d" % (e.strerror, taken[-1].fileno()))


def spin():
    while True:
        pass


def flood():
    event = json.dumps({"version": "0", "type": "log", "level": "info", "message": "more " * 200}) + "\n"
    while True:
        sys.stdout.write(event)


def line():
    while True:
        sys.stdout.write("never ends " * 1000)


def stay():
    for _ in range(2):  # in sessions of their own
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
    time.sleep(1000)


globals()[sys.argv[1]]()
