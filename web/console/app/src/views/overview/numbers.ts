// The numbers of today against yesterday: of the same time of the day, since a morning has fewer calls than a whole day.

import { own } from '../../lib/own';
import { calls, type Counts, type Failure, type Latency, type Series, type Use } from '../audit/ask';

/** Hours of a day; null where nothing is known: no call, or not yet. */
export type Hours = (number | null)[];

export interface Numbers {
  since: string; // when today began
  totals: Counts; // of today
  before: Counts; // of yesterday, up to this time of the day
  calls: { today: Hours; before: Hours };
  bad: { today: Hours; before: Hours };
  p95: { today: Hours; before: Hours };
  callers: Use[];
  slow: Latency[];
  failures: Failure[];
  used: boolean; // whether any tool but Toolpost's own was called, today or yesterday
}

export const bad = (c: Counts): number => c.failed + c.refused + c.error;

export async function ask(now = new Date()): Promise<Numbers> {
  const day = (by: number) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + by);
  const [before, begin, end] = [day(-1), day(0), day(1)];
  const series = (since: Date, until: Date, buckets = 24) => own<Series>('audit.series', { since: since.toISOString(), until: until.toISOString(), buckets });
  const few = { since: begin.toISOString(), limit: 5 };
  const sameTime = new Date(Math.min(before.getTime() + (now.getTime() - begin.getTime()), begin.getTime()));
  const [today, yesterday, soFar, top, latency, errors, sources] = await Promise.all([
    series(begin, end), series(before, begin), series(before, sameTime, 1),
    own<{ uses: Use[] }>('audit.top', { ...few, by: 'caller' }), own<{ tools: Latency[] }>('audit.latency', few), own<{ errors: Failure[] }>('audit.errors', few),
    own<{ uses: Use[] }>('audit.top', { since: before.toISOString(), by: 'source', limit: 2 }),
  ]);
  const hours = (s: Series, of: (c: Counts) => number | null): Hours => s.buckets.map((b) => (Date.parse(b.t) > now.getTime() ? null : of(b)));
  const both = (of: (c: Counts) => number | null) => ({ today: hours(today, of), before: hours(yesterday, of) });
  return {
    since: begin.toISOString(), totals: today.totals, before: soFar.totals,
    calls: both(calls), bad: both(bad), p95: both((c) => (calls(c) ? c.p95 : null)),
    callers: top.uses, slow: latency.tools, failures: errors.errors, used: sources.uses.some((u) => u.name !== 'toolpost'),
  };
}

/** against says how a number compares with yesterday's, in words. */
export function against(now: number, before: number): string {
  if (!before) return now ? 'none yesterday by this time' : 'as yesterday';
  const by = Math.round((100 * (now - before)) / before);
  if (!by) return 'as yesterday by this time';
  return by > 900 ? `${Math.round(now / before)} times yesterday’s` : `${Math.abs(by)}% ${by > 0 ? 'more' : 'less'} than yesterday by this time`;
}

/** runs draws a line for each run of hours that have a value: none goes through an hour that has no value. */
export function runs(of: Hours, x: (i: number) => number, y: (v: number) => number): string {
  return of.map((v, i) => (v === null ? '' : `${i && of[i - 1] !== null ? 'L' : 'M'}${x(i) + 1} ${y(v)}L${x(i + 1) - 1} ${y(v)}`)).join('');
}
