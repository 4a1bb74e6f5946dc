// One turn of a story: what was said, and what came of it. While it is played it is told by the events of story.turn.

import type { Asset } from '../../lib/asset';
import { isObject } from '../../lib/diff';
import { follow, states, type Attempt } from '../../lib/plan';

export interface Choice {
  id: string;
  label: string;
  hint: string;
}

/** A request of a tool to show something that the console knows nothing of. */
export interface Unsupported {
  event: string;
  payload: unknown;
}

export interface Turn {
  prompt: string;
  narrative: string;
  choices: Choice[];
  assets: Asset[];
  unsupported: Unsupported[];
  attempts: readonly Attempt[];
  planId: string;
  at: string;
  /** Why there is no more of it; '': nothing is wrong. */
  failed: string;
}

export function begin(prompt: string, at: string): Turn {
  return { prompt, narrative: '', choices: [], assets: [], unsupported: [], attempts: [], planId: '', at, failed: '' };
}

/** Takes an event of story.turn and gives the turn after it. Patches of the state are not part of a turn. */
export function told(turn: Turn, event: { kind: string; data: unknown }): Turn {
  const { kind, data } = event;
  if (!isObject(data)) return turn;
  switch (kind) {
    case 'log': {
      const attempts = follow(turn.attempts, data);
      if (attempts === turn.attempts) return turn;
      const last = attempts.at(-1);
      return { ...turn, attempts, narrative: last?.narrative || turn.narrative, planId: last?.planId || turn.planId };
    }
    case 'asset':
      return isAsset(data) ? { ...turn, assets: [...turn.assets, data] } : turn;
    case 'ui_event': {
      const event = typeof data.event === 'string' ? data.event : '';
      const choices = event === 'narrative_choice' ? choicesOf(data.payload) : undefined;
      if (choices) return { ...turn, choices: [...turn.choices, ...choices] };
      return { ...turn, unsupported: [...turn.unsupported, { event, payload: data.payload }] };
    }
  }
  return turn;
}

/** Reads the outcome of story.turn, or a turn of story.show; what was told before stays where they say nothing of it. */
export function settled(turn: Turn, outcome: unknown): Turn {
  if (!isObject(outcome)) return turn;
  const text = (key: string, before: string) => (typeof outcome[key] === 'string' ? (outcome[key] as string) : before);
  const why = isObject(outcome.error) ? outcome.error.message : '';
  return {
    ...turn,
    prompt: text('prompt', turn.prompt),
    narrative: text('narrative', '') || turn.narrative,
    choices: choicesOf({ choices: outcome.choices }) ?? turn.choices,
    assets: Array.isArray(outcome.assets) ? outcome.assets.filter(isAsset) : turn.assets,
    unsupported: Array.isArray(outcome.unsupported) ? outcome.unsupported.filter(isUnsupported) : turn.unsupported,
    // A turn of long ago was not followed; which tools it had is all there is to tell of them.
    attempts: turn.attempts.length > 0 ? turn.attempts : attemptOf(text('planId', ''), outcome.tools),
    planId: text('planId', turn.planId),
    at: text('at', turn.at),
    failed: outcome.success === false ? (typeof why === 'string' && why) || 'the plan of this turn failed' : turn.failed,
  };
}

/** The attempt that a turn came to, of what story.show says of its tools. */
function attemptOf(planId: string, tools: unknown): Attempt[] {
  if (!Array.isArray(tools) || tools.length === 0) return [];
  const steps = tools.filter(isObject).map((t) => ({
    toolId: String(t.toolId), tool: String(t.tool), after: [], required: true, alone: '',
    state: states.find((s) => s === t.state) ?? 'waiting', tries: 1, call: '', error: '',
  }));
  return [{ planId, attempt: 1, narrative: '', steps }];
}

/** The choices of a narrative_choice: texts, or objects with a label. Undefined: this is none. */
export function choicesOf(payload: unknown): Choice[] | undefined {
  if (!isObject(payload) || !Array.isArray(payload.choices)) return undefined;
  return payload.choices.flatMap((c: unknown): Choice[] => {
    if (typeof c === 'string') return c === '' ? [] : [{ id: c, label: c, hint: '' }];
    if (!isObject(c)) return [];
    const text = (value: unknown) => (typeof value === 'string' ? value : '');
    const label = text(c.label) || text(c.id);
    return label === '' ? [] : [{ id: text(c.id), label, hint: text(c.hint) }];
  });
}

function isAsset(value: unknown): value is Asset & Record<string, unknown> {
  return isObject(value) && typeof value.assetId === 'string' && typeof value.mediaType === 'string';
}

function isUnsupported(value: unknown): value is Unsupported & Record<string, unknown> {
  return isObject(value) && typeof value.event === 'string';
}
