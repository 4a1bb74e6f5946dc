import { parse, type AST } from 'svelte/compiler';
import { expect, test } from 'vitest';
import { keyed } from './keyed';

const keys = (list: string[]) => keyed(list, (s) => s).map(([key]) => key);

test('what has a key of its own keeps it', () => {
  expect(keys(['a', 'b', 'c'])).toEqual(['a', 'b', 'c']);
  expect(keyed(['a', 'a'], (s) => s)[0]).toEqual(['a', 'a']);
});

test('no two items have one key, whatever they bring', () => {
  for (const list of [['a', 'a', 'a'], ['', ''], ['a\x001', 'a', 'a', 'a\x001', 'a'], ['a', 'a', 'a\x001', 'a\x001', 'a\x002']]) {
    expect(new Set(keys(list)).size, JSON.stringify(list)).toBe(list.length);
  }
  const odd = keyed([undefined, undefined, null], (v) => v as unknown as string).map(([key]) => key);
  expect(new Set(odd).size).toBe(3);
});

test('a long list of equals takes no longer than others', () => {
  expect(new Set(keys(Array<string>(50_000).fill('same'))).size).toBe(50_000);
});

/** eachOf gives the lists of a component: what is behind "as", and the key, as they are written. */
function eachOf(source: string): { context: string; index: string | undefined; key: string | undefined }[] {
  const found: ReturnType<typeof eachOf> = [];
  const text = (node: { start?: number; end?: number } | null | undefined) => node ? source.slice(node.start, node.end) : undefined;
  const walk = (node: unknown): void => {
    if (!node || typeof node !== 'object') return;
    const each = node as AST.EachBlock;
    if (each.type === 'EachBlock') {
      const at = (n: unknown) => text(n as { start: number; end: number } | null | undefined);
      found.push({ context: at(each.context) ?? '', index: each.index, key: at(each.key) });
    }
    for (const child of Object.values(node)) Array.isArray(child) ? child.forEach(walk) : walk(child);
  };
  walk(parse(source, { modern: true }).fragment);
  return found;
}

// A list is keyed by place, `as item, i (i)`, or by the keys of pairs, `as [key, item] (key)`: those of keyed, or the members of
// an object.
test('no list is keyed by its data', () => {
  const sources = import.meta.glob<string>('../**/*.svelte', { query: '?raw', import: 'default', eager: true });
  const wrong: string[] = [];
  let seen = 0;
  for (const [path, source] of Object.entries(sources)) {
    for (const { context, index, key } of eachOf(source)) {
      seen++;
      if (key === undefined || key === index || key === 'key' && context.startsWith('[key,')) continue;
      wrong.push(`${path}: as ${context} (${key})`);
    }
  }
  expect(wrong).toEqual([]);
  expect(seen).toBeGreaterThan(50);
});
