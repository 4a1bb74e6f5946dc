// What views ask of the server for operators: docs/05-command-line.md.

import { output, Refusal, type Failure, type Json, type Schema } from './api';
import { messageOf, oneLine } from './text';

export interface Workers { alive: number; busy: number; calls?: number; waiting?: number; most?: number }
export interface Source { name: string; protocol: string; state: 'open' | 'opening' | 'failed'; since: string; tools: number; held?: number; unavailable?: number; error?: string; workers?: Workers }
/** isDown: none of its tools can be called. */
export const isDown = (s: Source): boolean => s.state === 'failed' || (!!s.unavailable && s.tools === 0);
/** A Load has the sources alone if too many things are followed already. */
export interface Load { up_s?: number; in_flight?: number; all?: { per_s: number; p95_ms: number; bad: number }; sources: Source[] }
export interface Fill { limit: string; words: string; who?: string; used: number; of: number }
export interface Usage {
  quotas: { name: string; for: string; counted: number; reason?: string; fullest: Fill[] }[];
  queues: { source: string; pool?: string; running: number; places: number; waiting: number; most: number }[];
  store?: { kind: string; bytes: number; calls: number; waiting: number; error?: string };
  disk?: { path: string; free_bytes: number; total_bytes: number };
}
/** isFull: a disk of any size needs some room, and a large one has it. */
export const isFull = (d: { free_bytes: number; total_bytes: number }): boolean => d.free_bytes < Math.min(2e9, d.total_bytes / 20);
export interface Token { id: string; caller: string; roles: string[] | null; tools: string[] | null; note?: string; issued: string; expires?: string; state: string }
export interface Caller { name: string; kind: string; roles: string[]; all: boolean; tools: string[]; by: string[]; doors?: string[]; tokens: Token[] }
export interface Callers { callers: Caller[]; roles: { name: string; all: boolean; tools: string[] }[]; issuers?: string[] }
export interface Lease { id: string; caller?: string; tool: string; tier: number; issued: string; expires: string; state: string }
export interface Job { job: string; caller?: string; tool: string; state: string; stopping?: boolean; made: string; began?: string; ended?: string; result?: { ask?: Ask; output?: Json; error?: Failure } }
/** A Held is a tool that changed, and is held back until an operator approves it. */
export interface Held { tool: string; source: string; name: string; digest: string; why: string; changes?: { part: string; was: string; now: string }[] }
export interface Ask { id: string; message: string; schema?: Schema; needs?: Json }
export interface Fault { about?: string; message: string; line?: number; column?: number }
export interface Config { path?: string; text: string; differs: boolean; errors: Fault[]; problems: Fault[]; restart?: string[]; taken?: string }
export interface Finding { rule: string; effect: string; matched: boolean; why: string }
export interface Explanation {
  tool: string; caller: string; door: string; visible: boolean; depends?: boolean; allowed: boolean; rule: string; reason: string;
  anonymous?: boolean; unlisted?: boolean; rules: Finding[]; ask?: { approvers: string[] };
  touches?: { reads?: string[] | null; writes?: string[] | null; commands?: string[][] | null };
}
export interface Reloaded { config?: string; changes: { source: string }[]; failed: { source: string; error: string }[]; restart?: string[] }

/** own calls one of the tools that Toolpost itself brings. */
export const own = <T>(name: string, args: object = {}): Promise<T> => output<T>(`toolpost.${name}`, args);

/** whyNot says why a view has nothing to show. Tools that the caller may not use are not found. */
export function whyNot(e: unknown): string {
  if (e instanceof Refusal && e.code === 'access_denied') return 'This is for operators: the owner, and callers with their role.';
  if (e instanceof Refusal && e.code === 'not_found') return `Your rights do not include this, or the server does not have it: ${oneLine(e.message)}.`;
  return messageOf(e);
}

/** without gives undefined where the server has no such tool: without a store there are no tokens and no jobs. */
export async function without<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (e) {
    if (e instanceof Refusal && e.code === 'not_found') return undefined;
    throw e;
  }
}
