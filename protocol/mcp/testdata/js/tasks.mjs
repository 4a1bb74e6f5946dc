// A client of the official TypeScript SDK 1.x that has a tool run as a task: tasks.mjs URL TOKEN TOOL. It prints what it gets.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [url, token, name] = process.argv.slice(2);
const client = new Client({ name: 'agent', version: '1' }, { capabilities: { elicitation: { form: {} } } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: { answer: 'Ada' } }));
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: 'Bearer ' + token } } }));
await client.listTools(); // it says which tools run as tasks
for await (const got of client.experimental.tasks.callToolStream({ name, arguments: {} })) {
    console.log(got.type, got.task?.status ?? got.result?.content[0].text ?? got.error.message);
}
await client.close();
process.exit(0);
