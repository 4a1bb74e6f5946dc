import { render } from 'svelte/server';
import { expect, test } from 'vitest';
import Outcome from './Outcome.svelte';

// The code of a failure, and the reason why a source is down, are words of a tool.
test('the word of an outcome is one short line in which nothing hides', () => {
  for (const bare of [false, true]) {
    const label = `a\u202eb\u001b[31mc\nd\u0000${'e'.repeat(10_000)}<script>f</script>`;
    const { body } = render(Outcome, { props: { of: 'failed', label, bare } });
    expect(body).toContain('a\\u{202e}b\u241b[31mc d\u2400eee');
    expect(body).not.toMatch(/[\u202e\u001b\u0000]|<script/);
    expect(body.length).toBeLessThan(3000);
  }
});

test('an outcome that nobody knows is a word too, and its look none of the others', () => {
  const { body } = render(Outcome, { props: { of: '"><img src=x onerror=f()> ok' } });
  expect(body).not.toContain('<img');
  expect(body).not.toContain('outcome ok');
});
