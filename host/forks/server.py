# What every fork server has in common: it goes on as the Python side of a protocol, which is put behind it. Of what
# a protocol's side may use these are the functions:
#
#     prepare(words)              make ready what serve_forks() needs, before anybody else's code is there
#     take_control()              the socket on descriptor 4
#     say(control, message)       one line of JSON to the runner
#     serve_forks(control, words, run)    fork a clean child for each call, for ever
#     enter_room()                in the child: go behind the walls
#
# The words are
#
#     room    descriptor 5 holds the walls of each call, see Room in confine.py
#     tmp     /tmp is ours alone, and each call must find it as it was
#
# Python 3.9 or later, standard library only.

import os
import sys

if sys.version_info < (3, 9):
    sys.exit("Python 3.9 or later is needed; {} is {}.{}".format(sys.executable, *sys.version_info))

os.close(3)

prctl = None
room = None  # where each call goes
room_descriptor = None  # that it holds until then; a call must not change it for the next
no_room = ""  # why there is none although there should be
NO_REPLY = 70  # exit status: there is no way to reply
NO_WALLS = 71  # exit status: a call's walls cannot be built
MOST_DESCRIPTORS = 8  # of one call


def prepare(words):
    """Make ready what serve_forks() needs from the standard library, while nobody can get in the way."""
    global no_room, prctl, room, room_descriptor
    import json  # noqa: F401
    import _socket  # noqa: F401  not socket: what a server has in memory every fork pays for

    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        pass  # a Python without ctypes
    if "room" in words:
        source, _, script = os.pread(5, os.fstat(5).st_size, 0).partition(b"\0")
        os.close(5)
        try:
            names = {"__name__": "<toolpost>"}
            exec(compile(source, "<toolpost>", "exec"), names)
            descriptor = os.dup(0)  # the number that the room's own will have
            os.close(descriptor)
            room = names["Room"](script)
            room_descriptor = descriptor if is_open(descriptor) else None
        except (ImportError, OSError, AttributeError) as err:
            no_room = f"this Python cannot build walls around a fork: {err}"


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def take_control():
    """The socket of the runner. What is written to standard output from now on is the server's own log."""
    import _socket

    control = _socket.socket(fileno=4)
    os.set_inheritable(4, False)
    move(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return control


def say(control, message):
    import json

    control.sendall(json.dumps(message).encode() + b"\n")


def serve_forks(control, words, run):
    """Fork a clean child for each call.

    The runner sends one byte with the descriptors of a call, and run gets them, in a child that holds nothing else
    of the server's. The server holds nothing of a call. It answers {"exit": status, or minus the signal} when the
    child has ended, and waits for the next, unless it adds "left": true, since the call has left something that
    outlives it; or {"stale": true}, and runs nothing, where that is found only now.

    The runner may send them before there is a call. Then the child waits for it, as far as run gets without knowing
    what it is, and ends by itself when it learns that there is none.

    Every page that is written to between two forks is copied, here and in the child. So this touches little.
    """
    import _socket

    rights = _socket.CMSG_SPACE(4 * MOST_DESCRIPTORS)
    server = os.getpid()
    before = left(words)
    dumpable(False)
    while True:
        go, sent, _, _ = control.recvmsg(1, rights)
        if not go:
            return
        descriptors = [d for _, _, data in sent for d in memoryview(data).cast("i")]
        if left(words) != before:
            say(control, {"stale": True})
            return
        child = os.fork()
        if child == 0:
            try:
                dumpable(True)
                die_with(server)
                control.close()
                os.setsid()
                run(descriptors)
            finally:
                os._exit(NO_REPLY)
        for descriptor in descriptors:
            os.close(descriptor)
        status = wait(child)
        control.sendall(b'{"exit":%d,"left":%s}\n' % (status, b"false" if left(words) == before else b"true"))


def left(words):
    """What is in our room that a call may have left there: files in a /tmp that is ours alone, and objects."""
    objects = room.left() if room else 0
    if "tmp" not in words:
        return objects, None, None
    try:
        used = os.statvfs("/tmp")
    except OSError:
        return objects, None, None  # there is none
    return objects, used.f_bfree, used.f_ffree


def dumpable(yes):
    """Keep this process's memory to itself, or let it be seen again."""
    if prctl:
        prctl(4, int(yes), 0, 0, 0)  # PR_SET_DUMPABLE


def die_with(parent):
    """Ask the kernel to end this process with its parent, which ends with the runner."""
    if prctl:
        prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != parent:
        os._exit(NO_REPLY)


def enter_room():
    """Go behind the walls, if there are any to be; without them nothing runs."""
    if room:
        try:
            room.enter()
        except OSError as err:
            os.write(2, f"{err}\n".encode())
            os._exit(NO_WALLS)
        if room_descriptor is not None:
            os.close(room_descriptor)


def wait(child):
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # a module told the kernel not to keep its children
        return 0


def move(descriptor, to):
    os.dup2(descriptor, to)
    os.close(descriptor)


def as_json(value):
    """What code returns that JSON has no word for. Their modules are there if their values are."""
    if isinstance(value, made_by("decimal", "Decimal")):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, made_by("datetime", "date", "time")):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, made_by("uuid", "UUID")):
        return str(value)
    if isinstance(value, (set, frozenset)):
        try:
            return sorted(value)
        except TypeError:
            return sorted(value, key=repr)
    raise TypeError(
        f"the result has a value of type {type(value).__name__}, which JSON has no word for; "
        "return text, numbers, booleans, None, lists and dictionaries"
    )


def made_by(module, *names):
    types = (getattr(sys.modules.get(module), name, None) for name in names)
    return tuple(t for t in types if isinstance(t, type))


