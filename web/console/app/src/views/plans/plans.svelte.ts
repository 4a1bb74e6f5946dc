// Plans as the server has them, kept fresh: who watches asks again when something happened, and not every few seconds.

import { follow, output, Refusal, stream, type Event } from '../../lib/api';
import { whenBack } from '../../lib/connection.svelte';
import { isObject } from '../../lib/diff';
import * as plan from '../../lib/plan';

/** Which calls run plans. */
const runners = ['plan.run', 'story.turn'];

/**
 * Calls back when a plan ends, and when it or one of its calls begins; with a parent, when a call of that begins or ends; at
 * once, too, and at most four times a second. It ends with the signal.
 */
export function watch(parent: string, again: () => Promise<void>, signal: AbortSignal): void {
  let asked = false;
  let busy = false;
  const run = async () => {
    if (busy) {
      asked = true;
      return;
    }
    busy = true;
    do {
      asked = false;
      try {
        await again();
      } catch (e) {
        if (!(e instanceof Refusal) || e.status !== 0) break; // it told about it
        await whenBack();
        asked = true;
      }
      await new Promise((done) => setTimeout(done, 250));
    } while (asked && !signal.aborted);
    busy = false;
  };
  void run();
  const on = (e: Event) => {
    const fields = e.data.fields;
    if (!isObject(fields)) return;
    const begin = isObject(fields.begin) ? fields.begin : undefined;
    const isRunner = begin !== undefined && runners.includes(String(begin.tool));
    if (isRunner) known.add(String(begin.call));
    // An end does not say of what; of all calls few are worth a question. A call that a plan makes is: when that of the plan
    // began, there was no plan yet.
    if (parent || fields.missed || isRunner || known.has(String(begin?.parent))) void run();
    const end = isObject(fields.end) ? String(fields.end.call) : '';
    if (end && known.delete(end)) void run();
  };
  const known = new Set<string>();
  void follow('watchCalls', parent ? { parent } : {}, on, { signal });
}

/** What is typed into the editor, so that it is still there after a look elsewhere. */
export const draft = $state({ text: '' });

/** Runs a plan, beyond the page that began it, and gives its id as soon as it has one. */
export function start(document: plan.Plan): Promise<string> {
  return new Promise((begun, failed) => {
    let attempts: readonly plan.Attempt[] = [];
    const hear = (e: Event) => {
      attempts = plan.follow(attempts, e.data);
      const id = attempts[0]?.planId;
      if (id) begun(id);
    };
    // A plan that never began was refused as a whole, and is not kept.
    stream<plan.Result>('plan.run', { plan: document }, hear).then((r) => {
      failed(new Refusal(r.error ?? r.output?.error ?? { code: 'protocol', message: 'the plan never began' }, 200, r.call));
    }, failed);
  });
}

/** Every attempt at what a plan is an attempt at, oldest first. They were all made by one call. */
export async function attemptsOf(shown: plan.Shown): Promise<plan.Entry[]> {
  if (!shown.call) return [shown];
  const { plans } = await output<{ plans: plan.Entry[] }>('plan.list', { ...(shown.session ? { session: shown.session } : {}), limit: 100 });
  const same = plans.filter((p) => p.call === shown.call).reverse();
  return same.length > 0 ? same : [shown];
}
