import { expect, test } from 'vitest';
import { lookOf } from './outcomes';

test('a word that nobody knows is quiet, also one that every object has', () => {
  expect(lookOf('crash')).toBe('error');
  for (const word of ['', 'nosuch', 'constructor', 'toString', '__proto__', 'hasOwnProperty']) expect(lookOf(word)).toBe('skipped');
});
