import { expect, test, vi } from 'vitest';

vi.stubGlobal('navigator', { userAgent: '' });
const { every } = await import('./keys');
const sources = import.meta.glob('../**/*.svelte', { query: '?raw', import: 'default', eager: true }) as Record<string, string>;

test('every key that something binds is in the list', () => {
  const listed = every.flatMap((g) => g.keys.map(([keys]) => keys));
  const bound = Object.values(sources).flatMap((text) => [...text.matchAll(/\bkeys: '([^']+)', (?:inFields|run)/g)].map((m) => m[1]!));
  expect(bound.length).toBeGreaterThan(8);
  for (const keys of bound) expect(listed).toContain(keys);
});
