// A server of the official TypeScript SDK 1.x, over stdio or, with "http", over HTTP. It prints the port that it listens on.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

function make() {
    const server = new McpServer({ name: 'sdk1', version: '1.0.0' });
    server.registerTool('greet', { description: 'Greets.', inputSchema: { name: z.string() } }, async ({ name }) => ({
        content: [{ type: 'text', text: `Hello, ${name}` }],
    }));
    server.registerTool('confirm', { inputSchema: {} }, async () => {
        const said = await server.server.elicitInput({
            message: 'Sure?',
            requestedSchema: { type: 'object', properties: { sure: { type: 'boolean' } }, required: ['sure'] },
        });
        return { content: [{ type: 'text', text: JSON.stringify(said) }] };
    });
    server.registerTool('grow', { inputSchema: {} }, async () => {
        server.registerTool('grown', { inputSchema: {} }, async () => ({ content: [{ type: 'text', text: 'grown' }] }));
        return { content: [{ type: 'text', text: 'growing' }] };
    });
    return server;
}

if (process.argv[2] === 'http') {
    const sessions = new Map();
    const front = createServer(async (req, res) => {
        let transport = sessions.get(req.headers['mcp-session-id']);
        if (!transport) {
            transport = new StreamableHTTPServerTransport({
                sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, transport),
            });
            await make().connect(transport);
        }
        await transport.handleRequest(req, res);
    });
    front.listen(0, '127.0.0.1', () => console.log(front.address().port));
} else {
    await make().connect(new StdioServerTransport());
}
