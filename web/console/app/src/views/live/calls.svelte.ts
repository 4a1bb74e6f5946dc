// The calls as they happen: one stream for the whole page, of which at most so many calls are kept, and which is drawn at most
// ten times a second however fast it comes.

import { follow, type Event, type Refusal } from '../../lib/api';
import { whyNot } from '../../lib/own';

export interface Call {
  key: string;
  call: string;
  caller: string;
  door: string;
  tool: string;
  source: string;
  protocol: string;
  parent: string;
  hub: string; // of a fleet, that it came in at
  node: string; // of a fleet, that runs it; '': its hub
  session: string;
  since: string;
  brief: string; // the beginning of its arguments
  operator: boolean; // a question of the console or of a follower
  outcome: string; // '': it runs
  code: string;
  message: string; // how it ended, or what it told last
  ms: number;
}

interface Line {
  seq?: number;
  hub?: string;
  silent?: boolean; // a hub does not answer, or does again
  begin?: Partial<Call>;
  end?: { call: string; caller: string; outcome: string; code?: string; message?: string; ms: number };
  missed?: number;
}

const most = 2000; // calls that are kept; those that run are never dropped for one that has ended
const every = 100; // ms between two drawings

const all = new Map<string, Call>(); // the oldest first
const window = 10_000; // ms over which the rate is measured
let ended: number[] = []; // when calls ended within the window
let dirty = false;
let timer: ReturnType<typeof setTimeout> | undefined;

let list = $state.raw<Call[]>([]);
let running = $state(0);
let rate = $state(0);
let missed = $state(0);
let refused = $state('');
let silent = $state.raw<string[]>([]);
let began = $state(false);

/** live is what is drawn; the newest first. Reactive. */
export const live = {
  get calls() { return list; },
  get running() { return running; },
  /** Calls that ended per second, over the last ten. */
  get rate() { return rate; },
  get missed() { return missed; },
  get refused() { return refused; },
  /** Hubs of the fleet that do not answer: their calls are missing. */
  get silent() { return silent; },
  get began() { return began; },
};

function take(e: Event): void {
  const line = e.data.fields as Line | undefined;
  if (!line) return;
  if (line.missed) missed += line.missed;
  const hub = line.hub ?? '';
  if (line.silent !== undefined) {
    silent = [...silent.filter((h) => h !== hub), ...(line.silent ? [hub] : [])];
    return;
  }
  if (line.begin?.call) {
    const key = keyOf(hub, line.begin.caller ?? '', line.begin.call);
    if (all.get(key)?.outcome !== '') all.delete(key); // an id that is used again is another call; one that runs was sent to a node
    all.set(key, { source: '', protocol: '', parent: '', session: '', node: '', door: '', tool: '', caller: '', call: '', since: '', brief: '', ...line.begin, hub, key, operator: false, outcome: '', code: '', message: '', ms: 0 });
  }
  if (line.end) {
    const was = all.get(keyOf(hub, line.end.caller, line.end.call));
    // What is drawn is never changed: rows that are the same stay the same.
    if (was) all.set(was.key, { ...was, outcome: line.end.outcome, code: line.end.code ?? '', message: line.end.message ?? '', ms: line.end.ms });
    if (was && !was.outcome) ended.push(Date.parse(was.since) + line.end.ms);
  }
  for (const one of waiting) one();
  dirty = true;
  timer ??= setTimeout(draw, every);
}

const keyOf = (hub: string, caller: string, call: string): string => `${hub}\0${caller}\0${call}`;

function draw(): void {
  timer = undefined;
  if (!dirty) return;
  dirty = false;
  for (const [key, c] of all) {
    if (all.size <= most) break;
    if (c.outcome) all.delete(key);
  }
  const next = [...all.values()].reverse();
  list = next;
  running = next.reduce((n, c) => n + (c.outcome || c.operator ? 0 : 1), 0);
  measure();
}

/** measure counts what ended within the window; it goes on until the rate is 0 again. */
function measure(): void {
  clearTimeout(measuring);
  const from = Date.now() - window;
  ended = ended.filter((t) => t > from);
  rate = ended.length / (window / 1000);
  if (ended.length) measuring = setTimeout(measure, 1000);
}
let measuring: ReturnType<typeof setTimeout> | undefined;

const waiting = new Set<() => void>();

/** whenChanged runs something soon after calls have begun or ended, at most twice a second, until the signal ends it. */
export function whenChanged(run: () => void, signal: AbortSignal): void {
  let soon: ReturnType<typeof setTimeout> | undefined;
  const one = () => {
    soon ??= setTimeout(() => {
      soon = undefined;
      run();
    }, 500);
  };
  waiting.add(one);
  signal.addEventListener('abort', () => {
    clearTimeout(soon);
    waiting.delete(one);
  });
}

let watching: AbortController | undefined;

/** watch begins the stream, once for the page. */
export function watch(): void {
  if (watching) return;
  watching = new AbortController();
  setTimeout(() => (began = true), 300);
  void follow('watchCalls', {}, take, {
    signal: watching.signal,
    // A server that was started anew begins anew: what ran there is gone.
    failed: (why: Refusal) => {
      for (const [key, c] of all) if (!c.outcome) all.delete(key);
      dirty = true;
      draw();
      refused = why.status === 401 ? '' : whyNot(why);
      silent = [];
      watching = undefined;
    },
  });
}

/** operators adds the calls of operators, which are left out else, as they end; until the signal does. */
export function operators(signal: AbortSignal): void {
  void follow('toolpost.audit.watch', { kind: 'operator', limit: 50 }, (e) => {
    const r = e.data.fields as unknown as { seq?: number; call: string; caller: string; door: string; tool: string; source?: string; time: string; outcome: string; code?: string; duration_ms: number } | undefined;
    if (e.kind !== 'log' || !r?.seq) return;
    const key = `operator ${r.seq}`;
    all.set(key, { key, call: r.call, caller: r.caller, door: r.door, tool: r.tool, source: r.source ?? '', protocol: '', parent: '', hub: '', node: '', session: '', since: r.time, brief: '', operator: true, outcome: r.outcome, code: r.code ?? '', message: '', ms: r.duration_ms });
    dirty = true;
    timer ??= setTimeout(draw, every);
  }, { signal, failed: () => undefined });
  signal.addEventListener('abort', () => {
    for (const [key, c] of all) if (c.operator) all.delete(key);
    dirty = true;
    draw();
  });
}
