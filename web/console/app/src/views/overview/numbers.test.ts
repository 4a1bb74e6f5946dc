import { expect, test, vi } from 'vitest';

vi.mock('../../lib/own', () => ({ own: vi.fn() }));
const { against, runs } = await import('./numbers');

test.each([
  [12, 10, '20% more than yesterday by this time'], [5, 10, '50% less than yesterday by this time'], [10, 10, 'as yesterday by this time'],
  [3, 0, 'none yesterday by this time'], [0, 0, 'as yesterday'], [0, 4, '100% less than yesterday by this time'], [400, 2, '200 times yesterday’s'],
])('%d against %d', (now, before, words) => expect(against(now, before)).toBe(words));

test('no line goes through an hour without a value', () => {
  const drawn = runs([1, 2, null, null, 3, null], (i) => 10 * i, (v) => v);
  expect(drawn).toBe('M1 1L9 1L11 2L19 2M41 3L49 3');
});
