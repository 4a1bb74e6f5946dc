"""A client for Toolpost: list tools, call them, follow what they do, answer what they ask.

    from toolpost import Client

    client = Client("http://127.0.0.1:8700")           # the token is in $TOOLPOST_TOKEN
    print(client.call("greet", {"name": "Ada"}).unwrap())

Client blocks; AsyncClient is the same with await, on asyncio's own streams. One file, the standard library alone.

How it is built: everything is written once, as coroutines over a small wire (open, send, receive, sleep, close). The
wire of AsyncClient waits in the event loop. That of Client blocks and so never suspends, which is why its coroutines
can be run to their end without a loop. Each request has a connection of its own: with one that is kept, a request that
meets the server's closing it leaves open whether the call has run, and a handshake costs less than that doubt.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import math
import os
import random
import re
import socket
import ssl
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, Mapping, Optional, Protocol, TypedDict, TypeVar
from urllib.parse import quote, urlencode, urlsplit

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Ask", "AsyncClient", "AsyncStream", "BadAnswer", "CallOptions", "Client", "Disconnected",
           "Event", "Job", "JobOptions", "Result", "State", "Stream", "Tool", "ToolFailed",
           "ToolpostError", "Unreachable"]
__version__ = "0.1.0"

_T = TypeVar("_T")
_E = TypeVar("_E", bound="ToolpostError")
_CONNECT = 10.0  # seconds to connect in
_GRACE = 5.0  # beyond the timeout of a call: the server says itself that it is over, and what was running
_LONGEST_WAIT = 30.0  # a server that asks for more patience than that is not asked again
_ROUNDS = 20  # of questions and answers in one call
_MAX_HEAD, _MAX_PROBLEM, _MAX_MESSAGE, _MAX_BODY = 64 << 10, 1 << 20, 32 << 20, 64 << 20  # bytes


class ToolpostError(Exception):
    """There is no outcome. `message` says what to do next; `code` and `reason` are for programs (docs/errors.md)."""

    def __init__(self, code: str, message: str, *, reason: str = "", details: Any = None, status: int = 0, call: str = ""):
        super().__init__(message)
        self.code, self.message, self.reason, self.details = code, message, reason, details
        self.status = status  # of HTTP; 0: none came
        self.call = call  # the call's id, if there was one

    def __str__(self) -> str:
        return f"{self.code} ({self.reason}): {self.message}" if self.reason else f"{self.code}: {self.message}"

    @property
    def retry_after(self) -> float | None:
        """In how many seconds to try again, if the server says so."""
        ms = self.details.get("retry_after_ms") if isinstance(self.details, dict) else None
        return ms / 1000 if isinstance(ms, (int, float)) and not isinstance(ms, bool) and ms >= 0 else None


class ToolFailed(ToolpostError):
    """The tool ran and said no. Raised by Result.unwrap alone: a failure is an outcome."""


class Unreachable(ToolpostError):
    """No connection could be made: nothing was sent."""


class Disconnected(ToolpostError):
    """The connection broke before there was an outcome. The call may have run."""


class BadAnswer(ToolpostError):
    """What answered does not speak as Toolpost does. The call may have run."""

    def __init__(self, message: str, **more: Any):
        super().__init__("protocol", message, **more)


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    tier: int  # 0 safe, 1 writes, 2 system, 3 dangerous
    input: dict[str, Any]  # JSON Schema of the arguments
    available: bool
    reason: str  # why it is not available
    unlisted: bool  # it is about calls and sessions, and not for a list of things to do
    raw: Mapping[str, Any]  # all that the server says about it


@dataclass(frozen=True)
class Event:
    kind: str  # log, progress, output, state_patch, asset, ui_event, error
    seq: int
    time: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """A question: make the same call again with resume=ask.id and answers=..."""
    id: str
    message: str
    schema: Any  # of the answers, where there are no needs
    needs: list[dict[str, Any]]  # several things, or such as no person answers: key, kind, message, schema, params


@dataclass(frozen=True)
class Result:
    """The one outcome of a call."""
    ok: bool
    output: Any
    summary: str
    failure: ToolFailed | None  # why it is not ok
    ask: Ask | None  # the tool has a question first
    trace: Mapping[str, Any]
    call: str

    def unwrap(self) -> Any:
        """The output; a ToolFailed where the tool said no, or has a question."""
        if self.ask is not None:
            raise ToolFailed("tool_error", f"the tool asks: {self.ask.message}", reason="asked", call=self.call)
        if not self.ok:
            raise self.failure or ToolFailed("tool_error", self.summary or "the tool failed", call=self.call)
        return self.output


@dataclass(frozen=True)
class Job:
    id: str
    tool: str
    state: str  # queued, running, done, failed, asked, cancelled, lost
    result: Result | None
    error: ToolpostError | None
    raw: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        return self.state not in ("queued", "running", "asked")


@dataclass(frozen=True)
class State:
    """What a session holds, at a version; 0: nothing has changed it."""
    version: int
    value: dict[str, Any]


class JobOptions(TypedDict, total=False):
    session: str  # whose state the call belongs to
    key: str  # idempotency key: calls with the same one are one call
    lease: str  # token of a lease, for tools that need one
    run: str  # what an agent calls a series of its calls, for their records
    traceparent: str  # W3C trace context


class CallOptions(JobOptions, total=False):
    timeout: float  # seconds
    dry_run: bool  # only say what the policy decides
    answers: Any  # to the question that resume names
    resume: str
    call: str  # the call's id; default: a new one


# ---- what the server says, taken at its word only where it has the right shape


def _get(of: Any, name: str, kind: type[_T], default: _T | None = None) -> _T:
    value = of.get(name, default) if isinstance(of, dict) else None
    if type(value) is not kind:
        raise BadAnswer(f"the server's answer has no {name} that is a {kind.__name__}: is it a toolpost server?")
    return value  # type: ignore[no-any-return]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _decode(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise BadAnswer(f"the server's answer is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise BadAnswer("the server's answer is not a JSON object: is it a toolpost server?")
    return value


def _error(kind: type[_E], of: Any, call: str, status: int = 0) -> _E:
    return kind(_get(of, "code", str), _get(of, "message", str), reason=_get(of, "reason", str, ""),
                details=of.get("details"), status=status, call=call)


def _tool(of: Any) -> Tool:
    return Tool(_get(of, "name", str), _get(of, "description", str, ""), _get(of, "tier", int),
                _get(of, "input", dict, {}), _get(of, "available", bool), _get(of, "reason", str, ""),
                _get(of, "unlisted", bool, False), of)


def _ask(of: Any) -> Ask:
    return Ask(_get(of, "id", str), _get(of, "message", str, ""), of.get("schema"), _get(of, "needs", list, []))


def _result(of: dict[str, Any]) -> Result:
    call, failed, asked = _get(of, "call", str, ""), of.get("error"), of.get("ask")
    return Result(_get(of, "ok", bool), of.get("output"), _get(of, "summary", str, ""),
                  None if failed is None else _error(ToolFailed, failed, call), None if asked is None else _ask(asked),
                  _get(of, "trace", dict, {}), call)


def _job(of: Any) -> Job:
    job, result, error = _get(of, "job", str), of.get("result"), of.get("error")
    return Job(job, _get(of, "tool", str, ""), _get(of, "state", str), None if result is None else _result(result),
               None if error is None else _error(ToolpostError, error, job), of)


def _event(name: str, data: bytes) -> Event:
    of = _decode(data)
    event = Event(_get(of, "kind", str), _get(of, "seq", int), _get(of, "time", str, ""), _get(of, "data", dict))
    if event.kind != name:
        raise BadAnswer(f"the server sent an event of the kind {event.kind!r} as {name!r}")
    return event


# ---- HTTP


@dataclass(frozen=True)
class _Place:
    """Where the server is, and how it is spoken to."""
    name: str  # for people
    base: str  # path in front of all others
    authority: str  # for the Host header
    host: str
    port: int
    unix: str
    tls: ssl.SSLContext | None


def _place(url: str, ca: str | None, cert: str | None, key: str | None) -> _Place:
    if url.startswith("unix:"):
        return _Place(url, "", "localhost", "", 0, os.path.abspath(url[len("unix:"):]), None)
    try:
        u = urlsplit(url)
        host, port = u.hostname or "", u.port or (443 if u.scheme == "https" else 80)
    except ValueError as e:
        raise ToolpostError("invalid_input", f"{url!r} is not the address of a server: {e}") from e
    if u.scheme not in ("http", "https") or not host or u.username is not None or u.query or u.fragment:
        raise ToolpostError("invalid_input",
                            f"{url!r} is not the address of a server: write it like http://127.0.0.1:8700, or unix:PATH")
    tls = None
    if u.scheme == "https":
        tls = ssl.create_default_context(cafile=ca)
        if cert:
            tls.load_cert_chain(cert, key)
    elif ca or cert:
        raise ToolpostError("invalid_input", f"ca and cert are for https:// addresses, not for {url!r}")
    return _Place(url.rstrip("/"), u.path.rstrip("/"), u.netloc, host, port, "", tls)


class _Wire(Protocol):
    """A connection. All that waits is awaited."""

    async def open(self, to: _Place, within: float) -> None: ...
    async def send(self, data: bytes, within: float) -> None: ...
    async def receive(self, within: float) -> bytes: ...  # empty: the other side has closed it
    async def sleep(self, seconds: float) -> None: ...
    def close(self) -> None: ...


class _Blocking:
    """Waits by blocking, and never suspends."""
    _socket: socket.socket | None = None

    async def open(self, to: _Place, within: float) -> None:
        if to.unix:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(within)
            self._socket.connect(to.unix)
        else:
            self._socket = socket.create_connection((to.host, to.port), within)
        if to.tls:
            self._socket = to.tls.wrap_socket(self._socket, server_hostname=to.host)

    async def send(self, data: bytes, within: float) -> None:
        assert self._socket
        self._socket.settimeout(within)
        self._socket.sendall(data)

    async def receive(self, within: float) -> bytes:
        assert self._socket
        self._socket.settimeout(within)
        return self._socket.recv(64 << 10)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        if self._socket:
            self._socket.close()


async def _within(waiting: Awaitable[_T], seconds: float, unwanted: Callable[[_T], object] = lambda _: None) -> _T:
    """Waits as asyncio.wait_for does, which before Python 3.12 loses a cancellation that comes together with the result.
    A result that comes with it is handed to unwanted."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        if not task.cancel() and not task.cancelled() and not task.exception():
            unwanted(task.result())
        raise
    if task.cancel():
        raise asyncio.TimeoutError
    return task.result()


class _Looping:
    """Waits in the event loop."""
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter | None = None

    async def open(self, to: _Place, within: float) -> None:
        if to.unix:
            opening = asyncio.open_unix_connection(to.unix)
        else:
            opening = asyncio.open_connection(to.host, to.port, ssl=to.tls)
        self._reader, self._writer = await _within(opening, within, lambda opened: opened[1].transport.abort())

    async def send(self, data: bytes, within: float) -> None:
        assert self._writer
        self._writer.write(data)
        await _within(self._writer.drain(), within)

    async def receive(self, within: float) -> bytes:
        return await _within(self._reader.read(64 << 10), within)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def close(self) -> None:
        if self._writer:
            self._writer.transport.abort()  # without waiting: whoever closes may have been cancelled


def _now(work: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine whose wire blocks, to its end."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("a blocking wire was suspended")


class _Exchange:
    """One request and its answer. What is read is bounded, and asked for only when it is wanted."""

    def __init__(self, wire: _Wire, to: _Place, silence: float, deadline: float):
        self.status = 0
        self.headers: dict[str, str] = {}
        self._wire, self._to, self._silence, self._deadline = wire, to, silence, deadline
        self._raw, self._text = bytearray(), bytearray()  # received, and of these the body
        self._left = 0.0  # of the body, or of a chunk of it; infinite: until the connection closes
        self._chunks = -1  # that have been begun; -1: the body has none

    def _within(self) -> float:
        return max(min(self._deadline - time.monotonic(), self._silence), 0.001)

    def close(self) -> None:
        self._wire.close()

    async def begin(self, request: bytes) -> None:
        """Sends the request, and reads the head of the answer."""
        try:
            await self._wire.open(self._to, min(_CONNECT, self._within()))
        except (OSError, asyncio.TimeoutError) as e:
            raise Unreachable("unavailable", f"nothing answers at {self._to.name} ({str(e) or 'it took too long'}): "
                              "is `toolpost serve` running there?", reason="unreachable") from e
        try:
            await self._wire.send(request, self._within())
        except (OSError, asyncio.TimeoutError):
            pass  # a server that refuses may not read all of it; whether it said why is seen below
        for _ in range(10):  # those before the last only announce it
            head = (await self._head_line()).split(" ", 2)
            if len(head) < 2 or head[0] not in ("HTTP/1.1", "HTTP/1.0") or not re.fullmatch("[1-5][0-9]{2}", head[1]):
                raise BadAnswer(f"{self._to.name} does not speak HTTP: is it a toolpost server?")
            self.status, self.headers, size = int(head[1]), {}, 0
            while line := await self._head_line():
                name, colon, value = line.partition(":")
                size += len(line)
                if not colon or size > _MAX_HEAD or name.lower() in self.headers and name.lower() in _FRAMING:
                    raise BadAnswer(f"the headers of {self._to.name} cannot be read")
                self.headers[name.lower()] = value.strip()
            if self.status >= 200:
                break
        coding, length = (self.headers.get(name) for name in _FRAMING)
        if coding and not length and coding.lower() == "chunked":
            self._chunks = 0
        elif length and not coding and re.fullmatch("[0-9]{1,15}", length):
            self._left = int(length)
        elif coding or length:
            raise BadAnswer(f"{self._to.name} does not say how long its answer is")
        elif self.status != 204:
            self._left = math.inf

    async def _fill(self) -> bool:
        try:
            data = await self._wire.receive(self._within())
        except (OSError, asyncio.TimeoutError) as e:
            if time.monotonic() >= self._deadline:
                raise ToolpostError("timeout", f"{self._to.name} gave no outcome in the time that there was") from e
            slow = isinstance(e, (socket.timeout, asyncio.TimeoutError))
            raise _cut(f"gave no sign of life for {self._silence:g} s" if slow else f"broke off ({e})", self._to) from e
        self._raw += data
        return bool(data)

    async def _head_line(self) -> str:
        while (line := _line(self._raw, _MAX_HEAD, 0)) is None:
            if not await self._fill():
                raise _cut("closed the connection", self._to)
        return line.decode("latin-1")

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end."""
        if self._chunks >= 0 and self._left == 0:
            if self._chunks > 0 and await self._head_line():
                raise BadAnswer(f"a chunk from {self._to.name} is longer than it says")
            size = (await self._head_line()).split(";")[0].strip()
            if not re.fullmatch("[0-9a-fA-F]{1,12}", size):
                raise BadAnswer(f"a chunk from {self._to.name} does not say how long it is")
            self._left = int(size, 16)
            self._chunks = self._chunks + 1 if self._left else -1  # what comes behind the last one is not read
        if self._left == 0:
            return b""
        if not self._raw and not await self._fill():
            if self._left == math.inf:
                return b""
            raise _cut("closed the connection", self._to)
        piece = bytes(self._raw[:int(min(self._left, len(self._raw)))])
        del self._raw[:len(piece)]
        self._left -= len(piece)
        return piece

    async def body(self, most: int) -> bytes:
        """The whole body."""
        while piece := await self.read():
            self._text += piece
            if len(self._text) > most:
                raise BadAnswer(f"the answer of {self._to.name} is larger than {most} bytes")
        return bytes(self._text)

    async def message(self) -> tuple[str, bytes]:
        """The next of the server-sent events that the body is made of: its name and its data, which is one line."""
        name, looked = "", 0
        data: bytes | None = None
        while True:
            while (line := _line(self._text, _MAX_MESSAGE, looked)) is None:
                looked = len(self._text)
                piece = await self.read()
                if not piece:
                    raise _cut("ended its answer", self._to)
                self._text += piece
            looked = 0
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if not line and data is not None:
                return name, data
            if not line:
                name = ""
            elif field == b"event":
                name = value.decode("utf-8", "replace")
            elif field == b"data" and data is None:
                data = value
            elif field == b"data":
                raise BadAnswer(f"{self._to.name} sent a message of several lines")


_FRAMING = ("transfer-encoding", "content-length")


def _cut(what: str, to: _Place) -> Disconnected:
    return Disconnected("crash", f"{to.name} {what} before there was an outcome; a call may have run",
                        reason="disconnected")


def _line(buffer: bytearray, most: int, looked: int) -> bytes | None:
    """Takes a line from a buffer, if it has a whole one; the first bytes were looked at before."""
    end = buffer.find(b"\n", looked)
    if end < 0:
        if len(buffer) > most:
            raise BadAnswer(f"the server sent a line of more than {most} bytes")
        return None
    line = bytes(buffer[:end])
    del buffer[:end + 1]
    return line[:-1] if line.endswith(b"\r") else line


# ---- the clients


def _unless_run(e: ToolpostError) -> float | None:
    """How long to wait until a call may be made again; None: it may have run, or waiting does not help.

    Quotas, breakers and queues stand in front of a tool. A store that is away may have been behind it.
    """
    if isinstance(e, Unreachable):
        return 0.2
    if e.code in ("quota_exceeded", "breaker_open") or e.code == "unavailable" and not e.reason.startswith("store"):
        return e.retry_after
    return None


def _reading(e: ToolpostError) -> float | None:
    """How long to wait until something may be read again."""
    return 0.2 if isinstance(e, (Unreachable, Disconnected)) else e.retry_after


def _never(_: ToolpostError) -> float | None:
    return None


_Again = Callable[[ToolpostError], Optional[float]]
_Request = tuple[str, str, dict[str, str], bytes]  # method, path, headers, body


class AsyncStream:
    """The events of a call, in order; then `result` is its outcome. Leaving `async with` early cancels the call."""

    def __init__(self, client: AsyncClient, call: str, again: _Again, timeout: float, seen: int,
                 request: Callable[[float, int], _Request]):
        self.call = call  # its id, to cancel it by
        self._client, self._again, self._seen, self._request = client, again, seen, request
        self._timeout, self._tries, self._deadline = timeout, 0, 0.0
        self._exchange: _Exchange | None = None
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        if self._result is None:
            raise RuntimeError("the call has no result yet: read its events to the end")
        return self._result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while self._result is None:
            try:
                if event := await self._next():
                    return event
            except ToolpostError as e:
                await self.aclose()
                e.call, self._tries = e.call or self.call, self._tries + 1
                await self._client._pause(e, self._again, self._tries, self._deadline)
            except BaseException:
                await self.aclose()
                raise
        await self.aclose()
        raise StopAsyncIteration

    async def _next(self) -> Event | None:
        if self._exchange is None:
            self._deadline = self._deadline or time.monotonic() + self._timeout
            left = max(self._deadline - time.monotonic(), 0.001)
            self._exchange = await self._client._open(self._request(left, self._seen), left + _GRACE)
            if self._exchange.headers.get("content-type", "").split(";")[0].strip() != "text/event-stream":
                raise BadAnswer("the server did not answer with a stream of events: is it a toolpost server?")
        name, data = await self._exchange.message()
        if name == "no_outcome":
            of = _decode(data)
            raise _error(ToolpostError, of.get("error"), _get(of, "call", str, ""))
        if name == "result":
            self._result = _result(_decode(data))
            return None
        event = _event(name, data)
        if event.seq <= self._seen:
            raise BadAnswer(f"the server sent event {event.seq} after event {self._seen}")
        self._seen, self._tries = event.seq, 0
        if self._again is _unless_run:
            self._again = _never
        return event

    async def aclose(self) -> None:
        """Closes the connection. The server then cancels a call that still runs; a job goes on."""
        if self._exchange:
            self._exchange.close()
            self._exchange = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncClient:
    """Calls the tools of one server, from one event loop or several."""
    _wire: Callable[[], _Wire] = _Looping

    def __init__(self, url: str | None = None, token: str | None = None, *, ca: str | None = None,
                 cert: str | None = None, key: str | None = None, retries: int = 2, silence: float = 60.0):
        """Default for url and token: $TOOLPOST_URL or http://127.0.0.1:8700; $TOOLPOST_TOKEN, or what is in the file
        $TOOLPOST_TOKEN_FILE. The url may be unix:PATH. ca, cert and key are PEM files: who may vouch for the server,
        and the certificate to show to it. retries is how often a refusal that says when to come back is followed;
        after so many seconds of silence a connection counts as broken (the server gives a sign every 15)."""
        env = os.environ
        if token is None and not (token := env.get("TOOLPOST_TOKEN", "")) and env.get("TOOLPOST_TOKEN_FILE"):
            with open(env["TOOLPOST_TOKEN_FILE"], encoding="utf-8") as file:
                token = file.read().strip()
        self._to = _place(url or env.get("TOOLPOST_URL") or "http://127.0.0.1:8700", ca, cert, key)
        self._token, self._retries, self._silence = token, retries, silence

    async def tools(self) -> list[Tool]:
        """Every tool that you may see, also those that are not available."""
        return [_tool(t) for t in _get(await self._json("GET", "/v1/tools"), "tools", list)]

    async def tool(self, name: str) -> Tool:
        return _tool(await self._json("GET", _path("/v1/tools", name)))

    def stream(self, name: str, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> AsyncStream:
        """Makes a call, when the first event is asked for."""
        given: dict[str, Any] = {"call": uuid.uuid4().hex, **options}
        timeout, limited = float(given.get("timeout", math.inf)), "timeout" in given
        _headers(given)  # what is misspelt is refused now

        def request(left: float, _: int) -> _Request:
            given["timeout"] = left if limited else None
            return "POST", _path("/v1/tools", name) + "/call", _headers(given, Accept=_STREAM), _encode(args or {})

        return AsyncStream(self, given["call"], _never if "lease" in given else _unless_run, timeout, 0, request)

    async def call(self, name: str, args: Mapping[str, Any] | None = None, *, ask: Callable[[Ask], Any] | None = None,
                   on_event: Callable[[Event], object] | None = None, **options: Unpack[CallOptions]) -> Result:
        """Makes a call and returns its outcome. ask gives the answers to a tool's question, or is a coroutine function
        that does; without it the question is in the result. The call is cancelled when the task is."""
        key = options.get("key")
        for n in range(1, _ROUNDS + 1):
            async with self.stream(name, args, **options) as stream:
                async for event in stream:
                    if on_event:
                        on_event(event)
            if ask is None or stream.result.ask is None:
                return stream.result
            answers = ask(stream.result.ask)
            options["answers"] = await answers if inspect.isawaitable(answers) else answers
            options["resume"] = stream.result.ask.id
            options.pop("call", None)
            if key:  # with answers it is another call
                options["key"] = f"{key}/{n}"
        raise ToolpostError("conflict", f"{name} goes on asking after {_ROUNDS} answers", reason="asked")

    async def cancel(self, call: str) -> None:
        """Cancels a call of yours, by its id."""
        await self._json("DELETE", _path("/v1/calls", call))

    async def start(self, name: str, args: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Job:
        """Makes a call that runs later, whatever becomes of this program."""
        headers = _headers({"call": uuid.uuid4().hex, **options}, Prefer="respond-async")
        again = _never if "lease" in options else _unless_run
        return _job(await self._output("POST", _path("/v1/tools", name) + "/call", headers, _encode(args or {}), again))

    async def jobs(self, state: str | None = None, limit: int | None = None) -> list[Job]:
        """Your jobs, the newest first, without their results."""
        query = urlencode({k: v for k, v in (("state", state), ("limit", limit)) if v is not None})
        output = await self._output("GET", "/v1/jobs" + ("?" + query if query else ""))
        return [_job(j) for j in _get(output, "jobs", list)]

    async def job(self, job: str) -> Job:
        return _job(await self._output("GET", _path("/v1/jobs", job)))

    def watch(self, job: str, after: int = 0) -> AsyncStream:
        """The events of a job after so many. A connection that breaks is made again, and no event comes twice."""
        def request(_: float, seen: int) -> _Request:
            return "GET", _path("/v1/jobs", job) + "/events", {"Accept": _STREAM, "Last-Event-ID": str(seen)}, b""

        return AsyncStream(self, job, _reading, math.inf, after, request)

    async def wait(self, job: str, *, on_event: Callable[[Event], object] | None = None) -> Job:
        """Waits until a job has ended, or asks."""
        async with self.watch(job) as stream:
            async for event in stream:
                if on_event:
                    on_event(event)
        return _job(stream.result.unwrap())

    async def cancel_job(self, job: str) -> Job:
        return _job(await self._output("DELETE", _path("/v1/jobs", job)))

    async def answer_job(self, job: str, answers: Any) -> Job:
        """Answers the question of a job, which then goes on."""
        return _job((await self.call("answerJob", {"job": job, "answers": answers})).unwrap())

    async def state(self, session: str) -> State:
        """What a session holds. Calls belong to one by session=..."""
        of = (await self.call("state.get", {"session": session})).unwrap()
        return State(_get(of, "version", int), _get(of, "state", dict))

    async def patch(self, session: str, patch: Mapping[str, Any], if_version: int | None = None) -> int:
        """Merges a patch into a session (null removes), unless it is at another version. Returns the new version."""
        args = {"session": session, "patch": dict(patch), "if_version": if_version}
        if if_version is None:
            del args["if_version"]
        return _get((await self.call("state.patch", args)).unwrap(), "version", int)

    async def reset(self, session: str) -> int:
        """Empties a session. Returns the new version."""
        return _get((await self.call("state.reset", {"session": session})).unwrap(), "version", int)

    async def asset(self, sha256: str) -> bytes:
        """The file that an asset event names."""
        exchange = await self._open(("GET", _path("/v1/assets", sha256), {}, b""), math.inf)
        try:
            content = await exchange.body(_MAX_BODY)
        finally:
            exchange.close()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise BadAnswer(f"what came is not the asset {sha256}")
        return content

    # -- requests

    async def _open(self, request: _Request, within: float) -> _Exchange:
        """Sends a request and returns its answer, if it is a success."""
        method, path, headers, body = request
        sent = {"Host": self._to.authority, "Connection": "close", **headers}
        if self._token:
            sent["Authorization"] = "Bearer " + self._token
        if body:
            sent.update({"Content-Type": "application/json", "Content-Length": str(len(body))})
        lines = [f"{method} {self._to.base}{path} HTTP/1.1", *(f"{k}: {_plain(k, v)}" for k, v in sent.items()), "", ""]
        exchange = _Exchange(self._wire(), self._to, self._silence, time.monotonic() + within)
        try:
            await exchange.begin("\r\n".join(lines).encode() + body)
            if exchange.status // 100 == 2:
                return exchange
            of, status = await exchange.body(_MAX_PROBLEM), exchange.status
            try:
                problem = _decode(of)
                raise _error(ToolpostError, problem.get("error"), _get(problem, "call", str, ""), status)
            except BadAnswer as e:
                e.status, e.message = status, f"{self._to.name} answered {status}: {e.message}"
                raise
        except BaseException:
            exchange.close()
            raise

    async def _json(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"",
                    again: _Again = _reading) -> dict[str, Any]:
        tries = 0
        while True:
            try:
                exchange = await self._open((method, path, headers or {}, body), 2 * self._silence)
                try:
                    return {} if exchange.status == 204 else _decode(await exchange.body(_MAX_BODY))
                finally:
                    exchange.close()
            except ToolpostError as e:
                tries += 1
                await self._pause(e, again, tries, math.inf)

    async def _output(self, *request: Any) -> Any:
        """What a route gives that stands for a call."""
        return _result(await self._json(*request)).unwrap()

    async def _pause(self, e: ToolpostError, again: _Again, tries: int, deadline: float) -> None:
        """Raises the error, or returns when it is time to try again."""
        wait = again(e)
        if wait is None or tries > self._retries or wait > _LONGEST_WAIT:
            raise e
        wait = (wait + 0.01) * random.uniform(1, 1.25) * 2 ** (tries - 1)
        if time.monotonic() + wait >= deadline:
            raise e
        await self._wire().sleep(wait)


_STREAM = "text/event-stream"
_HEADERS = {"call": "Toolpost-Call", "session": "Toolpost-Session", "key": "Idempotency-Key", "lease": "Toolpost-Lease",
            "run": "Toolpost-Run", "resume": "Toolpost-Resume", "traceparent": "traceparent",
            "timeout": "Toolpost-Timeout", "dry_run": "Toolpost-Dry-Run", "answers": "Toolpost-Answers"}


def _headers(options: Mapping[str, Any], **headers: str) -> dict[str, str]:
    for name, value in options.items():
        if name not in _HEADERS:
            raise TypeError(f"there is no option {name!r} of a call; there are {', '.join(_HEADERS)}")
        if value is None or value is False:
            continue
        if name == "timeout":
            value = f"{max(round(value * 1e6), 1)}us"
        elif name == "dry_run":
            value = "true"
        elif name == "answers":
            value = _encode(value).decode()
        headers[_HEADERS[name]] = value
    return headers


def _plain(name: str, value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ToolpostError("invalid_input", f"{name} cannot be sent: it must be plain text on one line")
    return value


def _encode(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as e:
        raise ToolpostError("invalid_input", f"the arguments or answers are not JSON: {e}") from e


def _path(under: str, name: str) -> str:
    if name in ("", ".", ".."):
        raise ToolpostError("not_found", f"there is nothing named {name!r}")
    return f"{under}/{quote(name, safe='')}"


class Stream:
    """The events of a call, in order; then `result` is its outcome. Leaving `with` early cancels the call."""

    def __init__(self, stream: AsyncStream):
        self._stream, self.call = stream, stream.call

    @property
    def result(self) -> Result:
        return self._stream.result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            return _now(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Closes the connection. The server then cancels a call that still runs; a job goes on."""
        _now(self._stream.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """AsyncClient for programs that block. Threads may share one. Its methods are described there."""

    def __init__(self, url: str | None = None, token: str | None = None, *, ca: str | None = None,
                 cert: str | None = None, key: str | None = None, retries: int = 2, silence: float = 60.0):
        self._do = AsyncClient(url, token, ca=ca, cert=cert, key=key, retries=retries, silence=silence)
        self._do._wire = _Blocking

    def tools(self) -> list[Tool]: return _now(self._do.tools())
    def tool(self, name: str) -> Tool: return _now(self._do.tool(name))
    def stream(self, name: str, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]) -> Stream:
        return Stream(self._do.stream(name, args, **options))
    def call(self, name: str, args: Mapping[str, Any] | None = None, *, ask: Callable[[Ask], Any] | None = None,
             on_event: Callable[[Event], object] | None = None, **options: Unpack[CallOptions]) -> Result:
        return _now(self._do.call(name, args, ask=ask, on_event=on_event, **options))
    def cancel(self, call: str) -> None: _now(self._do.cancel(call))
    def start(self, name: str, args: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Job:
        return _now(self._do.start(name, args, **options))
    def jobs(self, state: str | None = None, limit: int | None = None) -> list[Job]:
        return _now(self._do.jobs(state, limit))
    def job(self, job: str) -> Job: return _now(self._do.job(job))
    def watch(self, job: str, after: int = 0) -> Stream: return Stream(self._do.watch(job, after))
    def wait(self, job: str, *, on_event: Callable[[Event], object] | None = None) -> Job:
        return _now(self._do.wait(job, on_event=on_event))
    def cancel_job(self, job: str) -> Job: return _now(self._do.cancel_job(job))
    def answer_job(self, job: str, answers: Any) -> Job: return _now(self._do.answer_job(job, answers))
    def state(self, session: str) -> State: return _now(self._do.state(session))
    def patch(self, session: str, patch: Mapping[str, Any], if_version: int | None = None) -> int:
        return _now(self._do.patch(session, patch, if_version))
    def reset(self, session: str) -> int: return _now(self._do.reset(session))
    def asset(self, sha256: str) -> bytes: return _now(self._do.asset(sha256))
