// A plan and what becomes of it, told by the events of plan.run and story.turn, or by what plan.show remembers.

import { isObject } from './diff';
import type { Json } from './api';
import type { Asset } from './asset';
import { messageOf } from './text';

/** What a tool of a plan is doing. The last four are how it can end. */
export type State = 'waiting' | 'running' | 'retrying' | 'success' | 'failed' | 'skipped' | 'timeout';

export const states: readonly State[] = ['waiting', 'running', 'retrying', 'success', 'failed', 'skipped', 'timeout'];

/** A tool of a plan, as Plan JSON has it. */
export interface PlanTool {
  toolId: string;
  tool?: string;
  toolPath?: string;
  input?: unknown;
  dependencies?: string[];
  required?: boolean;
  async?: boolean;
  retryPolicy?: { maxRetries?: number; backoffMs?: number };
}

export interface Plan {
  requestId: string;
  title?: string;
  narrative?: string;
  tools: PlanTool[];
  parallel?: boolean;
  disabledSkills?: string[];
  metadata?: { generationAttempt?: number; parentPlanId?: string };
}

export interface PlanError {
  code: string;
  message: string;
  category?: string;
  details?: Json;
}

export interface ToolResult {
  toolId: string;
  state: State;
  output?: unknown;
  events?: unknown[];
  executionTimeMs: number;
  retryCount: number;
  error?: PlanError;
  call?: string;
}

export interface Result {
  planId: string;
  success: boolean;
  canReplan: boolean;
  failedTools: string[];
  disabledSkills: string[];
  toolResults: ToolResult[];
  error?: PlanError;
  aggregatedState: unknown;
  aggregatedAssets: Asset[];
  executionTimeMs: number;
  attemptNumber: number;
}

/** What is remembered of a plan that ran or runs: an entry of plan.list. */
export interface Entry {
  planId: string;
  state: 'running' | 'done' | 'failed' | 'lost' | 'cancelled';
  caller: string;
  session?: string;
  title?: string;
  prompt?: string;
  call?: string;
  made: string;
  ended?: string;
  counts?: { tools: number; done: number; failed: number; skipped: number };
}

/** All of it: plan.show. */
export interface Shown extends Entry {
  plan: Plan;
  result?: Result;
}

/** A step is a tool of a plan that is under way. */
export interface Step {
  toolId: string;
  tool: string;
  after: string[];
  required: boolean;
  /** Why it waits for tools that it does not need, and what to add so that it does not. */
  alone: string;
  state: State;
  /** How often it was called: 2 and more are retries. */
  tries: number;
  call: string;
  error: string;
  ms?: number;
}

/** An attempt is one plan; a planner makes another one where it failed. */
export interface Attempt {
  planId: string;
  attempt: number;
  narrative: string;
  steps: Step[];
}

/**
 * Takes an event of plan.run or story.turn and gives the attempts after it. What tells nothing of the plan changes nothing.
 * Everything that an event says is checked: a tool inside the plan can send log events too, with any fields it likes.
 */
export function follow(attempts: readonly Attempt[], data: unknown): readonly Attempt[] {
  if (!isObject(data) || !isObject(data.fields) || typeof data.fields.toolId === 'string') return attempts;
  const { plan, step } = data.fields;
  if (isObject(plan) && Array.isArray(plan.tools)) return begun(attempts, plan, plan.tools);
  if (isObject(step)) return stepped(attempts, step);
  return attempts;
}

function begun(attempts: readonly Attempt[], plan: Record<string, unknown>, tools: unknown[]): readonly Attempt[] {
  const attempt: Attempt = {
    planId: text(plan.planId),
    attempt: number(plan.attempt) ?? attempts.length + 1,
    narrative: text(plan.narrative),
    steps: tools.filter(isObject).map((t) => ({ ...fresh(text(t.toolId)), ...described(t) })),
  };
  return [...attempts.filter((a) => a.attempt !== attempt.attempt), attempt];
}

function stepped(attempts: readonly Attempt[], step: Record<string, unknown>): readonly Attempt[] {
  const at = attempts.findLastIndex((a) => a.planId === text(step.planId));
  const attempt = attempts[at] ?? attempts.at(-1);
  const state = states.find((s) => s === step.state);
  if (!attempt || !state) return attempts;
  const steps = attempt.steps.map((s): Step => {
    if (s.toolId !== step.toolId) return s;
    const ms = number(step.ms);
    return {
      ...s,
      state,
      tries: number(step.attempt) ?? s.tries,
      call: text(step.call) || s.call,
      error: errorText(step.error),
      ...(ms === undefined ? {} : { ms }),
    };
  });
  return attempts.map((a) => (a === attempt ? { ...a, steps } : a));
}

/** The steps of a plan that was not followed, from its document and its result so far. */
export function stepsOf(plan: Plan, result?: Result): Step[] {
  const results = new Map(result?.toolResults?.map((r) => [r.toolId, r]));
  return (plan.tools ?? []).map((t) => {
    const step: Step = { ...fresh(t.toolId), ...described(t as unknown as Record<string, unknown>) };
    const r = results.get(t.toolId);
    if (!r) return step;
    const { state, retryCount, call, error, executionTimeMs } = r;
    return { ...step, state, tries: retryCount + 1, call: call ?? '', error: errorText(error), ms: executionTimeMs };
  });
}

/** Reads what somebody typed as far as it is a plan, for a picture of it; the server says what is wrong with the rest. */
export function read(document: string): { plan?: Plan; problem: string } {
  try {
    const plan: unknown = JSON.parse(document);
    if (!isObject(plan)) return { problem: 'a plan is a JSON object' };
    if (!Array.isArray(plan.tools)) return { problem: 'a plan has a list "tools"' };
    const tools = plan.tools.map((t: unknown) => ({ ...(isObject(t) ? t : {}), toolId: isObject(t) ? text(t.toolId) : '' }));
    return { plan: { ...plan, tools } as unknown as Plan, problem: '' };
  } catch (e) {
    return { problem: messageOf(e) };
  }
}

/** Something that is wrong with a plan, and the tool that it is about, by its place; -1: the plan as a whole. */
export interface Fault {
  at: string;
  tool: number;
  problem: string;
}

/** The faults that an error of plan.check or plan.run lists, or the error itself as one. */
export function faultsOf(error: { message?: unknown; details?: unknown } | undefined): Fault[] {
  if (!error) return [];
  const listed = isObject(error.details) && Array.isArray(error.details.faults) ? error.details.faults.filter(isObject) : [];
  if (listed.length === 0) return [{ at: '', tool: -1, problem: text(error.message) || 'the plan is not right' }];
  return listed.map((f) => {
    const at = text(f.at);
    const place = /^\/tools\/(\d+)(?:\/|$)/.exec(at)?.[1];
    return { at, tool: place === undefined ? -1 : Number(place), problem: text(f.problem) };
  });
}

function fresh(toolId: string): Step {
  return { toolId, tool: '', after: [], required: true, alone: '', state: 'waiting', tries: 0, call: '', error: '' };
}

function described(t: Record<string, unknown>): Pick<Step, 'tool' | 'after' | 'required' | 'alone'> {
  const after = Array.isArray(t.dependencies) ? t.dependencies.filter((d) => typeof d === 'string') : [];
  return { tool: text(t.tool) || text(t.toolPath), after, required: t.required !== false, alone: text(t.alone) };
}

function errorText(error: unknown): string {
  return isObject(error) ? text(error.message) || text(error.code) : text(error);
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function number(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
