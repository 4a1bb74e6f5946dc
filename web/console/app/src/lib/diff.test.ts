import { describe, expect, test } from 'vitest';
import { diff, merge } from './diff';

const changes = (a: unknown, b: unknown) => Object.fromEntries(diff(a, b));

describe('a diff', () => {
  test('of what is the same is empty', () => {
    expect(changes({ a: [1, { b: null }] }, { a: [1, { b: null }] })).toEqual({});
  });

  test('names what is new, changed and gone by its path', () => {
    expect(changes({ a: { b: 1, c: 2 }, d: [1, 2] }, { a: { b: 2, e: 3 }, d: [1, 2, 3] })).toEqual({
      '/a/b': 'changed',
      '/a/c': 'removed',
      '/a/e': 'added',
      '/d/2': 'added',
    });
  });

  test('takes a value of another kind for a change of the whole', () => {
    expect(changes({ a: {} }, { a: [] })).toEqual({ '/a': 'changed' });
    expect(changes({ a: 1 }, { a: { b: 1 } })).toEqual({ '/a': 'changed' });
    expect(changes({ a: 1 }, { a: '1' })).toEqual({ '/a': 'changed' });
  });

  test('escapes names as a JSON pointer does, so that no two paths are the same', () => {
    expect(changes({ a: {} }, { a: { b: 1 }, 'a/b': 1, 'a~b': 1 })).toEqual({
      '/a/b': 'added',
      '/a~1b': 'added',
      '/a~0b': 'added',
    });
  });

  test('bears names that mean something to JavaScript', () => {
    const hostile = JSON.parse('{"__proto__": {"x": 1}, "constructor": 1, "hasOwnProperty": 2}');
    expect(Object.keys(changes({}, hostile)).sort()).toEqual(['/__proto__', '/constructor', '/hasOwnProperty']);
  });
});

describe('a merge', () => {
  test('goes member by member, replaces lists, and removes what is null', () => {
    const before = { a: { b: 1, c: 2 }, list: [1, 2], gone: true };
    expect(merge(before, { a: { c: 3, d: 4 }, list: [3], gone: null, never: { x: null } })).toEqual({
      a: { b: 1, c: 3, d: 4 },
      list: [3],
      never: {},
    });
    expect(before).toEqual({ a: { b: 1, c: 2 }, list: [1, 2], gone: true });
  });

  test('cannot be used to change what all objects have', () => {
    const after = merge({}, JSON.parse('{"__proto__": {"polluted": 1}}')) as object;
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.getOwnPropertyNames(after)).toEqual(['__proto__']);
  });
});
