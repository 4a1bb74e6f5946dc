import { expect, test, vi } from 'vitest';

vi.stubGlobal('document', { baseURI: 'http://127.0.0.1:8700/', addEventListener: () => undefined });
vi.stubGlobal('location', { hostname: '127.0.0.1', hash: '' });
vi.stubGlobal('addEventListener', () => undefined);
const { copyAs, python, shell } = await import('./copyas');

const made = { tool: 'greet', args: { name: `O'Hara $(id) "x"\n` } };

test('a shell sees one word, and nothing in it is run', () => {
  expect(shell(`O'Hara`)).toBe(`'O'\\''Hara'`);
  expect(shell('plain/word')).toBe('plain/word');
  expect(shell('')).toBe(`''`);
  for (const way of ['curl', 'Command line', 'NATS'] as const) {
    expect(copyAs(way, made)).toContain(`'{"name":"O'\\''Hara $(id) \\"x\\"\\n"}'`);
  }
});

test('secrets are variables', () => {
  for (const way of ['curl', 'NATS'] as const) expect(copyAs(way, made)).toContain('$TOOLPOST_TOKEN');
  expect(copyAs('curl', { ...made, session: `s'1`, lease: true })).toContain(`-H 'Toolpost-Session: s'\\''1' \\\n  -H "Toolpost-Lease: $TOOLPOST_LEASE"`);
});

test('Python reads it', () => {
  expect(python({ a: [true, false, null, 1.5, 'ü"'] })).toBe('{"a": [True, False, None, 1.5, "ü\\""]}');
  expect(copyAs('Python', { ...made, lease: true })).toContain('lease=os.environ["TOOLPOST_LEASE"]');
});

test('MCP is JSON', () => {
  expect(JSON.parse(copyAs('MCP', made)).params).toEqual({ name: 'greet', arguments: made.args });
});
