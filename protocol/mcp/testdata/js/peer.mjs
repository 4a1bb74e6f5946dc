// An agent, on the official SDK for TypeScript: does what an agent does with a server, and prints what came of it as
// JSON. The SDK holds every message that it gets against its own schemas of the protocol.
//
//   peer.mjs ERA http URL TOKEN | peer.mjs ERA stdio COMMAND...
//
// ERA is modern or legacy (both by the SDK 2.x), or first (the SDK 1.x, which knows the legacy era alone).
const [era, over, ...where] = process.argv.slice(2);
const info = { name: "agent", version: "1" };
const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
const answers = {
  "elicitation/create": async () => ({ action: "accept", content: { username: "ada", email: "ada@example.org", name: "Ada", ok: true } }),
  "sampling/createMessage": async () =>
    ({ role: "assistant", content: { type: "text", text: "Paris" }, model: "none", stopReason: "endTurn" }),
  "roots/list": async () => ({ roots: [{ uri: "file:///work", name: "work" }] }),
};
let changed;
const news = new Promise((resolve) => (changed = resolve));

async function second() {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
  const listChanged = { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => changed("tools") } };
  const client = new Client(info, { capabilities, versionNegotiation: { mode }, listChanged });
  for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
  return [client, StreamableHTTPClientTransport, StdioClientTransport];
}

async function first() {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const types = await import("@modelcontextprotocol/sdk/types.js");
  const client = new Client(info, { capabilities });
  client.setRequestHandler(types.ElicitRequestSchema, answers["elicitation/create"]);
  client.setRequestHandler(types.CreateMessageRequestSchema, answers["sampling/createMessage"]);
  client.setRequestHandler(types.ListRootsRequestSchema, answers["roots/list"]);
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => changed("tools"));
  return [client, StreamableHTTPClientTransport, StdioClientTransport];
}

const [client, HTTP, Stdio] = await (era === "first" ? first() : second());
await client.connect(
  over === "http"
    ? new HTTP(new URL(where[0]), { requestInit: { headers: { Authorization: "Bearer " + where[1] } } })
    : new Stdio({ command: where[0], args: where.slice(1), env: process.env, stderr: "inherit" }),
);
const call = (name, args = {}, options, meta) => {
  const params = { name, arguments: args, ...(meta && { _meta: meta }) };
  return era === "first" ? client.callTool(params, undefined, options) : client.callTool(params, options);
};
const text = (result) => result.content.map((c) => c.text ?? c.type).join("|");
const report = { version: client.getNegotiatedProtocolVersion?.() ?? "2025-11-25" };
const tools = (await client.listTools()).tools;
report.tools = tools.length;
report.schema = tools.find((t) => t.name === "json_schema_2020_12_tool").inputSchema.$defs.address.$anchor;
report.simple = text(await call("test_simple_text"));
report.kinds = (await call("test_multiple_content_types")).content.map((c) => c.type);
const steps = [];
await call("test_tool_with_progress", {}, { onprogress: (p) => steps.push(p.progress) });
report.progress = steps;
const failed = await call("test_error_handling");
report.failed = [failed.isError, text(failed)];
report.unknown = await call("nobody").then(() => "was called", (e) => e.code);
report.invalid = (await call("test_x_mcp_header", { region: 7 }).catch((e) => ({ isError: true, content: [{ text: e.message }] }))).isError;
report.asked = text(await call("test_elicitation", { message: "Who?" }));
report.sampled = text(await call("test_sampling", { prompt: "Where?" }));
report.several = text(await call("test_input_required_result_multiple_inputs"));
const stop = new AbortController();
const hanging = call("test_tool_with_progress", {}, { signal: stop.signal, onprogress: () => stop.abort("enough") });
report.cancelled = await hanging.then(() => "was answered", () => "cancelled");
report.prompts = (await client.listPrompts()).prompts.map((p) => p.name);
const prompt = async (name, args) => (await client.getPrompt({ name, arguments: args })).messages.map((m) => m.content.text ?? m.content.type).join("|");
report.skill = await prompt("review");
report.prompt = await prompt("test_prompt_with_arguments", { arg1: "a", arg2: "b" });
report.picture = await prompt("test_prompt_with_image");
report.resources = (await client.listResources()).resources.map((r) => r.uri);
report.templates = (await client.listResourceTemplates()).resourceTemplates.map((r) => r.uriTemplate);
const read = async (uri) => (await client.readResource({ uri })).contents.map((c) => c.text ?? c.mimeType).join("|");
report.read = await Promise.all(["test://template/7/data", "test://static-binary", "skill://review/SKILL.md"].map(read));
report.missing = await read("test://nothing").catch((e) => e.code);
const link = (await call("large_file")).content.find((c) => c.type === "resource_link");
report.link = [link.name, link.size, (await client.readResource({ uri: link.uri })).contents[0].blob.length];
await call("remember", { word: era }, undefined, { "toolpost/session": "a tale" });
report.session = JSON.parse(await read("toolpost://sessions/a%20tale")).state.word;
if (over === "http") {
  await call("test_trigger_tool_change");
  report.news = await Promise.race([news, new Promise((r) => setTimeout(r, 60000, "nothing was told"))]);
}
console.log(JSON.stringify(report));
await client.close();
process.exit(0);
