// Asks with an official client as each line of its input says, and prints what was answered.
import { createInterface } from "node:readline";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";

const schema = { type: "object", properties: {} };

function only(tools) {
  return tools.length > 0 ? { tools } : {};
}

async function chat(order, own) {
  const client = new OpenAI({ baseURL: order.url + "/v1", apiKey: order.token, maxRetries: 0 });
  const params = {
    model: order.model,
    messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Go." }],
    ...only(own.map((name) => ({ type: "function", function: { name, parameters: schema } }))),
  };
  let done;
  if (order.stream) {
    const stream = client.chat.completions.stream({ ...params, stream_options: { include_usage: true } });
    let pieces = "";
    stream.on("content", (delta) => (pieces += delta));
    done = await stream.finalChatCompletion();
    if (pieces !== (done.choices[0].message.content ?? "")) throw new Error(`the pieces are ${pieces}`);
  } else {
    done = await client.chat.completions.create(params);
  }
  const { message, finish_reason } = done.choices[0];
  return {
    text: message.content ?? "",
    calls: (message.tool_calls ?? []).map((c) => c.function.name + c.function.arguments).join(""),
    finish: finish_reason,
    tokens: done.usage.total_tokens,
  };
}

async function responses(order, own) {
  const client = new OpenAI({ baseURL: order.url + "/v1", apiKey: order.token, maxRetries: 0 });
  const params = {
    model: order.model,
    instructions: "Be brief.",
    input: "Go.",
    ...only(own.map((name) => ({ type: "function", name, parameters: schema, strict: false }))),
  };
  let done;
  if (order.stream) {
    const stream = client.responses.stream(params);
    let pieces = "";
    stream.on("response.output_text.delta", (e) => (pieces += e.delta));
    stream.on("response.failed", (e) => {
      throw new Error(e.response.error.message);
    });
    done = await stream.finalResponse();
    if (done.error) throw new Error(done.error.message);
    if (pieces !== done.output_text) throw new Error(`the pieces are ${pieces}, the whole is ${done.output_text}`);
  } else {
    done = await client.responses.create(params);
  }
  return {
    text: done.output_text,
    calls: done.output.filter((i) => i.type === "function_call").map((i) => i.name + i.arguments).join(""),
    finish: done.status,
    tokens: done.usage.total_tokens,
  };
}

async function messages(order, own) {
  const client = new Anthropic({ baseURL: order.url, apiKey: order.token, maxRetries: 0 });
  const params = {
    model: order.model,
    max_tokens: 1000,
    system: "Be brief.",
    messages: [{ role: "user", content: "Go." }],
    ...only(own.map((name) => ({ name, input_schema: schema }))),
  };
  let done;
  if (order.stream) {
    const stream = client.messages.stream(params);
    let pieces = "";
    stream.on("text", (delta) => (pieces += delta));
    done = await stream.finalMessage();
    const whole = done.content.filter((b) => b.type === "text").map((b) => b.text).join("");
    if (pieces !== whole) throw new Error(`the pieces are ${pieces}, the whole is ${whole}`);
  } else {
    done = await client.messages.create(params);
  }
  const u = done.usage;
  return {
    text: done.content.filter((b) => b.type === "text").map((b) => b.text).join(""),
    calls: done.content.filter((b) => b.type === "tool_use").map((b) => b.name + JSON.stringify(b.input)).join(""),
    finish: done.stop_reason,
    tokens: u.input_tokens + u.cache_read_input_tokens + u.output_tokens,
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  try {
    console.log(JSON.stringify(await { chat, responses, messages }[order.wire](order, order.own ?? [])));
  } catch (e) {
    console.log(JSON.stringify({ error: String(e?.stack ?? e) + JSON.stringify(e?.error ?? null) }));
  }
}
process.exit(0);
