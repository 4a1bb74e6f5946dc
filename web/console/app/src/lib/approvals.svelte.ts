// The approvals that the caller who is signed in may decide about: one stream for the whole page, which gives all of them, the
// newest first, whenever one changes. So a page that decided also hears what became of the call.

import { follow, type Json } from './api';
import { go } from './route.svelte';
import { oneLine } from './text';

export interface Approval {
  id: string;
  state: 'waiting' | 'approved' | 'used' | 'denied' | 'expired';
  tool: string;
  source: string;
  tier: number;
  effects?: string[];
  caller: string;
  door: string;
  session?: string;
  job?: string;
  arguments?: Json;
  arguments_bytes?: number; // if they are too long to be shown
  touches?: { reads?: string[]; writes?: string[]; commands?: string[][] };
  touches_more?: number; // further files and commands, if they are too many to be shown
  changes?: { path: string; diff: string; kind: 'change' | 'create' | 'delete' }[];
  walls?: string;
  guarantees?: { [name: string]: Json };
  rules: { name: string; reason?: string; approvers: string[]; self?: boolean; remember?: string[] }[];
  ways?: Way[];
  always?: string; // what "always" would write
  config?: string; // and where
  asked: string;
  until: string;
  by?: string;
  decided?: string;
  reason?: string;
  for?: Way;
  lasts?: string;
  ran?: { call: string; outcome: string; code?: string; ms: number };
}

export type Way = 'call' | 'session' | 'arguments' | 'hour' | 'always';

let all = $state.raw<Approval[]>([]);
const list = $derived(all.filter((a) => a.state === 'waiting').reverse());

/** waiting is what waits, the oldest first: a new one must not move the buttons of another. `all` also has what was decided, the newest first. Reactive. */
export const waiting = {
  get list() { return list; },
  get all() { return all; },
};

let watching: AbortController | undefined;
let known: Set<string> | undefined; // what waited before; undefined: nothing was told yet

/** watch begins the stream, once for the page. */
export function watch(): void {
  if (watching) return;
  watching = new AbortController();
  void follow('toolpost.approvals.watch', { state: 'all' }, (e) => {
    const told = e.data.fields as { approvals?: Approval[] } | undefined;
    if (e.kind !== 'log' || !told?.approvals) return;
    all = told.approvals;
    for (const a of known ? all : []) if (a.state === 'waiting' && !known!.has(a.id)) tell(a);
    known = new Set(all.map((a) => a.id));
  }, {
    signal: watching.signal,
    // A caller who may not decide about calls has nothing that waits. One who signs in again may.
    failed: (why) => {
      all = [];
      if (why.status === 401) watching = undefined;
    },
  });
}

/** words of the ways to allow a call, on buttons and afterwards. */
export const ways: Record<Way, { button: string; said: string }> = {
  call: { button: 'Allow once', said: 'once' },
  session: { button: 'For this session', said: 'for this session' },
  arguments: { button: 'For these arguments', said: 'for these arguments' },
  hour: { button: 'For an hour', said: 'for an hour' },
  always: { button: 'Always…', said: 'always' },
};

// A page that does not have the focus tells by a notification, if it was allowed to.
let allowed = $state(typeof Notification === 'undefined' ? 'denied' : Notification.permission);

/** notices are notifications by the browser: whether they may be asked for, and asking. Reactive. */
export const notices = {
  get state() { return allowed; },
  async ask() { allowed = await Notification.requestPermission(); },
};

function tell(a: Approval): void {
  if (allowed !== 'granted' || document.hasFocus()) return;
  try {
    const told = new Notification(`${oneLine(a.caller, 40)} asks: ${oneLine(a.tool, 60)}`, { body: a.rules.map((r) => r.reason).filter(Boolean).join('; ') || 'A call waits for your approval.', tag: a.id });
    told.onclick = () => {
      window.focus();
      go('operate', '', {}, 'approvals');
    };
  } catch {
    // browsers of phones have the name alone
  }
}
