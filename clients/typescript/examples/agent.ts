/**
 * An agent in forty lines: a model that speaks OpenAI's chat completions, and the tools of a Toolpost.
 *
 *     TOOLPOST_TOKEN=... MODEL_URL=http://127.0.0.1:9000/v1 MODEL=demo node agent.ts "What is in the README?"
 */
import { Toolpost, ToolpostError } from "toolpost";

declare const process: { argv: string[]; env: Record<string, string | undefined>; exitCode: number };
type Message = { role: string; content: string | null; tool_call_id?: string; tool_calls?: Call[] };
type Call = { id: string; function: { name: string; arguments: string } };

const { MODEL_URL, MODEL, MODEL_KEY } = process.env;
const toolpost = new Toolpost();
const usable = (await toolpost.tools()).filter((tool) => tool.available && !tool.unlisted);
const tools = new Map(usable.map((tool) => [tool.name.replace(/[^a-zA-Z0-9_-]/g, "_").slice(0, 64), tool]));
const offered = [...tools].map(([name, { description, input = { type: "object" } }]) =>
  ({ type: "function", function: { name, description, parameters: input } }));

async function think(messages: Message[]): Promise<Message> {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${MODEL_KEY ?? ""}` };
  const body = JSON.stringify({ model: MODEL, messages, tools: offered });
  const answer = await fetch(`${MODEL_URL}/chat/completions`, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(`the model answered ${answer.status}: ${await answer.text()}`);
  return ((await answer.json()) as { choices: [{ message: Message }] }).choices[0].message;
}

async function use({ name, arguments: text }: Call["function"]): Promise<string> {
  const tool = tools.get(name);
  if (!tool) return `error: there is no tool ${name}`;
  try {
    return JSON.stringify((await toolpost.call(tool.name, JSON.parse(text || "{}"), { timeout: 300_000 })).unwrap());
  } catch (e) { // the model reads what went wrong, and what to do
    if (e instanceof ToolpostError || e instanceof SyntaxError) return `error: ${e.message}`;
    throw e;
  }
}

const messages: Message[] = [{ role: "user", content: process.argv.slice(2).join(" ") }];
let last = messages[0]!;
for (let round = 0; round < 20 && (round === 0 || last.tool_calls); round++) {
  messages.push((last = await think(messages)));
  for (const call of last.tool_calls ?? []) {
    messages.push({ role: "tool", tool_call_id: call.id, content: await use(call.function) });
  }
}
console.log(last.content ?? "the model still wants tools after 20 rounds");
