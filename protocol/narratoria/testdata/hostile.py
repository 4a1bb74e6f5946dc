"""Tools that mean harm, one for each word on the command line."""

import os
import signal
import socket
import sys
import time

DONE = b'{"version":"0","type":"done","ok":true,"summary":"fine"}\n'


def write(data):
    while data:
        data = data[os.write(1, data):]


def sleep():
    while True:
        time.sleep(60)


def flood_events():
    line = b'{"version":"0","type":"log","level":"info","message":"' + b"x" * 8000 + b'"}\n'
    for _ in range((1 << 30) // len(line) + 1):
        write(line)
    write(DONE)


def flood_garbage():
    chunk = b"\xd0" + os.urandom((1 << 20) - 1)  # a blank line first would be none
    for _ in range(1 << 10):
        write(chunk)


def endless_line():
    write(b'{"version":"0","type":"log","level":"info","message":"')
    for _ in range(1 << 10):
        write(b"x" * (1 << 20))


def invalid_utf8():
    write(b'{"version":"0","type":"log","level":"info","message":"\xff\xfe"}\n')
    sleep()


def fork_bomb():
    for _ in range(50):
        if os.fork() == 0:
            os.setsid()
            os.fork()
            sleep()
    write(b'{"version":"0","type":"log","level":"info","message":"forked"}\n')
    sleep()


def fork_bomb_then_done():
    for _ in range(50):
        if os.fork() == 0:
            os.setsid()
            sleep()
    write(DONE)


def ignores_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(b'{"version":"0","type":"log","level":"info","message":"deaf"}\n')
    sleep()


def stays_after_done():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(DONE)
    sleep()


def never_reads_stdin():
    write(DONE)


def never_reads_stdin_and_stays():
    write(b'{"version":"0","type":"log","level":"info","message":"not reading"}\n')
    sleep()


def closes_stdout():
    os.close(1)
    sleep()


def writes_after_done():
    write(DONE)
    write(b'{"version":"0","type":"state_patch","patch":{"late":true}}\n' * 3)
    write(b"not even JSON\n")
    write(DONE)


def floods_after_done():
    write(DONE)
    flood_garbage()


def crashes_mid_line():
    sys.stderr.write("about to fall over\n")
    sys.stderr.flush()
    write(b'{"version":"0","type":"log","level":"info","message":"half a')
    os.abort()


def floods_stderr():
    for _ in range(1 << 10):
        os.write(2, b"noise " * 10000 + b"\n")
    write(DONE)


def mutters_and_stays():
    os.write(2, b"mutter\n")
    sleep()


def talks_on_both():
    for _ in range(2000):
        write(b'{"version":"0","type":"log","level":"info","message":"out"}\n')
        os.write(2, b"err\n")
    write(DONE)


def million_lines():
    for _ in range(1000):
        write(b"\n" * 1000)


def gives_stdout_away():
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(sys.argv[2])
        socket.send_fds(other, [b"hold this"], [1])
        write(DONE)


globals()[sys.argv[1]]()
