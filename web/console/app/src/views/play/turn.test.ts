import { describe, expect, test } from 'vitest';
import { begin, choicesOf, settled, told } from './turn';

const turn = begin('go north', '2026-01-01T00:00:00Z');
const log = (fields: unknown) => ({ kind: 'log', data: { level: 'info', message: 'm', fields } });
const plan = {
  planId: 'p1',
  requestId: 'r',
  attempt: 1,
  narrative: 'It is dark.',
  tools: [
    { toolId: 'paint', tool: 'paint_scene' },
    { toolId: 'roll', tool: 'dice', dependencies: ['paint'], required: false },
  ],
};

describe('a turn', () => {
  test('has its narrative and its tools as soon as the plan is known', () => {
    const t = told(turn, log({ plan }));
    expect(t.narrative).toBe('It is dark.');
    expect(t.planId).toBe('p1');
    expect(t.attempts[0]!.steps.map((s) => [s.toolId, s.tool, s.state, s.after, s.required])).toEqual([
      ['paint', 'paint_scene', 'waiting', [], true],
      ['roll', 'dice', 'waiting', ['paint'], false],
    ]);
  });

  test('follows each tool', () => {
    let t = told(turn, log({ plan }));
    t = told(t, log({ step: { planId: 'p1', toolId: 'paint', state: 'running', attempt: 1, call: 'c1' } }));
    t = told(
      t,
      log({ step: { planId: 'p1', toolId: 'paint', state: 'retrying', attempt: 1, error: { message: 'no paint' } } }),
    );
    expect(t.attempts[0]!.steps[0]).toMatchObject({ state: 'retrying', call: 'c1', error: 'no paint' });
    t = told(t, log({ step: { planId: 'p1', toolId: 'paint', state: 'success', attempt: 2, call: 'c2', ms: 12 } }));
    expect(t.attempts[0]!.steps[0]).toMatchObject({ state: 'success', tries: 2, call: 'c2', error: '', ms: 12 });
    expect(t.attempts[0]!.steps[1]!.state).toBe('waiting');
  });

  test('keeps the attempts of a plan apart', () => {
    let t = told(turn, log({ plan }));
    t = told(t, log({ plan: { ...plan, planId: 'p2', attempt: 2, narrative: 'Another way.' } }));
    t = told(t, log({ step: { planId: 'p2', toolId: 'paint', state: 'failed' } }));
    expect(t.attempts.map((a) => [a.attempt, a.steps[0]!.state])).toEqual([
      [1, 'waiting'],
      [2, 'failed'],
    ]);
    expect(t.narrative).toBe('Another way.');
  });

  test('is not fooled by a tool that logs what looks like a plan', () => {
    const t = told(turn, log({ plan }));
    expect(told(t, log({ toolId: 'paint', plan: { ...plan, narrative: 'Send money.' } }))).toBe(t);
    expect(told(t, log({ toolId: 'paint', step: { planId: 'p1', toolId: 'roll', state: 'failed' } }))).toBe(t);
  });

  test('bears events of any form', () => {
    for (const fields of [
      undefined,
      null,
      [],
      'x',
      { plan: 1 },
      { plan: { tools: {} } },
      { step: null },
      { step: { state: 'odd' } },
    ]) {
      expect(told(turn, log(fields))).toBe(turn);
    }
    expect(told(turn, { kind: 'asset', data: { assetId: 1 } })).toBe(turn);
    expect(told(turn, { kind: 'asset', data: null })).toBe(turn);
    expect(told(turn, log({ plan: { tools: [null, 1, { toolId: {} }] } })).attempts[0]!.steps).toHaveLength(1);
  });

  test('offers choices, and shows what it does not know', () => {
    const t = told(turn, {
      kind: 'ui_event',
      data: { event: 'narrative_choice', payload: { choices: ['North', { id: 's', label: 'South', hint: 'cold' }] } },
    });
    expect(t.choices).toEqual([
      { id: 'North', label: 'North', hint: '' },
      { id: 's', label: 'South', hint: 'cold' },
    ]);
    const odd = told(t, { kind: 'ui_event', data: { event: 'shake', payload: { by: 3 } } });
    expect(odd.unsupported).toEqual([{ event: 'shake', payload: { by: 3 } }]);
    expect(odd.choices).toEqual(t.choices);
    // A narrative_choice without choices is one that cannot be offered.
    expect(
      told(turn, { kind: 'ui_event', data: { event: 'narrative_choice', payload: { choices: 'North' } } }).unsupported,
    ).toHaveLength(1);
  });

  test('is settled by its outcome', () => {
    const t = settled(told(turn, log({ plan })), {
      planId: 'p1',
      narrative: 'It was dark.',
      choices: [{ id: 'a', label: 'A' }],
      assets: [{ assetId: 'x', mediaType: 'image/png' }, 3],
      unsupported: [{ event: 'shake' }, null],
      at: 'now',
    });
    expect(t).toMatchObject({ prompt: 'go north', narrative: 'It was dark.', planId: 'p1', at: 'now' });
    expect([t.choices.length, t.assets.length, t.unsupported.length, t.attempts.length]).toEqual([1, 1, 1, 1]);
    expect(settled(t, null)).toBe(t);
    expect(settled(t, { success: false, error: { message: 'the dice are lost' } }).failed).toBe('the dice are lost');
    expect(settled(t, { success: false, error: 3 }).failed).not.toBe('');
    expect(t.failed).toBe('');
  });
});

test.each([[{}], [null], [{ choices: {} }]])('%j has no choices', (payload) => {
  expect(choicesOf(payload)).toBeUndefined();
});

test('choices without a text are left out', () => {
  expect(choicesOf({ choices: ['', {}, { id: 'only' }, { label: 5 }, null] })).toEqual([
    { id: 'only', label: 'only', hint: '' },
  ]);
});
