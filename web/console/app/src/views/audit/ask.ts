// What the view asks of the log, and the filters that are in its address.

import type { Json } from '../../lib/api';

/** A Row is a record of a call: docs/13-store-and-audit.md. */
export interface Row {
  seq: number;
  time: string;
  call: string;
  tool: string;
  asked?: string;
  source?: string;
  door: string;
  caller: string;
  session?: string;
  run?: string;
  parent?: string;
  rule?: string;
  decision?: string;
  outcome: string;
  code?: string;
  reason?: string;
  duration_ms: number;
  bytes_in: number;
  bytes_out: number;
  touches?: { reads?: string[]; writes?: string[]; commands?: string[][] };
  [more: string]: Json | undefined;
}

export interface Counts { ok: number; failed: number; refused: number; error: number; other: number; p50: number; p95: number; p99: number; bytes_in: number; bytes_out: number }
export interface Series { from: string; to: string; step_ms: number; buckets: (Counts & { t: string })[]; totals: Counts }
export interface Use { name: string; calls: number; ok: number; failed: number; refused: number; errors: number; mean_ns: number }
export interface Failure { tool: string; outcome: string; code: string; calls: number; of: number; rate: number }
export interface Latency { tool: string; calls: number; p50_ns: number; p95_ns: number; p99_ns: number }
export interface Path { path: string; reads: number; writes: number }
export interface Report { rows: number; head: { seq: number; hash: string }; signed: boolean; findings: { seq?: number; what: string }[] }

/** fields are the filters beside the time, as the log knows them. */
export const fields = ['tool', 'source', 'caller', 'door', 'outcome', 'code', 'session', 'run', 'parent'] as const;
export type Field = (typeof fields)[number];

/** ranges are the lengths of time that are one click away. */
export const ranges = ['15m', '1h', '6h', '24h', '7d', '30d'] as const;
export const usual = '24h';

const units: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** age reads 90s, 15m, 24h or 7d; undefined: it is none. */
export function age(text: string): number | undefined {
  const m = /^(\d{1,6})([smhd])$/.exec(text);
  return m ? Number(m[1]) * units[m[2]!]! : undefined;
}

/** filterOf gives the arguments that a query stands for, and a start. A relative start is a round time, so that the first step is whole. */
export function filterOf(query: URLSearchParams, since: string, now = Date.now()): Record<string, string> {
  const filter: Record<string, string> = {};
  for (const f of fields) {
    const value = query.get(f);
    if (value) filter[f] = value;
  }
  if (query.get('kind') === 'all') filter.kind = 'all'; // with the questions that operators ask
  const span = age(since);
  if (span !== undefined) {
    const round = span >= 86_400_000 ? 3_600_000 : span >= 3_600_000 ? 60_000 : 10_000;
    filter.since = new Date(Math.floor((now - span) / round) * round).toISOString();
  } else if (since !== 'all' && !Number.isNaN(Date.parse(since))) {
    filter.since = new Date(since).toISOString();
  }
  const until = query.get('until');
  if (until && !Number.isNaN(Date.parse(until))) filter.until = new Date(until).toISOString();
  return filter;
}

/** calls is how many there are. */
export const calls = (c: Counts): number => c.ok + c.failed + c.refused + c.error + c.other;

/** count adds a row to the step that it belongs to, so that a plot moves at once; percentiles wait for the next question. */
export function count(s: Series, r: Row): Series {
  const i = Math.floor((Date.parse(r.time) - Date.parse(s.from)) / s.step_ms);
  const b = s.buckets[Math.min(i, s.buckets.length - 1)];
  if (i < 0 || !b) return s;
  const outcome = r.outcome === 'ok' || r.outcome === 'failed' || r.outcome === 'refused' || r.outcome === 'error' ? r.outcome : 'other';
  const add = <T extends Counts>(c: T): T => ({ ...c, [outcome]: c[outcome] + 1, bytes_in: c.bytes_in + r.bytes_in, bytes_out: c.bytes_out + r.bytes_out });
  return { ...s, totals: add(s.totals), buckets: s.buckets.map((one) => (one === b ? add(one) : one)) };
}

/** short gives the end of a path, which tells more than its beginning. */
export const short = (path: string): string => path.split('/').slice(-2).join('/');

/** about says in a few words what a call was about, with its paths as `named` writes them. */
export function about(r: Row, named = (path: string) => path): string {
  const words: string[] = [];
  for (const argv of r.touches?.commands ?? []) words.push(`runs ${argv.join(' ')}`);
  for (const p of r.touches?.writes ?? []) words.push(`writes ${named(p)}`);
  for (const p of r.touches?.reads ?? []) words.push(named(p));
  if (r.decision === 'deny' && r.rule) words.unshift(`denied by ${r.rule}`);
  if (r.dry_run) words.unshift('only judged');
  if (r.cached) words.unshift('from memory');
  if (r.replay) words.unshift('a replay');
  return words.join('; ');
}
