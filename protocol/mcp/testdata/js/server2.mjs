// A server of the official TypeScript SDK 2.x, which speaks both eras, over stdio or, with "http", over HTTP. It prints the
// port that it listens on.
import { createServer } from 'node:http';
import { createMcpHandler, inputRequired, acceptedContent, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

function make() {
    const server = new McpServer({ name: 'sdk2', version: '1.0.0' }, { capabilities: { tools: {} } });
    server.registerTool('greet', { description: 'Greets.', inputSchema: z.object({ name: z.string() }) }, async ({ name }) => ({
        content: [{ type: 'text', text: `Hello, ${name}` }],
    }));
    return server;
}

if (process.argv[2] === 'http') {
    const handler = createMcpHandler(make);
    const front = createServer(async (req, res) => {
        const parts = [];
        for await (const part of req) parts.push(part);
        const body = Buffer.concat(parts);
        const answer = await handler.fetch(new Request(`http://127.0.0.1${req.url}`, {
            method: req.method, headers: req.headers, body: body.length > 0 ? body : undefined,
        }));
        res.writeHead(answer.status, Object.fromEntries(answer.headers));
        for await (const part of answer.body ?? []) res.write(part);
        res.end();
    });
    front.listen(0, '127.0.0.1', () => console.log(front.address().port));
} else {
    serveStdio(make);
}
