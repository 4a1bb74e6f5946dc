"""Tests against a real server: clients/clients_test.go starts it, and this. Each scenario runs on both clients."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import tracemalloc
import unittest
from typing import Any, Awaitable, Callable

import toolpost
from toolpost import AsyncClient, Client, Event, ToolpostError

HOSTILE = json.loads(os.environ["CLIENTS_HOSTILE"])  # name of the case -> the codes that a client has to give


class Awaited:
    """Lets a Client be used as an AsyncClient, so that a scenario is written once."""

    def __init__(self, client: Any):
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)

        async def awaited(*args: Any, **more: Any) -> Any:
            return found(*args, **more)

        def opened(*args: Any, **more: Any) -> Any:
            return Awaited(found(*args, **more))

        if not callable(found):
            return found
        return opened if name in ("stream", "watch") else awaited

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Event:
        try:
            return next(self._client)
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Any:
        self._client.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.__exit__(*_)


Scenario = Callable[[unittest.TestCase, Any], Awaitable[None]]


def on_both(scenario: Scenario) -> Callable[[unittest.TestCase], None]:
    def test(self: unittest.TestCase) -> None:
        with self.subTest("sync"):
            asyncio.run(scenario(self, Awaited(Client())))
        with self.subTest("async"):
            asyncio.run(scenario(self, AsyncClient()))

    return test


async def refused(self: unittest.TestCase, what: Awaitable[Any], code: str, reason: str = "") -> ToolpostError:
    try:
        got = await what
    except ToolpostError as e:
        self.assertEqual((e.code, e.reason), (code, reason), str(e))
        self.assertTrue(e.message)
        return e
    self.fail(f"it was not refused: {got}")


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    while not await check():  # the test's own time limit ends it
        await asyncio.sleep(0.01)


async def runs(client: Any, call: str) -> bool:
    running = (await client.call("listCalls")).unwrap()["calls"]
    return any(c["call"] == call for c in running)


class Calls(unittest.TestCase):
    @on_both
    async def test_tools_are_listed(self, client: Any) -> None:
        tools = {t.name: t for t in await client.tools()}
        self.assertTrue(tools["echo"].available and tools["echo"].input == {"type": "object"})
        self.assertEqual(tools["wipe"].tier, 3)
        self.assertEqual((await client.tool("echo")).raw["protocol"], "narratoria")
        self.assertEqual((await refused(self, client.tool("nothing"), "not_found")).status, 404)
        await refused(self, client.tool(".."), "not_found")

    @on_both
    async def test_a_call_gives_back_what_was_sent(self, client: Any) -> None:
        value = {"text": "Zoë\u2028\x7f\U0001f600", "deep": [[{"n": 12345678901234567890}]], "none": None}
        result = await client.call("echo", value)
        self.assertEqual(result.unwrap(), value)
        self.assertTrue(result.call and result.trace["tool"] == "echo")
        await refused(self, client.call("echo", {"x": float("nan")}), "invalid_input")
        await refused(self, client.call("nothing"), "not_found")

    @on_both
    async def test_a_failure_is_an_outcome(self, client: Any) -> None:
        result = await client.call("fail")
        self.assertFalse(result.ok)
        with self.assertRaises(toolpost.ToolFailed) as failed:
            result.unwrap()
        self.assertEqual((failed.exception.code, failed.exception.reason), ("tool_error", "NoTorch"))

    @on_both
    async def test_events_come_in_order_and_then_the_result(self, client: Any) -> None:
        async with client.stream("steps", {"steps": 3}, session="streamed") as stream:
            with self.assertRaises(RuntimeError):
                stream.result
            events = [e async for e in stream]
        self.assertEqual([e.seq for e in events], [1, 2, 3, 4, 5])
        self.assertEqual([e.kind for e in events], ["log"] * 3 + ["state_patch", "asset"])
        self.assertEqual(stream.result.unwrap(), {"steps": 3})
        self.assertEqual(await client.asset(events[4].data["sha256"]), b"an asset")
        await refused(self, client.asset("0" * 64), "not_found")

    @on_both
    async def test_leaving_a_stream_cancels_the_call(self, client: Any) -> None:
        async with client.stream("forever") as stream:
            async for _ in stream:
                self.assertTrue(await runs(client, stream.call))
                break
        async def gone() -> bool:
            return not await runs(client, stream.call)
        await until(gone)

    @on_both
    async def test_a_call_is_cancelled_by_its_id(self, client: Any) -> None:
        async with client.stream("forever", call="mine" + str(time.monotonic_ns())) as stream:
            await stream.__anext__()
            await client.cancel(stream.call)
            with self.assertRaises(ToolpostError) as e:
                async for _ in stream:
                    pass
        self.assertEqual((e.exception.code, e.exception.call), ("cancelled", stream.call))

    @on_both
    async def test_a_timeout_is_the_servers(self, client: Any) -> None:
        e = await refused(self, client.call("forever", timeout=0.3), "timeout")
        self.assertIn("its caller gave it", e.message)

    @on_both
    async def test_options_of_a_call(self, client: Any) -> None:
        key = f"key-{time.monotonic_ns()}"
        first, second = await client.call("echo", {"n": 1}, key=key), await client.call("echo", {"n": 1}, key=key)
        self.assertFalse(first.trace["details"].get("idempotent_hit", False))
        self.assertTrue(second.trace["details"]["idempotent_hit"])
        await refused(self, client.call("echo", {"n": 2}, key=key), "conflict", "idempotency_conflict")
        self.assertIn("allow", json.dumps((await client.call("fail", dry_run=True)).unwrap()))
        await refused(self, client.call("wipe"), "lease_required")
        lease = (await client.call("lease.issue", {"tool": "wipe", "tier": 3})).unwrap()
        self.assertTrue((await client.call("wipe", lease=lease["token"])).ok)
        await refused(self, client.call("wipe", lease=lease["token"]), "lease_rejected", "already_consumed")
        await refused(self, client.call("echo", session="two\r\nToolpost-Lease: lines"), "invalid_input")
        with self.assertRaises(TypeError):
            await client.call("echo", sesion="misspelt")

    @on_both
    async def test_questions_are_answered(self, client: Any) -> None:
        asked = await client.call("greeter")
        self.assertEqual(asked.ask.message, "What is your name?")
        self.assertEqual(asked.ask.schema["required"], ["name"])
        with self.assertRaises(toolpost.ToolFailed):
            asked.unwrap()
        answered = await client.call("greeter", answers={"name": "Zoë\x7f"}, resume=asked.ask.id)
        self.assertEqual(answered.unwrap(), {"hello": "Zoë\x7f"})
        result = await client.call("greeter", ask=lambda ask: {"name": ask.id and "Ada"}, key=f"q{time.monotonic_ns()}")
        self.assertEqual(result.unwrap(), {"hello": "Ada"})
        await refused(self, client.call("greeter", ask=lambda _: {"nam": "Ada"}), "invalid_input", "invalid_answers")

    @on_both
    async def test_jobs(self, client: Any) -> None:
        job = await client.start("steps", {"steps": 3, "pause": 0.05}, session="job")
        async with client.watch(job.id) as stream:
            events = [e async for e in stream]
        self.assertEqual([e.seq for e in events], [1, 2, 3, 4, 5])
        ended = await client.job(job.id)
        self.assertEqual((ended.state, ended.ended, ended.result.unwrap()), ("done", True, {"steps": 3}))
        async with client.watch(job.id, after=4) as stream:
            self.assertEqual([(e.seq, e.kind) async for e in stream], [(5, "asset")])
        self.assertEqual((await client.state("job")).value, {"steps": 3})
        self.assertIn(job.id, [j.id for j in await client.jobs("done")])
        await refused(self, client.job("nothing"), "not_found")
        endless = await client.start("forever")
        await client.cancel_job(endless.id)
        self.assertEqual((await client.wait(endless.id)).state, "cancelled")

    @on_both
    async def test_a_job_that_asks_goes_on_when_it_is_answered(self, client: Any) -> None:
        job = await client.wait((await client.start("greeter")).id)
        self.assertEqual((job.state, job.result.ask.message), ("asked", "What is your name?"))
        await client.answer_job(job.id, {"name": "Ada"})
        async def done() -> bool:
            return (await client.job(job.id)).ended
        await until(done)
        self.assertEqual((await client.job(job.id)).result.unwrap(), {"hello": "Ada"})

    @on_both
    async def test_sessions(self, client: Any) -> None:
        session = f"s{time.monotonic_ns()}"
        self.assertEqual(await client.state(session), toolpost.State(0, {}))
        self.assertEqual(await client.patch(session, {"a": {"b": 1}, "c": 2}), 1)
        self.assertEqual(await client.patch(session, {"c": None}, if_version=1), 2)
        await refused(self, client.patch(session, {"c": 3}, if_version=1), "conflict", "session_changed")
        self.assertEqual(await client.state(session), toolpost.State(2, {"a": {"b": 1}}))
        await client.reset(session)
        self.assertEqual((await client.state(session)).value, {})

    @on_both
    async def test_a_refusal_that_says_when_is_followed(self, client: Any) -> None:
        for n in range(2):
            self.assertEqual((await client.call("seldom", {"n": n})).unwrap(), {"n": n})

    def test_a_refusal_says_when(self) -> None:
        with self.assertRaises(ToolpostError) as e:
            while True:
                Client(retries=0).call("seldom")
        self.assertEqual((e.exception.code, e.exception.reason), ("quota_exceeded", "rate"))
        self.assertGreater(e.exception.retry_after or 0, 0)

    @on_both
    async def test_a_long_stream_is_not_kept(self, client: Any) -> None:
        tracemalloc.start()
        async with client.stream("flood", {"events": 400, "size": 30000}) as stream:
            count = 0
            async for _ in stream:
                count += 1
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertEqual(count, 400)
        self.assertLess(peak, 2 << 20, "12 MB came")


class Peers(unittest.TestCase):
    def both(self, *args: Any, **more: Any) -> list[Any]:
        return [Awaited(Client(*args, **more)), AsyncClient(*args, **more)]

    def test_bad_answers_are_errors(self) -> None:
        for case, want in HOSTILE.items():
            silence = 0.5 if case == "silence" else 60
            for client in self.both(os.environ["CLIENTS_HOSTILE_URL"] + "/" + case, silence=silence, retries=1):
                with self.subTest(case):
                    codes = asyncio.run(self.tried(client))
                    self.assertEqual(codes, (want["Call"], want["List"]), case)

    async def tried(self, client: Any) -> tuple[str, str]:
        """The codes of a call and of a list."""
        codes: list[str] = []
        for what in (client.call("echo"), client.tools()):
            try:
                await what
                codes.append("")
            except ToolpostError as e:
                codes.append(e.code)
        return codes[0], codes[1]

    def test_tls_sockets_and_tokens(self) -> None:
        wrong = "not-the-token-0123456789"
        for client in self.both(os.environ["CLIENTS_TLS_URL"], ca=os.environ["CLIENTS_CA"]):
            asyncio.run(client.call("echo"))
        for client in self.both(os.environ["CLIENTS_TLS_URL"], retries=0):
            e = asyncio.run(refused(self, client.call("echo"), "unavailable", "unreachable"))
            self.assertIn("certificate", e.message)
        for client in self.both("unix:" + os.environ["CLIENTS_SOCKET"]):
            self.assertEqual(asyncio.run(client.call("echo", {"n": 1})).unwrap(), {"n": 1})
        for client in self.both(token=wrong):
            e = asyncio.run(refused(self, client.call("echo"), "access_denied", "unauthenticated"))
            self.assertTrue(e.status == 401 and wrong not in str(e))
        token = os.environ.pop("TOOLPOST_TOKEN")
        try:
            asyncio.run(refused(self, AsyncClient().call("echo"), "access_denied", "unauthenticated"))
            os.environ["TOOLPOST_TOKEN_FILE"] = "token"
            with open("token", "w") as file:
                file.write(token + "\n")
            Client().call("echo")
        finally:
            os.environ["TOOLPOST_TOKEN"] = token

    def test_addresses_that_are_none(self) -> None:
        for url in ("127.0.0.1:8700", "ftp://x", "http://", "http://a:b@c", "http://x?y", "http://x:port", "http://[::1"):
            with self.subTest(url), self.assertRaises(ToolpostError):
                Client(url)
        for client in self.both(os.environ["CLIENTS_NOBODY_URL"]):
            asyncio.run(refused(self, client.call("echo"), "unavailable", "unreachable"))

    def test_a_watch_goes_on_where_it_was_cut(self) -> None:
        job = Client().start("steps", {"steps": 6, "pause": 0.05}).id
        for client in self.both(os.environ["CLIENTS_CUTTING_URL"]):
            async def seen() -> list[int]:
                async with client.watch(job) as stream:
                    return [e.seq async for e in stream]
            self.assertEqual(asyncio.run(seen()), list(range(1, 9)))


class Async(unittest.IsolatedAsyncioTestCase):
    async def test_a_cancelled_task_cancels_its_call(self) -> None:
        client, call = AsyncClient(), f"c{time.monotonic_ns()}"
        task = asyncio.ensure_future(client.call("forever", call=call))
        async def begun() -> bool:
            return await runs(client, call)
        await until(begun)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        async def gone() -> bool:
            return not await runs(client, call)
        await until(gone)

    async def test_a_cancellation_that_comes_with_a_result_is_kept(self) -> None:
        came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        unwanted: list[bytes] = []
        waiting = asyncio.ensure_future(toolpost._within(came, 60, unwanted.append))
        await asyncio.sleep(0)
        came.set_result(b"x")
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        self.assertEqual(unwanted, [b"x"])

    async def test_many_calls_at_once_need_no_threads(self) -> None:
        client = AsyncClient()
        before = threading.active_count()
        results = await asyncio.gather(*(client.call("echo", {"n": n}) for n in range(20)))
        self.assertEqual([r.unwrap() for r in results], [{"n": n} for n in range(20)])
        self.assertEqual(threading.active_count(), before)

    async def test_questions_may_be_answered_by_a_coroutine(self) -> None:
        async def ask(_: toolpost.Ask) -> Any:
            await asyncio.sleep(0)
            return {"name": "Grace"}
        self.assertEqual((await AsyncClient().call("greeter", ask=ask)).unwrap(), {"hello": "Grace"})


if __name__ == "__main__":
    unittest.main()
