"""A tool for the tests of package process: the first argument says how it behaves.

Whatever others must know is printed, one line each, flushed at once. A line that is a number is the pid
of a process that this one started.
"""

import json
import os
import platform
import signal
import sys
import threading
import time


def say(what):
    os.write(1, f"{what}\n".encode())


def fork(body):
    """Run body in a child, which then exits."""
    pid = os.fork()
    if pid == 0:
        body()
        os._exit(0)
    return pid


def sleep():
    time.sleep(1000)


def setsid_sleep():
    os.setsid()
    sleep()


def daemon(environment, leave=os.setsid):
    """Fork twice, leave the session, and become another program, as a daemon does."""
    def middle():
        leave()
        say(fork(lambda: os.execve("/bin/sleep", ["sleep", "1000"], environment)))
    os.waitpid(fork(middle), 0)


def report():
    descriptors = []
    for fd in range(256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        descriptors.append(fd)
    say(json.dumps({
        "env": dict(os.environ), "fds": descriptors, "pid": os.getpid(), "sid": os.getsid(0),
        "pgid": os.getpgid(0), "cwd": os.getcwd(), "argv": sys.argv[2:],
    }))


def until_eof():
    """Exit when stdin is closed."""
    say("ready")
    sys.stdin.buffer.read()
    sys.exit(7)


def until_term():
    """Exit on SIGTERM alone."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(8))
    say("ready")
    sleep()


def stubborn():
    """Ignore everything that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    say("ready")
    while True:
        sleep()


def leave():
    """Exit while processes that hold stdout and stderr go on, in the session and out of it."""
    say(fork(sleep))
    say(fork(setsid_sleep))
    sys.exit(3)


def daemons():
    """Leave a daemon with our environment and one with none, and go on."""
    daemon(dict(os.environ))
    daemon({})
    say("ready")
    sleep()


def bomb():
    """Start 50 children in sessions of their own, each of which goes on starting more."""
    def child():
        os.setsid()
        for _ in range(8):
            fork(setsid_sleep)
            time.sleep(0.005)
        sleep()
    for i in range(50):
        fork(child)
        if i == 10:
            say("ready")
    sleep()


def hop():
    """Never stay one process for long: fork, go on in the child, in another session."""
    say("ready")
    if os.fork():
        os._exit(0)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        os.setsid()
        if os.fork():
            os._exit(0)


def headless():
    """Leave a process whose first thread is gone while another goes on: /proc shows it as a zombie."""
    def body():
        import ctypes
        os.setsid()
        threading.Thread(target=sleep).start()
        exit_number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
        say(os.getpid())
        ctypes.CDLL(None).syscall(exit_number, 0)
    fork(body)
    sleep()


def workshop():
    """For each line on stdin start a sleeper, a daemon, and an orphan in the session with no environment."""
    say("ready")
    for _ in sys.stdin:
        say(fork(sleep))
        daemon(dict(os.environ))
        daemon({}, leave=lambda: None)
        say("done")
    sys.exit(0)


def namespace():
    """Start two sleepers in a pid namespace, the first of which is its init, and wait for neither."""
    import ctypes
    if ctypes.CDLL(None, use_errno=True).unshare(0x30000000):  # CLONE_NEWUSER, CLONE_NEWPID
        sys.exit(os.strerror(ctypes.get_errno()))
    say(fork(sleep))
    say(fork(sleep))
    sys.stdin.buffer.read()


def zombies():
    """Leave orphans that die by themselves at once, and go on."""
    for _ in range(5):
        os.waitpid(fork(lambda: fork(lambda: os.setsid())), 0)
    say("ready")
    sys.stdin.buffer.read()


def flood():
    """Write 64 MiB of lines to stderr."""
    block = b"x" * 63 + b"\n"
    for _ in range(64 * 16):
        os.write(2, block * 1024)


def complain():
    """Write the second argument, with its escapes, to stderr."""
    os.write(2, sys.argv[2].encode().decode("unicode_escape").encode("latin-1"))
    sys.exit(1)


def copy():
    """Copy stdin to stdout."""
    while data := sys.stdin.buffer.read1(1 << 16):
        os.write(1, data)


globals()[sys.argv[1].replace("-", "_")]()
