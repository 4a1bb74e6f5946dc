// Tests against a real server: clients/clients_test.go starts it, and this.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Result, Stream, ToolFailed, Toolpost, ToolpostError } from "toolpost";

const toolpost = new Toolpost();
const unique = (name) => `${name}-${Date.now()}-${Math.random().toString(16).slice(2)}`;

async function refused(what, code, reason = "") {
  try {
    assert.fail(`it was not refused: ${JSON.stringify(await what)}`);
  } catch (e) {
    assert.ok(e instanceof ToolpostError, e);
    assert.deepEqual([e.code, e.reason], [code, reason], e.message);
    return e;
  }
}

async function until(check) {
  while (!(await check())) await new Promise((resolve) => setTimeout(resolve, 10));
}

async function runs(call) {
  return (await toolpost.call("listCalls")).unwrap().calls.some((one) => one.call === call);
}

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

test("tools are listed", async () => {
  const tools = new Map((await toolpost.tools()).map((tool) => [tool.name, tool]));
  assert.ok(tools.get("echo").available);
  assert.deepEqual(tools.get("echo").input, { type: "object" });
  assert.equal(tools.get("wipe").tier, 3);
  assert.equal((await toolpost.tool("echo")).protocol, "narratoria");
  assert.equal((await refused(toolpost.tool("nothing"), "not_found")).status, 404);
  await refused(toolpost.tool(".."), "not_found");
});

test("a call gives back what was sent", async () => {
  const value = { text: "Zoë\u2028\x7f\u{1f600}", deep: [[{ n: 1.5 }]], none: null };
  const result = await toolpost.call("echo", value);
  assert.ok(result instanceof Result && result.call !== "" && result.trace.tool === "echo");
  assert.deepEqual(result.unwrap(), value);
  await refused(toolpost.call("nothing"), "not_found");
});

test("a failure is an outcome", async () => {
  const result = await toolpost.call("fail");
  assert.equal(result.ok, false);
  assert.throws(() => result.unwrap(), (e) => e instanceof ToolFailed && e.code === "tool_error" && e.reason === "NoTorch");
});

test("events come in order, and then the result", async () => {
  const stream = toolpost.stream("steps", { steps: 3 }, { session: "streamed" });
  assert.ok(stream instanceof Stream);
  assert.throws(() => stream.result);
  const events = await all(stream);
  assert.deepEqual(events.map((e) => e.seq), [1, 2, 3, 4, 5]);
  assert.deepEqual(events.map((e) => e.kind), ["log", "log", "log", "state_patch", "asset"]);
  assert.deepEqual(stream.result.unwrap(), { steps: 3 });
  assert.equal(new TextDecoder().decode(await toolpost.asset(events[4].data.sha256)), "an asset");
  await refused(toolpost.asset("0".repeat(64)), "not_found");
});

test("leaving a stream cancels the call", async () => {
  const stream = toolpost.stream("forever");
  for await (const _ of stream) {
    assert.ok(await runs(stream.call));
    break;
  }
  await until(async () => !(await runs(stream.call)));
});

test("a signal cancels the call", async () => {
  const control = new AbortController();
  const call = unique("c");
  const calling = toolpost.call("forever", {}, { call, signal: control.signal });
  await until(() => runs(call));
  control.abort(new Error("enough"));
  await assert.rejects(calling, /enough/);
  await until(async () => !(await runs(call)));
  await assert.rejects(toolpost.call("echo", {}, { signal: control.signal }), /enough/);
  await assert.rejects(toolpost.tools(control.signal), /enough/);
});

test("a call is cancelled by its id", async () => {
  const stream = toolpost.stream("forever");
  const e = await refused((async () => {
    for await (const event of stream) if (event.seq === 1) await toolpost.cancel(stream.call);
  })(), "cancelled");
  assert.equal(e.call, stream.call);
});

test("a timeout is the server's", async () => {
  assert.match((await refused(toolpost.call("forever", {}, { timeout: 300 }), "timeout")).message, /its caller gave it/);
});

test("options of a call", async () => {
  const key = unique("key");
  const [first, second] = [await toolpost.call("echo", { n: 1 }, { key }), await toolpost.call("echo", { n: 1 }, { key })];
  assert.ok(!first.trace.details.idempotent_hit && second.trace.details.idempotent_hit);
  await refused(toolpost.call("echo", { n: 2 }, { key }), "conflict", "idempotency_conflict");
  assert.match(JSON.stringify((await toolpost.call("fail", {}, { dryRun: true })).unwrap()), /allow/);
  await refused(toolpost.call("wipe"), "lease_required");
  const lease = (await toolpost.call("lease.issue", { tool: "wipe", tier: 3 })).unwrap().token;
  assert.ok((await toolpost.call("wipe", {}, { lease })).ok);
  await refused(toolpost.call("wipe", {}, { lease }), "lease_rejected", "already_consumed");
  await refused(toolpost.call("echo", {}, { session: "two\r\nToolpost-Lease: lines" }), "invalid_input");
  const session = unique("Zoë");
  await toolpost.call("steps", { steps: 1 }, { session });
  assert.deepEqual((await toolpost.state(session)).value, { steps: 1 });
});

test("questions are answered", async () => {
  const asked = await toolpost.call("greeter");
  assert.equal(asked.ask.message, "What is your name?");
  assert.throws(() => asked.unwrap(), ToolFailed);
  const answered = await toolpost.call("greeter", {}, { answers: { name: "Zoë\x7f" }, resume: asked.ask.id });
  assert.deepEqual(answered.unwrap(), { hello: "Zoë\x7f" });
  const result = await toolpost.call("greeter", {}, { ask: async () => ({ name: "Ada" }), key: unique("q") });
  assert.deepEqual(result.unwrap(), { hello: "Ada" });
  await refused(toolpost.call("greeter", {}, { ask: () => ({ nam: "Ada" }) }), "invalid_input", "invalid_answers");
});

test("jobs", async () => {
  const job = await toolpost.start("steps", { steps: 3, pause: 0.05 }, { session: "job" });
  assert.deepEqual((await all(toolpost.watch(job.id))).map((e) => e.seq), [1, 2, 3, 4, 5]);
  const ended = await toolpost.job(job.id);
  assert.equal(ended.state, "done");
  assert.deepEqual(ended.result.unwrap(), { steps: 3 });
  assert.deepEqual((await all(toolpost.watch(job.id, 4))).map((e) => [e.seq, e.kind]), [[5, "asset"]]);
  assert.ok((await toolpost.jobs({ state: "done" })).some((one) => one.id === job.id));
  await refused(toolpost.job("nothing"), "not_found");
  const endless = await toolpost.start("forever");
  await toolpost.cancelJob(endless.id);
  assert.equal((await toolpost.wait(endless.id)).state, "cancelled");
  const asking = await toolpost.wait((await toolpost.start("greeter")).id);
  assert.deepEqual([asking.state, asking.result.ask.message], ["asked", "What is your name?"]);
  await toolpost.answerJob(asking.id, { name: "Ada" });
  await until(async () => (await toolpost.job(asking.id)).state === "done");
});

test("a watch goes on where it was cut", async () => {
  const job = await toolpost.start("steps", { steps: 6, pause: 0.05 });
  const cut = new Toolpost({ url: process.env.CLIENTS_CUTTING_URL });
  assert.deepEqual((await all(cut.watch(job.id))).map((e) => e.seq), [1, 2, 3, 4, 5, 6, 7, 8]);
});

test("sessions", async () => {
  const session = unique("s");
  assert.deepEqual(await toolpost.state(session), { version: 0, value: {} });
  assert.equal(await toolpost.patch(session, { a: { b: 1 }, c: 2 }), 1);
  assert.equal(await toolpost.patch(session, { c: null }, 1), 2);
  await refused(toolpost.patch(session, { c: 3 }, 1), "conflict", "session_changed");
  assert.deepEqual(await toolpost.state(session), { version: 2, value: { a: { b: 1 } } });
  await toolpost.reset(session);
  assert.deepEqual((await toolpost.state(session)).value, {});
});

test("a refusal that says when is followed", async () => {
  for (const n of [1, 2]) assert.deepEqual((await toolpost.call("seldom", { n })).unwrap(), { n });
  const impatient = new Toolpost({ retries: 0 });
  const e = await refused((async () => { for (;;) await impatient.call("seldom"); })(), "quota_exceeded", "rate");
  assert.ok(e.retryAfter > 0);
});

test("bad answers are errors", async () => {
  for (const [name, want] of Object.entries(JSON.parse(process.env.CLIENTS_HOSTILE))) {
    const silence = name === "silence" ? 500 : 60_000;
    const peer = new Toolpost({ url: `${process.env.CLIENTS_HOSTILE_URL}/${name}`, silence, retries: 1 });
    for (const [what, code] of [[() => peer.call("echo"), want.Call], [() => peer.tools(), want.List]]) {
      await assert.rejects(what, (e) => {
        assert.ok(e instanceof ToolpostError, `${name}: ${e}`);
        if (!want.Below) assert.equal(e.code, code, name); // else it is wrong below what fetch and JSON.parse tell
        return true;
      });
    }
  }
});

test("tokens and addresses", async () => {
  const wrong = new Toolpost({ token: () => "not-the-token-0123456789" });
  assert.equal((await refused(wrong.call("echo"), "access_denied", "unauthenticated")).status, 401);
  assert.ok((await new Toolpost({ token: async () => process.env.TOOLPOST_TOKEN }).call("echo")).ok);
  for (const url of ["ftp://x", "http://a:b@c", "http://x?y", "nowhere"]) assert.throws(() => new Toolpost({ url }), url);
  await refused(new Toolpost({ url: process.env.CLIENTS_NOBODY_URL }).call("echo"), "unavailable", "unreachable");
  await refused(new Toolpost({ url: process.env.CLIENTS_TLS_URL }).call("echo"), "crash", "disconnected");
});

test("a long stream is not kept", async () => {
  let count = 0;
  const before = process.memoryUsage().rss;
  for await (const _ of toolpost.stream("flood", { events: 400, size: 30_000 })) count++;
  assert.equal(count, 400);
  assert.ok(process.memoryUsage().rss - before < 100 << 20);
});
