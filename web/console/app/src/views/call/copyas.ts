// A call as it is made elsewhere. What is secret stays a variable of the reader's shell: $TOOLPOST_TOKEN, $TOOLPOST_LEASE.

import { at, type Json } from '../../lib/api';

export interface Made {
  tool: string;
  args: Json;
  session?: string;
  lease?: boolean; // it needs one
}

export const ways = ['curl', 'Command line', 'NATS', 'MCP', 'Python'] as const;
export type Way = (typeof ways)[number];

/** shell quotes a word for a POSIX shell. */
export const shell = (word: string): string => /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** python writes JSON as Python reads it. */
export function python(v: Json): string {
  if (v === null) return 'None';
  if (typeof v === 'boolean') return v ? 'True' : 'False';
  if (Array.isArray(v)) return `[${v.map(python).join(', ')}]`;
  if (typeof v === 'object') return `{${Object.entries(v).map(([k, x]) => `${python(k)}: ${python(x)}`).join(', ')}}`;
  if (typeof v === 'string') return text(v);
  return JSON.stringify(v);
}

// JSON's escapes are Python's too.
const text = (s: string): string => JSON.stringify(s);

/** copyAs writes a call for one of the ways. */
export function copyAs(way: Way, c: Made): string {
  const args = JSON.stringify(c.args ?? {});
  const server = at('').replace(/\/$/, '');
  switch (way) {
    case 'curl': {
      const more = [
        ...(c.session ? [`-H ${shell(`Toolpost-Session: ${c.session}`)}`] : []),
        ...(c.lease ? ['-H "Toolpost-Lease: $TOOLPOST_LEASE"'] : []),
      ];
      return ['curl -s -H "Authorization: Bearer $TOOLPOST_TOKEN"', ...more, shell(at(`v1/tools/${encodeURIComponent(c.tool)}/call`)), `--json ${shell(args)}`].join(' \\\n  ');
    }
    case 'Command line':
      return ['toolpost call', '--server', shell(server), ...(c.session ? ['--session', shell(c.session)] : []),
        ...(c.lease ? ['--lease "$TOOLPOST_LEASE"'] : []), shell(c.tool), shell(args)].join(' ');
    case 'NATS': {
      const headers = [
        ...(c.session ? [`-H ${shell(`Toolpost-Session:${c.session}`)}`] : []),
        ...(c.lease ? ['-H "Toolpost-Lease:$TOOLPOST_LEASE"'] : []),
      ];
      return [`nats --server "nats://$TOOLPOST_TOKEN@${location.hostname}:4222" request --raw`, ...headers, shell(`tools.execute.${c.tool}`), shell(args)].join(' ');
    }
    case 'MCP': {
      const meta = { ...(c.session ? { 'toolpost/session': c.session } : {}), ...(c.lease ? { 'toolpost/lease': '$TOOLPOST_LEASE' } : {}) };
      return JSON.stringify({
        jsonrpc: '2.0', id: 1, method: 'tools/call',
        params: { name: c.tool, arguments: c.args ?? {}, ...(Object.keys(meta).length ? { _meta: meta } : {}) },
      }, null, 2);
    }
    case 'Python': {
      const more = [...(c.session ? [`session=${python(c.session)}`] : []), ...(c.lease ? ['lease=os.environ["TOOLPOST_LEASE"]'] : [])];
      return `${c.lease ? 'import os\n\n' : ''}from toolpost import Client\n\nclient = Client(${python(server)})  # the token is in $TOOLPOST_TOKEN\n`
        + `print(client.call(${[python(c.tool), python(c.args ?? {}), ...more].join(', ')}).unwrap())`;
    }
  }
}
