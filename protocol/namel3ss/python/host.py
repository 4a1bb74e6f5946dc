# The Python side of the namel3ss runner: it calls module:function and answers for it. The runner hands
# this file to the interpreter of an app in memory, as descriptor 3, and runs it under the name of
# <toolpost> with these arguments, where PATHS are the app's folders, first the nearest, and FIELDS the names of
# the tool's arguments as JSON, null where nobody declares them:
#
#     fresh PATHS FIELDS                 one call: the request on descriptor 0, the reply on 1; what the tool
#                                        itself writes to 1 and 2 goes to 4 and 5
#     warm PATHS FIELDS ENTRY WORD...    a fork server on descriptor 4, see serve(); the words are
#                                            room, tmp    see forks/server.py, which stands in front of this file
#                                            late         each call imports the tool for itself
#
# Python 3.9 or later, standard library only.

import os
import sys

# The app comes in front of the standard library, as PYTHONPATH puts it there where there is an environment.
# What this file needs must come from the latter, whatever files the app has.
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # the current folder, which is the app's
app_paths = [os.path.abspath(p) for p in sys.argv[2].split(os.pathsep)]
sys.path = [p for p in sys.path if p not in app_paths]
full_path = app_paths + sys.path

import atexit  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402

VERSION = 1
ROOT = app_paths[0]
FIELDS = json.loads(sys.argv[3])


def load(entry):
    """Import module:function."""
    module_name, _, name = entry.partition(":")
    module = importlib.import_module(module_name)
    if not hasattr(module, name):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        hint = "it has " + ", ".join(sorted(known)[:10]) if known else "it has no functions"
        raise AttributeError(f"module {module_name} has no function {name}; {hint}")
    function = getattr(module, name)
    if not callable(function):
        raise TypeError(f"{entry} is not a function but of type {type(function).__name__}")
    return function


def call(function, payload, takes=None):
    args, named = (takes or taker(function))(payload)
    result = function(*args, **named)
    if not hasattr(type(result), "__await__"):
        return result
    import asyncio

    async def awaited():
        return await result

    return asyncio.run(awaited())


def taker(function):
    """How a function takes a payload: whole, as the protocol has it, or its fields by their names.

    Whole goes to a function that one positional argument is enough for, where the parameter that gets it is called
    payload or is not the name of a field. Which it is depends on the function and on what is declared, never on
    the payload: a caller must not be able to choose.
    """
    found = code_of(function)
    if not found:
        return whole_payload  # written in C, or something else that does not tell
    code, skip, positional, required = found
    only_positional = code.co_varnames[skip:max(skip, code.co_posonlyargcount)]
    if not positional:
        whole = bool(code.co_flags & 0x04)  # *args
    elif FIELDS is None:
        whole = positional[0] == "payload" or len(positional) == 1
    else:
        whole = positional[0] == "payload" or positional[0] not in {plain(f) for f in FIELDS} | set(FIELDS)
    if whole and not required - set(positional[:1]):
        return whole_payload
    by_name = set(code.co_varnames[skip:code.co_argcount + code.co_kwonlyargcount])
    return lambda payload: by_names(code, by_name, only_positional, payload)


def whole_payload(payload):
    return (payload,), {}


def by_names(code, by_name, only_positional, payload):
    named = {plain(n) if n not in by_name and plain(n) in by_name else n: value for n, value in payload.items()}
    if len(named) < len(payload):
        raise TypeError(f"two of the arguments {', '.join(payload)} are the same to {code.co_name}()")
    args = []
    for name in only_positional:
        if name not in named:
            break  # it has a default, or Python says that it is missing
        args.append(named.pop(name))
    return args, named


def code_of(function):
    """The code of a function, how many parameters it has before those of the caller, the names of the caller's
    positional ones, and of those without a default. This is inspect.signature() for what tools are made of: to
    import inspect would hide modules of the app that are called like what it needs."""
    skip, given = 0, set()
    while hasattr(function, "__wrapped__") or isinstance(function, made_by("functools", "partial")):
        if hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            skip, given, function = skip + len(function.args), given | set(function.keywords), function.func
    if isinstance(function, type):
        function, skip = function.__init__, skip + 1
    elif hasattr(function, "__func__"):
        function, skip = function.__func__, skip + 1
    elif not hasattr(function, "__code__"):
        function, skip = type(function).__call__, skip + 1
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    positional = code.co_varnames[skip:code.co_argcount]
    keywords = code.co_varnames[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
    defaults = len(function.__defaults__ or ())
    required = set(positional[:max(0, len(positional) - defaults)])
    required |= set(keywords) - set(function.__kwdefaults__ or ())
    return code, skip, positional, required - given


def plain(field):
    """The name of a field as a parameter can have it: the language allows several words."""
    return "".join(c if c.isalnum() else "_" for c in field)


def answer(document, function=None, takes=None):
    """Run one call and give its reply as bytes. Whatever the tool raises becomes a reply too."""
    request = {}
    try:
        request = decode(document)
        result = call(function or load(request["entry"]), request["payload"], takes)
        return encode({"ok": True, "protocol_version": VERSION, "result": result})
    except BaseException as err:
        report(err)
        reply = {"ok": False, "protocol_version": VERSION, "error": describe(err)}
        check = blocked(err, request.get("capability_context") or {})
        if check:
            reply["error"]["reason_code"] = check["reason"]
            reply["capability_checks"] = [check]
        return encode(reply)


# Made once, so that a call touches less memory.
READER = json.JSONDecoder()
WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=as_json)  # noqa: F821


def decode(document):
    return READER.scan_once(document.decode(), 0)[0]  # one document, which the runner wrote


def encode(reply):
    return WRITER.encode(reply).encode()


def blocked(err, context):
    """What a failure says of a guarantee that nobody watches: no file to read and no variable, so no attempt; and
    programs that a fork tries to start. The runner takes it where the walls themselves saw nothing."""
    guarantees = context.get("guarantees", {})
    for _ in range(10):
        capability = None
        if isinstance(err, PermissionError) and err.filename is None:
            capability = "subprocess"
        elif isinstance(err, (FileNotFoundError, PermissionError)) and elsewhere(err.filename):
            capability = "filesystem_read"
        elif isinstance(err, KeyError) and raised_in(err) is type(os.environ).__getitem__.__code__:
            capability = "env_read"
        if capability and guarantees.get("no_" + capability):
            source = context.get("sources", {}).get("no_" + capability, "engine")
            return {"capability": capability, "allowed": False, "guarantee_source": source, "reason": "guarantee_blocked"}
        err = err.__cause__ or err.__context__
        if err is None:
            return None
    return None


def elsewhere(path):
    """Whether a file is not the app's own, which every tool may read."""
    try:
        path = os.path.abspath(os.fsdecode(path))
    except TypeError:
        return False  # it is about no file
    return not any(path == p or path.startswith(p + os.sep) for p in app_paths)


def raised_in(err):
    frames = err.__traceback__
    while frames and frames.tb_next:
        frames = frames.tb_next
    return frames and frames.tb_frame.f_code


def describe(err):
    try:
        message = str(err) or type(err).__name__
    except Exception:
        message = "an exception whose text cannot be made"
    message = message.encode("utf-8", "backslashreplace").decode()
    return {"type": type(err).__name__, "message": message}


def report(err):
    """Print the traceback of the tool's own frames, for its author."""
    frames = err.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == "<toolpost>":
        frames = frames.tb_next
    if frames and isinstance(err, Exception):
        try:
            sys.__excepthook__(type(err), err.with_traceback(frames), frames)
        except Exception:
            pass  # a tool may have closed standard error


def run(document, reply, function=None, takes=None):
    """Run one call in this process, reply, and end. Threads that the tool left end with it."""
    before = os.fstat(reply)
    data = answer(document, function, takes)
    try:
        # A tool that closes every descriptor it sees and opens others: not into its files.
        after = os.fstat(reply)
        same = after.st_ino == before.st_ino and after.st_dev == before.st_dev
    except OSError:
        same = False
    if not same:
        os._exit(NO_REPLY)
    while data:
        data = data[os.write(reply, data):]
    os.close(reply)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        pass  # closed by the tool
    os._exit(0)


def read_all(descriptor):
    pieces = []
    while True:
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def fresh():
    reply = os.dup(1)
    move(4, 1)
    move(5, 2)
    document = read_all(0)
    move(os.open(os.devnull, os.O_RDONLY), 0)
    run(document, reply)


def serve(entry, *words):
    """Import the tool once, then fork a clean child for each call.

    A call has four descriptors: where the child reads its request, where it replies, where it prints, and its
    standard error.
    """
    control = take_control()
    takes = None
    try:
        function = None if "late" in words else load(entry)
    except BaseException as err:
        report(err)
        say(control, {"ready": False, "error": describe(err)})
        return
    if function:
        try:
            takes = taker(function)
        except BaseException:
            pass  # each call says so
    sys.stdout.flush()
    secrets = [int(n) for name, n in os.environ.items() if name.endswith("_FD") and n.isdigit()]
    gc.collect()
    gc.freeze()
    say(control, {"ready": True, "files": files(), "unsafe": no_room or unsafe()})
    if not no_room:
        serve_forks(control, words, lambda descriptors: serve_one(descriptors, function, takes, secrets))


def serve_one(descriptors, function, takes, secrets):
    """Run one call. There may be none yet, so all that can be done without it is done before it is read."""
    request, reply, out, err = descriptors
    move(out, 1)
    move(err, 2)
    enter_room()
    rewind(secrets)
    os.set_inheritable(reply, False)
    # What the module asked for at its own end is the server's; a call only runs what it asks for itself.
    atexit._clear()
    # The random module reseeds itself after a fork; numpy's does not.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    encode(decode(b'{"payload":{}}'))  # memory that it touches now is not copied when somebody waits
    document = read_all(request)
    if not document:
        os._exit(0)  # nobody called
    os.close(request)
    run(document, reply, function, takes)


def rewind(secrets):
    """Secrets that are handed over as files are shared with all calls, and so is how far they were read."""
    for descriptor in secrets:
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
        except OSError:
            pass  # it is something else


def files():
    """What was loaded from the app, and from which state of it. Installed packages are not the app's."""
    found = []
    venv = os.path.join(ROOT, ".venv") + os.sep
    for module in list(sys.modules.values()):
        path = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(path, str) and path.startswith(ROOT + os.sep) and not path.startswith(venv):
            try:
                path.encode()  # the message is UTF-8
                stat = os.stat(path)
            except (OSError, UnicodeError):
                continue
            found.append({"path": path, "mtime": stat.st_mtime_ns, "size": stat.st_size})
    return found


def unsafe():
    """Why this process must not be forked, if so: a fork has none of the threads, yet their locks."""
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return "there is no /proc that tells whether it has threads"
    if len(threads) > 1:
        return f"the module starts {len(threads) - 1} thread(s) when it is imported"
    try:
        with open(f"/proc/self/task/{threads[0]}/children") as children:
            if children.read().strip():
                return "the module starts a process when it is imported"
    except OSError:
        pass  # not every kernel can tell
    if room and room.left():
        return "the module makes an object of System V when it is imported"
    return ""


def main(mode, _paths, _fields, *words):
    del sys.argv[1:]
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    if mode == "warm":
        prepare(words)
    sys.path = full_path
    if mode == "warm":
        serve(*words)
    else:
        fresh()


main(*sys.argv[1:])
