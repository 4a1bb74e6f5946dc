import { expect, test } from 'vitest';
import type { Schema } from './api';
import { deref, faultsOf, fits, hint, initial, shapeOf, step } from './schema';

const root: Schema = {
  type: 'object', required: ['name', 'mode'],
  properties: {
    note: { type: 'string' }, name: { type: 'string', minLength: 1 }, mode: { const: 'fast' },
    size: { $ref: '#/$defs/size' }, tags: { type: 'array', items: { type: 'string' } }, when: { type: ['integer', 'null'] },
    which: { oneOf: [{ type: 'object', properties: { kind: { const: 'a' } }, required: ['kind'] }, { type: 'string' }] },
  },
  $defs: { size: { type: 'integer', minimum: 1, maximum: 3, default: 2 }, loop: { $ref: '#/$defs/loop' } },
};

test.each<[Schema, string]>([
  [{ type: 'string' }, 'text'], [{ type: 'number' }, 'number'], [{ type: 'integer' }, 'number'], [{ type: 'boolean' }, 'switch'],
  [{ enum: [1, 'a', null] }, 'enum'], [{ const: 1 }, 'const'], [{ type: 'array', items: { type: 'string' } }, 'list'],
  [{ type: 'array' }, 'json'], [{ type: 'object' }, 'json'], [{ type: ['string', 'null'] }, 'choice'], [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, 'choice'],
  [{ type: 'object', properties: {}, if: true }, 'json'], [{ type: 'object', patternProperties: {} }, 'json'], [true, 'json'], [{ $ref: '#/$defs/size' }, 'number'],
  [{ $ref: '#/$defs/nowhere' }, 'json'], [{ $ref: 'https://example.org/x' }, 'json'], [{ $ref: '#/$defs/loop' }, 'json'],
])('%j is shown as %s', (schema, kind) => expect(shapeOf(schema, root).kind).toBe(kind));

test('what is required comes first, and begins with what it must be', () => {
  const shape = shapeOf(root, root);
  expect(shape.kind === 'object' && shape.members.map(([name]) => name).slice(0, 2)).toEqual(['name', 'mode']);
  expect(initial(root, root, true)).toEqual({ mode: 'fast' });
  expect(initial({ $ref: '#/$defs/size' }, root, true)).toBe(2);
});

test('of several forms the one that a value has is found', () => {
  const shape = shapeOf({ ...(deref(root, root).properties as { which: { [k: string]: never } }).which }, root);
  if (shape.kind !== 'choice') throw new Error(shape.kind);
  expect(shape.of.map((one) => fits({ kind: 'a' }, one, root))).toEqual([true, false]);
  expect(shape.of.map((one) => fits('x', one, root))).toEqual([false, true]);
});

test('pointers, hints and faults', () => {
  expect(step('/a', 'b/c~d')).toBe('/a/b~1c~0d');
  expect(hint(deref({ $ref: '#/$defs/size' }, root))).toBe('1 to 3 · default: 2');
  expect(faultsOf({ faults: [{ at: '/a', problem: 'no' }, 'x', null] })).toEqual([{ at: '/a', problem: 'no' }]);
  expect(faultsOf(undefined)).toEqual([]);
});
