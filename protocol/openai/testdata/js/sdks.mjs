// Does what each line of its input says with a library for models, and prints what the program that uses it gets.
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { betaZodOutputFormat, betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { generateText, streamText, tool, stepCountIs, Output } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createAnthropic } from "@ai-sdk/anthropic";
import { ChatOpenAI } from "@langchain/openai";
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import * as z from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;
const picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const Place = z.object({ city: z.string().describe("where to look") });
const Answer = z.object({ verdict: z.string(), score: z.number() });
const weather = { name: "weather", description: "Tells the weather of a city." };
const look = ({ city }) => `It is sunny in ${city}.`;
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };

async function chat(o) {
  const client = new OpenAI({ baseURL: o.url + "/v1", apiKey: o.token, maxRetries: 0 });
  const image = { type: "image_url", image_url: { url: "data:image/png;base64," + picture, detail: "low" } };
  const content = o.image ? [{ type: "text", text: "Look." }, image] : "Go.";
  const params = {
    model: o.model, max_completion_tokens: 100, temperature: 0.5, ...o.more,
    messages: [{ role: "system", content: "Be brief." }, { role: "user", content }],
  };
  if (o.structured) {
    const done = await client.chat.completions.parse({ ...params, response_format: zodResponseFormat(Answer, "answer") });
    return { object: done.choices[0].message.parsed, finish: done.choices[0].finish_reason };
  }
  if (o.tools) {
    const fn = { ...weather, parameters: schema, strict: true, parse: JSON.parse, function: look };
    const runner = client.chat.completions.runTools({ ...params, stream: o.stream, tools: [{ type: "function", function: fn }] });
    const text = await runner.finalContent();
    const calls = runner.messages.flatMap((m) => m.tool_calls ?? []).map((c) => [c.id, c.function.name, c.function.arguments]);
    return { text, calls, tokens: o.stream ? null : (await runner.totalUsage()).total_tokens };
  }
  let done;
  if (o.stream) {
    done = await client.chat.completions.stream({ ...params, stream_options: { include_usage: true } }).finalChatCompletion();
  } else done = await client.chat.completions.create(params);
  return { text: done.choices[0].message.content, finish: done.choices[0].finish_reason, tokens: done.usage.total_tokens };
}

async function responses(o) {
  const client = new OpenAI({ baseURL: o.url + "/v1", apiKey: o.token, maxRetries: 0 });
  const image = { type: "input_image", image_url: "data:image/png;base64," + picture, detail: "low" };
  const input = [{ role: "user", content: o.image ? [{ type: "input_text", text: "Look." }, image] : "Go." }];
  const params = { model: o.model, instructions: "Be brief.", max_output_tokens: 100, temperature: 0.5, ...o.more };
  if (o.structured) {
    const done = await client.responses.parse({ ...params, input, text: { format: zodTextFormat(Answer, "answer") } });
    return { object: done.output_parsed, finish: done.status };
  }
  if (o.tools) params.tools = [{ type: "function", ...weather, parameters: schema, strict: true }];
  for (const all = [], used = { tokens: 0 }; ; ) {
    const ask = { ...params, input };
    const done = o.stream ? await client.responses.stream(ask).finalResponse() : await client.responses.create(ask);
    if (done.error) throw Object.assign(new Error(done.error.message), { code: done.error.code });
    used.tokens += done.usage.total_tokens;
    input.push(...done.output);
    const calls = done.output.filter((i) => i.type === "function_call");
    if (calls.length === 0) return { text: done.output_text, calls: all, finish: done.status, ...used };
    for (const c of calls) {
      all.push([c.call_id, c.name, c.arguments]);
      input.push({ type: "function_call_output", call_id: c.call_id, output: look(JSON.parse(c.arguments)) });
    }
  }
}

function claudeParams(o) {
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: picture } };
  return {
    model: o.model, max_tokens: 100, temperature: 0.5, system: "Be brief.", ...o.more,
    messages: [{ role: "user", content: o.image ? [{ type: "text", text: "Look." }, image] : "Go." }],
  };
}

const textOf = (m) => m.content.filter((b) => b.type === "text").map((b) => b.text).join("");
const usedBy = (u) => u.input_tokens + u.cache_read_input_tokens + u.output_tokens;

async function messages(o) {
  const client = new Anthropic({ baseURL: o.url, apiKey: o.token, maxRetries: 0 });
  const params = claudeParams(o);
  if (o.structured) {
    const done = await client.messages.parse({ ...params, output_config: { format: zodOutputFormat(Answer) } });
    return { object: done.parsed_output, finish: done.stop_reason };
  }
  if (o.tools) params.tools = [{ ...weather, input_schema: schema }];
  for (const all = [], used = { tokens: 0 }; ; ) {
    const done = o.stream ? await client.messages.stream(params).finalMessage() : await client.messages.create(params);
    used.tokens += usedBy(done.usage);
    const calls = done.content.filter((b) => b.type === "tool_use");
    if (calls.length === 0) return { text: textOf(done), calls: all, finish: done.stop_reason, ...used };
    for (const c of calls) all.push([c.id, c.name, c.input]);
    const content = calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: look(c.input) }));
    params.messages.push({ role: "assistant", content: done.content }, { role: "user", content });
  }
}

async function toolRunner(o) {
  const client = new Anthropic({ baseURL: o.url, apiKey: o.token, maxRetries: 0 });
  const params = { ...claudeParams(o), stream: o.stream, tools: [] };
  if (o.structured) params.output_config = { format: betaZodOutputFormat(Answer) };
  if (o.tools) params.tools = [betaZodTool({ ...weather, inputSchema: Place, run: look })];
  const calls = [];
  let used = 0, last;
  for await (const one of client.beta.messages.toolRunner(params)) {
    last = o.stream ? await one.finalMessage() : one;
    used += usedBy(last.usage);
    calls.push(...last.content.filter((b) => b.type === "tool_use").map((c) => [c.id, c.name, c.input]));
  }
  const object = o.structured ? { object: last.parsed_output } : {};
  return { text: textOf(last), calls, finish: last.stop_reason, tokens: used, ...object };
}

// vercel gives a client of ai, with the model of one of its providers.
function vercel(provider, settings) {
  return async (o) => {
    const image = { type: "image", image: "data:image/png;base64," + picture };
    const content = o.image ? [{ type: "text", text: "Look." }, image] : "Go.";
    const params = {
      model: provider(o)(o.model), system: "Be brief.", maxOutputTokens: 100, temperature: 0.5, maxRetries: 0, ...settings,
      messages: [{ role: "user", content }], stopWhen: stepCountIs(5),
      ...(o.tools ? { tools: { weather: tool({ description: weather.description, inputSchema: Place, execute: look }) } } : {}),
      ...(o.structured ? { output: Output.object({ schema: Answer }) } : {}),
    };
    let done;
    if (o.stream) {
      let failed;
      done = streamText({ ...params, onError: ({ error }) => (failed = error) });
      await done.consumeStream({ onError: (error) => (failed ??= error) });
      if (failed) throw failed;
    } else done = await generateText(params);
    const steps = await done.steps;
    return {
      text: await done.text, calls: steps.flatMap((s) => s.toolCalls).map((c) => [c.toolCallId, c.toolName, c.input]),
      finish: await done.finishReason, tokens: (await done.totalUsage).totalTokens,
      ...(o.structured ? { object: await done.output } : {}),
    };
  };
}

// langchain gives a client of LangChain, with one of its models.
function langchain(made) {
  return async (o) => {
    let model = made(o);
    const image = { type: "image_url", image_url: { url: "data:image/png;base64," + picture } };
    const content = o.image ? [{ type: "text", text: "Look." }, image] : "Go.";
    const said = [new SystemMessage("Be brief."), new HumanMessage({ content })];
    if (o.structured) {
      return { object: await model.withStructuredOutput(Answer, { name: "answer", method: "jsonSchema" }).invoke(said) };
    }
    if (o.tools) model = model.bindTools([{ type: "function", function: { ...weather, parameters: schema } }]);
    for (const all = [], used = { tokens: 0 }; ; ) {
      let done;
      if (o.stream) {
        for await (const piece of await model.stream(said)) done = done ? done.concat(piece) : piece;
      } else done = await model.invoke(said);
      used.tokens += done.usage_metadata.total_tokens;
      said.push(done);
      if (done.tool_calls.length === 0) return { text: done.text, calls: all, ...used };
      for (const c of done.tool_calls) {
        all.push([c.id, c.name, c.args]);
        said.push(new ToolMessage({ tool_call_id: c.id, content: look(c.args) }));
      }
    }
  };
}

const v1 = (o) => ({ baseURL: o.url + "/v1", apiKey: o.token });
const openAIChain = (o, more) =>
  new ChatOpenAI({
    model: o.model, apiKey: o.token, configuration: { baseURL: o.url + "/v1" }, maxRetries: 0, temperature: 0.5,
    maxTokens: 100, modelKwargs: o.more, ...more,
  });
const clients = {
  "openai, chat": chat,
  "openai, responses": responses,
  "@anthropic-ai/sdk, messages": messages,
  "@anthropic-ai/sdk, toolRunner": toolRunner,
  "ai, openai": vercel((o) => createOpenAI(v1(o))),
  "ai, openai with store: false": vercel((o) => createOpenAI(v1(o)), { providerOptions: { openai: { store: false } } }),
  "ai, openai.chat": vercel((o) => createOpenAI(v1(o)).chat),
  "ai, openai-compatible": vercel((o) =>
    createOpenAICompatible({ name: "own", includeUsage: true, supportsStructuredOutputs: true, ...v1(o) })),
  "ai, anthropic": vercel((o) => createAnthropic(v1(o))),
  "langchain, ChatOpenAI": langchain((o) => openAIChain(o, {})),
  "langchain, ChatOpenAI with responses": langchain((o) => openAIChain(o, { useResponsesApi: true })),
  "langchain, ChatAnthropic": langchain((o) =>
    new ChatAnthropic({ model: o.model, apiKey: o.token, anthropicApiUrl: o.url, maxRetries: 0, temperature: 0.5,
      maxTokens: 100, invocationKwargs: o.more })),
};

for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  try {
    console.log(JSON.stringify(await clients[order.client](order)));
  } catch (e) {
    const cause = e?.lastError ?? e;
    console.log(JSON.stringify({ error: String(cause?.message ?? cause), status: cause?.status ?? cause?.statusCode ?? 0,
      retry: cause?.isRetryable ?? null, name: cause?.name ?? cause?.constructor?.name ?? "" }));
  }
}
process.exit(0);
