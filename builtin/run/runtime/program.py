# The Python side of runCode, behind forks/server.py: a fork server whose children each run one program. A child has
# three descriptors of its call: the channel, standard output and standard error.
#
# The channel carries lines of JSON. From the host: {"code": text, "most": {...}} first, then the answers to calls,
# {"id": n, "output": any} or {"id": n, "error": {...}}. To the host: {"id": n, "tool": name, "args": {...}},
# {"cancel": n}, and at the end {"return": any} or {"raised": {...}}.
#
# Nothing here keeps a program from anything: it can change all of it. What it may do is up to the walls around it and
# to the host, which takes calls from it as from any stranger.

import ast  # noqa: E402
import asyncio  # noqa: E402
import atexit  # noqa: E402
import base64  # noqa: E402, F401
import builtins  # noqa: E402
import collections  # noqa: E402
import csv  # noqa: E402, F401
import dataclasses  # noqa: E402
import datetime  # noqa: E402, F401
import functools  # noqa: E402, F401
import gc  # noqa: E402
import hashlib  # noqa: E402, F401
import itertools  # noqa: E402, F401
import json  # noqa: E402
import linecache  # noqa: E402
import math  # noqa: E402, F401
import random  # noqa: E402, F401
import re  # noqa: E402, F401
import signal  # noqa: E402
import socket  # noqa: E402
import textwrap  # noqa: E402, F401
import traceback  # noqa: E402
import types  # noqa: E402

PROGRAM = "<program>"  # the name of the program's file, in its tracebacks
MAIN = "__program__"


class ToolError(Exception):
    """A call that came to nothing: refused, failed, or without an answer."""

    def __init__(self, code, message, reason="", details=None):
        super().__init__(message)
        self.code, self.message, self.reason, self.details = code, message, reason, details

    def __str__(self):
        return f"{self.code}: {self.message}"


class Tool:
    """A tool by its name; its attributes are those whose names go on with theirs."""

    __slots__ = ("_name", "_channel")

    def __init__(self, name, channel):
        self._name, self._channel = name, channel

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"no tool has the name {name}")
        return Tool(f"{self._name}.{name}" if self._name else name, self._channel)

    def __getitem__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"a tool has a name, and not {name!r}")
        return Tool(f"{self._name}.{name}" if self._name else name, self._channel)

    def __call__(self, *args, **named):
        if len(args) > 1 or args and named or args and not isinstance(args[0], dict):
            raise TypeError(f"{self._name}() takes its arguments by their names, or as one dictionary")
        return self._channel.call(self._name, args[0] if args else named)

    def __repr__(self):
        return f"<tool {self._name}>" if self._name else "<tools>"


class Answer(asyncio.Future):
    """What will come of a call. The host is told when nobody wants it any more."""

    tool = "the tool"

    def cancel(self, *args, **named):
        if not super().cancel(*args, **named):
            return False
        self.channel.cancelled(self.number)
        return True

    def _unawaited(self, *_):
        raise TypeError(f"{self.tool}() was not awaited: write await in front of the call")

    # A use of the answer before it is there would fail with words about futures, or, as a condition, not at all.
    __getitem__ = __iter__ = __len__ = __contains__ = __bool__ = __str__ = __format__ = __call__ = _unawaited
    __add__ = __radd__ = __sub__ = __mul__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = _unawaited

    def __getattr__(self, name):
        raise AttributeError(f"{self.tool}() was not awaited: write await in front of the call")


class Channel:
    """The way to the host."""

    def __init__(self, sock, loop):
        self.sock, self.loop = sock, loop
        self.most_calls, self.most_bytes = 1, 1 << 16
        self.last = 0
        self.open = {}  # by id, the calls that were sent and not answered
        self.waiting = collections.deque()  # calls that are not sent yet
        self.out = bytearray()
        self.into = bytearray()
        self.began = loop.create_future()  # what to run
        sock.setblocking(False)
        loop.add_reader(sock, self.read)

    def call(self, name, args):
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError("tools are called from the thread that the program began in")
        self.last += 1
        number, answer = self.last, Answer(loop=self.loop)
        answer.number, answer.channel, answer.tool = number, self, name
        try:
            line = encode({"id": number, "tool": name, "args": args}, of_arguments)
        except ValueError as err:
            raise ToolError("invalid_input", f"the arguments of {name}: {err}") from None
        if len(line) > self.most_bytes:
            raise ToolError("invalid_input", f"the arguments of {name} are longer than {self.most_bytes} bytes")
        if self.waiting or len(self.open) >= self.most_calls:
            self.waiting.append((number, answer, line))
        else:
            self.open[number] = answer
            self.send(line)
        return answer

    def cancelled(self, number):
        if number in self.open:
            self.send(b'{"cancel":%d}\n' % number)

    def send_next(self):
        while self.waiting and len(self.open) < self.most_calls:
            number, answer, line = self.waiting.popleft()
            if not answer.cancelled():
                self.open[number] = answer
                self.send(line)

    def send(self, line):
        if not self.out:
            try:
                line = line[self.sock.send(line):]
            except BlockingIOError:
                pass
            if not line:
                return
            self.loop.add_writer(self.sock, self.write)
        self.out += line

    def write(self):
        try:
            del self.out[:self.sock.send(self.out)]
        except BlockingIOError:
            return
        if not self.out:
            self.loop.remove_writer(self.sock)

    def read(self):
        try:
            piece = self.sock.recv(1 << 18)
        except BlockingIOError:
            return
        if not piece:
            os._exit(NO_REPLY)  # the host is gone
        if not self.into and piece.endswith(b"\n"):
            lines = piece.split(b"\n")
        else:
            searched = len(self.into)
            self.into += piece
            if self.into.find(b"\n", searched) < 0:
                return
            lines = bytes(self.into).split(b"\n")
            self.into = bytearray(lines[-1])
        for line in lines[:-1]:
            self.take(json.loads(line))

    def take(self, message):
        if "id" not in message:
            self.began.set_result(message)
            return
        answer = self.open.pop(message["id"], None)
        if self.waiting:
            self.send_next()
        if answer is None or answer.done():
            return
        error = message.get("error")
        if error is None:
            answer.set_result(message.get("output"))
        else:
            answer.set_exception(
                ToolError(error["code"], error["message"], error.get("reason", ""), error.get("details")))
            answer._log_traceback = False  # one that nobody waits for is nobody's business

    async def finish(self, line):
        """Send the last line. All that was written before is out first, so that the host has it all."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass  # closed by the program
        self.send(line)
        while self.out:
            await asyncio.sleep(0.001)


def encoder(whose):
    """What writes values as JSON, and says in whose words what it cannot write."""

    def other(part):
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            return dataclasses.asdict(part)
        if isinstance(part, (Tool, Answer)) or asyncio.iscoroutine(part):
            raise ValueError(f"{whose} {awaited(part)}")
        try:
            return as_json(part)
        except TypeError as err:
            raise ValueError(str(err).replace("the result has", whose)) from None

    # Made once: json.dumps would make one for each value.
    writes = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=other)
    writes.whose = whose
    return writes


def awaited(part):
    """Say what is missing where a program gives away a call in the place of its answer."""
    if isinstance(part, Tool):
        return f"the tool {part._name} itself: call it, and await the call"
    return "a call that was not awaited: write await in front of it"


of_result, of_arguments = encoder("the result has"), encoder("the arguments have")


def encode(value, by=of_result):
    try:
        return by.encode(value).encode() + b"\n"
    except (TypeError, RecursionError) as err:
        raise ValueError(f"{by.whose} something that cannot be written as JSON: {err}") from None
    except UnicodeEncodeError:
        raise ValueError(f"{by.whose} text that is not valid Unicode") from None
    except ValueError as err:
        if "Circular" in str(err):
            raise ValueError(f"{by.whose} a list or a dictionary that contains itself") from None
        raise ValueError(str(err).replace("Out of range float values are not JSON compliant",
                                          f"{by.whose} a number that is not finite")) from None


def understand(source):
    """Make a function of a program that may await and return at its top. Its names are those of a module, so that
    `global` means what it says, and its lines keep their numbers."""
    tree = ast.parse(source, PROGRAM)
    future = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    body = [Unannotated().visit(n) for n in tree.body if n not in future] or [ast.Pass()]
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])

    def wrapped(statements):
        main = ast.AsyncFunctionDef(name=MAIN, args=empty, body=statements, decorator_list=[], type_params=[])
        module = ast.Module(body=[*future, main], type_ignores=[])
        return compile(ast.fix_missing_locations(module), PROGRAM, "exec")

    inner = [c for c in wrapped(body).co_consts if isinstance(c, types.CodeType) and c.co_name == MAIN][0]
    names = sorted(n for n in {*inner.co_varnames, *inner.co_cellvars} if n.isidentifier())
    if names:
        return wrapped([ast.Global(names=names), *body])
    return wrapped(body)


class Unannotated(ast.NodeTransformer):
    """Takes the annotations from a program's own variables: a function has none for those of its module."""

    def visit_AnnAssign(self, node):
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def visit_FunctionDef(self, node):
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_FunctionDef


async def run(channel):
    order = await channel.began
    channel.most_calls, channel.most_bytes = order["most"]["calls"], order["most"]["bytes"]
    source = order["code"]
    linecache.cache[PROGRAM] = (len(source), None, source.splitlines(keepends=True), PROGRAM)
    module = types.ModuleType("__main__")
    module.__dict__.update(tools=Tool("", channel), ToolError=ToolError, __builtins__=builtins)
    sys.modules["__main__"] = module
    try:
        exec(understand(source), module.__dict__)
        line = encode({"return": await module.__dict__.pop(MAIN)()})
    except SystemExit as err:
        line = encode({"return": None}) if err.code in (None, 0) else raised(err)
    except BaseException as err:
        line = raised(err)
    if len(line) > channel.most_bytes:
        line = raised(ValueError(f"the result is longer than {channel.most_bytes} bytes: return less, or print it"))
    await channel.finish(line)


def raised(err):
    """What is told of an exception: its frames in the program, and nothing of ours."""
    frames, at = [], err.__traceback__
    while at:
        code = at.tb_frame.f_code
        if code.co_filename == PROGRAM:
            where = "the program" if code.co_name == MAIN else code.co_name
            frames.append({"line": at.tb_lineno or 0, "in": cut(where, 200)})
        at = at.tb_next
    if isinstance(err, SyntaxError) and err.filename == PROGRAM:
        frames = [{"line": err.lineno or 0, "in": "the program"}]
        message = err.msg
    else:
        try:
            message = str(err)
        except Exception:
            message = "an exception whose text cannot be made"
    if len(frames) > 20:
        frames = frames[:10] + frames[-10:]
    told = {"type": type(err).__name__, "message": cut(message, 4000), "frames": frames}
    if isinstance(err, ToolError):
        told["code"] = err.code if isinstance(err.code, str) else ""
    return encode({"raised": told})


def cut(text, most):
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else text[:most] + "..."


def serve_program(descriptors):
    channel, out, err = descriptors
    move(out, 1)
    move(err, 2)
    enter_room()
    gc.enable()
    atexit._clear()
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(run(Channel(socket.socket(fileno=channel), loop)))
    except BaseException:
        traceback.print_exc()  # a program that changed what it stands on
        os._exit(NO_REPLY)
    os._exit(0)


def main(words):
    del sys.argv[1:]
    prepare(words)
    control = take_control()
    asyncio.new_event_loop().close()  # what it imports late
    signal.set_wakeup_fd(-1)
    gc.collect()
    gc.freeze()
    say(control, {"ready": not no_room, "why": no_room})
    if not no_room:
        serve_forks(control, words, serve_program)


main(sys.argv[1:])
