// The calls that wait for an approval by whoever is signed in: one stream for the whole page, which gives all of them whenever
// they are others.

import { follow, type Json } from '../../lib/api';

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
  arguments_bytes?: number; // where they are too long to be shown
  touches?: { reads?: string[]; writes?: string[]; commands?: string[][] };
  touches_more?: number; // further files and commands, where they are too many to be shown
  walls?: string;
  guarantees?: { [name: string]: Json };
  rules: { name: string; reason?: string; approvers: string[]; self?: boolean; remember?: string[] }[];
  asked: string;
  until: string;
  by?: string;
  reason?: string;
  for?: string;
  lasts?: string;
}

let list = $state.raw<Approval[]>([]);

/** waiting is what waits, the newest first. Reactive. */
export const waiting = {
  get list() { return list; },
};

let watching: AbortController | undefined;

/** watch begins the stream, once for the page. */
export function watch(): void {
  if (watching) return;
  watching = new AbortController();
  void follow('toolpost.approvals.watch', {}, (e) => {
    const told = e.data.fields as { approvals?: Approval[] } | undefined;
    if (e.kind === 'log' && told?.approvals) list = told.approvals;
  }, {
    signal: watching.signal,
    // Whoever may not decide about calls has nothing that waits.
    failed: () => (list = []),
  });
}

/** ways lists how an approval of a call may be remembered, beside for the call alone: as each of its rules lets it be. */
export function ways(a: Approval): string[] {
  return ['session', 'arguments', 'hour'].filter((w) => (w !== 'session' || a.session) && a.rules.every((r) => r.remember?.includes(w)));
}

/** How long an approval holds, in words. */
export const holds: Record<string, string> = {
  call: 'this call', session: 'this session', arguments: 'these arguments', hour: 'an hour',
};
