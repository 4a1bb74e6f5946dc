// The public HTTP interface, as docs/04-http.md describes it. Whatever the console does goes through here.

import { lost, whenBack } from './connection.svelte';

/** Json is any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A Failure is why there is no outcome, or why a tool itself said no. */
export interface Failure {
  code: string;
  reason?: string;
  message: string;
  details?: Json;
}

/** A Refusal is thrown where a request has no outcome. */
export class Refusal extends Error {
  override name = 'Refusal';
  constructor(
    readonly failure: Failure,
    readonly status: number, // 0: the server was not reached
    readonly call = '',
  ) {
    super(failure.message);
  }
  get code(): string { return this.failure.code; }
  get reason(): string { return this.failure.reason ?? ''; }
  /** how long to wait before another try, if it was said */
  get retryAfter(): number | undefined {
    const ms = (this.failure.details as { retry_after_ms?: number } | undefined)?.retry_after_ms;
    return typeof ms === 'number' ? ms : undefined;
  }
}

/** A Session is who is signed in. */
export interface Session {
  caller: string;
  roles: string[];
  operator: boolean;
  version: string;
  by: 'cookie' | 'other'; // how this request showed who it is; only a cookie can be signed out
  expires?: string; // of the cookie's session, at the latest
}

/** A Tool is one entry of the catalogue: docs/04-http.md, GET /v1/tools. */
export interface Tool {
  name: string;
  title?: string;
  description?: string;
  source: string;
  protocol: string;
  aliases?: string[];
  input?: Schema;
  output?: Schema;
  effects?: Partial<Record<'reads' | 'writes' | 'network' | 'exec' | 'idempotent' | 'destructive', boolean>>;
  tier: number;
  tier_from?: string;
  timeout_ms?: number;
  walls?: string;
  guarantees?: Json;
  unlisted?: boolean;
  available: boolean;
  reason?: string;
}

/** A Schema is a JSON Schema 2020-12. */
export type Schema = boolean | { [keyword: string]: Json };

export type Kind = 'log' | 'progress' | 'output' | 'state_patch' | 'asset' | 'ui_event' | 'error';

/** An Event is what happens while a call runs: docs/14-events.md. */
export interface Event {
  seq: number;
  time: string;
  kind: Kind;
  data: { [key: string]: Json };
}

/** A Result is the one outcome of a call; a tool that says no has one too. */
export interface Result<T = Json> {
  ok: boolean;
  output?: T;
  summary?: string;
  error?: Failure;
  ask?: { id: string; kind?: string; message: string; schema?: Schema; needs?: Json };
  trace?: { id?: string; call?: string; tool?: string; source?: string; protocol?: string; start?: string; duration_ms?: number; cached?: boolean; details?: { [key: string]: Json } };
  call: string;
}

/** What belongs to a call beside its arguments: docs/03-protocols.md has the headers. */
export interface CallOptions {
  id?: string; // of the call, so that it can be cancelled
  session?: string;
  key?: string; // idempotency
  lease?: string;
  dryRun?: boolean;
  timeout?: string; // such as 30s
  resume?: string; // the id of a question
  answers?: Json; // to it
  signal?: AbortSignal; // cancels it
}

/** address of a path of the API, relative to the page, as a proxy may serve it below a path of its own. */
export function at(path: string): string {
  return new URL(path.replace(/^\//, ''), document.baseURI).href;
}

// The header that a form of a foreign page cannot send. The server asks for it wherever a cookie changes something.
const ours = { 'Toolpost-Console': '1' };

function headersOf(o: CallOptions): Record<string, string> {
  const h: Record<string, string> = { ...ours, 'Content-Type': 'application/json' };
  if (o.id) h['Toolpost-Call'] = o.id;
  if (o.session) h['Toolpost-Session'] = o.session;
  if (o.key) h['Idempotency-Key'] = o.key;
  if (o.lease) h['Toolpost-Lease'] = o.lease;
  if (o.dryRun) h['Toolpost-Dry-Run'] = 'true';
  if (o.timeout) h['Toolpost-Timeout'] = o.timeout;
  if (o.resume) h['Toolpost-Resume'] = o.resume;
  if (o.answers !== undefined) h['Toolpost-Answers'] = JSON.stringify(o.answers);
  return h;
}

/** Who hears that the session is over: a request was answered with 401. */
let signedOut: () => void = () => undefined;
export function onSignedOut(then: () => void): void { signedOut = then; }

/** request sends one and returns the answer, or throws a Refusal. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(at(path), { ...init, headers: { ...ours, ...init.headers }, credentials: 'same-origin', cache: 'no-store', redirect: 'error' });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw unreachable();
  }
  if (answer.ok) return answer;
  const refusal = await refusalOf(answer);
  if (answer.status === 401) signedOut();
  throw refusal;
}

function unreachable(): Refusal {
  lost();
  return new Refusal({ code: 'unavailable', reason: 'connection', message: 'the server cannot be reached' }, 0);
}

async function refusalOf(answer: Response): Promise<Refusal> {
  try {
    const body = (await answer.json()) as { error?: Failure; call?: string };
    if (body.error?.code) return new Refusal(body.error, answer.status, body.call);
  } catch {
    // not one of ours: a proxy's page, or half an answer
  }
  return new Refusal({ code: 'protocol', message: `the server answered ${answer.status} ${answer.statusText}`.trim() }, answer.status);
}

async function json<T>(path: string, init?: RequestInit): Promise<T> {
  const answer = await request(path, init);
  try {
    return (await answer.json()) as T;
  } catch (e) {
    if (init?.signal?.aborted) throw e; // by us
    throw unreachable(); // it was cut off
  }
}

/** session says who is signed in; a Refusal with status 401: nobody is. */
export const session = (): Promise<Session> => json('v1/session');

/** signIn begins a session, with the code of a one-time link or with a token. */
export function signIn(by: { code: string } | { token: string }): Promise<Session> {
  return json('v1/session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(by) });
}

/** A Provider is one that people sign in with. */
export interface Provider {
  key: string;
  name: string;
}

/** providers lists them. */
export const providers = (): Promise<Provider[]> => json<{ providers: Provider[] }>('v1/signin').then((l) => l.providers);

/** signInWith gives the address of a provider's page, from which the browser comes back to a view of this one. */
export function signInWith(key: string, view: string): Promise<string> {
  const body = JSON.stringify({ path: new URL('.', document.baseURI).pathname, return: view });
  return json<{ url: string }>(`v1/signin/${encodeURIComponent(key)}`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body,
  }).then((to) => to.url);
}

/** A Farewell says where the session with a provider is ended, which outlives ours. */
export interface Farewell {
  name: string;
  url: string;
}

/** signOut ends the session. */
export async function signOut(): Promise<Farewell | undefined> {
  const answer = await request('v1/session', { method: 'DELETE' });
  return answer.status === 200 ? ((await answer.json()) as Farewell) : undefined;
}

/** tools lists the catalogue, and sources that could not say what they have. */
export function tools(): Promise<{ tools: Tool[]; failed?: Tool[] }> {
  return json<{ tools?: Tool[]; failed?: Tool[] }>('v1/tools').then((l) => ({ ...l, tools: l.tools ?? [] }));
}

/** tool gives one of them, unlisted ones too. */
export const tool = (name: string): Promise<Tool> => json(`v1/tools/${encodeURIComponent(name)}`);

/** call runs a tool and returns its outcome; without one it throws a Refusal. */
export function call<T = Json>(name: string, args: object = {}, o: CallOptions = {}): Promise<Result<T>> {
  return json(`v1/tools/${encodeURIComponent(name)}/call`, {
    method: 'POST', headers: headersOf(o), body: JSON.stringify(args), signal: o.signal ?? null,
  });
}

/** output runs a tool and returns what it gives; a tool that says no throws a Refusal as well. */
export async function output<T>(name: string, args: object = {}, o: CallOptions = {}): Promise<T> {
  const r = await call<T>(name, args, o);
  if (!r.ok || r.output === undefined) {
    throw new Refusal(r.error ?? { code: 'protocol', message: `${name} gave nothing` }, 200, r.call);
  }
  return r.output;
}

/** cancel ends a call by its id. */
export async function cancel(id: string): Promise<void> {
  await request(`v1/calls/${encodeURIComponent(id)}`, { method: 'DELETE' });
}

/** newCall makes an id for a call. */
export const newCall = (): string => crypto.randomUUID();

/** stream runs a tool, tells `on` of each event as it happens, and returns the outcome. A connection that is lost ends the
 *  call; what is to go on uses follow. */
export async function stream<T = Json>(name: string, args: object, on: (e: Event) => void, o: CallOptions = {}): Promise<Result<T>> {
  return events<T>(`v1/tools/${encodeURIComponent(name)}/call`, {
    method: 'POST', headers: { ...headersOf(o), Accept: 'text/event-stream' }, body: JSON.stringify(args), signal: o.signal ?? null,
  }, on);
}

export interface FollowOptions extends CallOptions {
  signal: AbortSignal; // ends it
  /** The arguments that go on behind an event; else `after` is the last `fields.seq` of a log event. */
  next?: (args: object, last: Event) => object;
  /** Told when the tool refuses for good; a lost connection is not told: the shell shows it. */
  failed?: (why: Refusal) => void;
}

/** follow runs a tool that watches something, over and over: when the connection is lost it waits until it is back and goes
 *  on behind the last event. While the page is hidden it lets go of its connection, of which a browser has only six. */
export async function follow(name: string, args: object, on: (e: Event) => void, o: FollowOptions): Promise<void> {
  const next = o.next ?? behind;
  while (!o.signal.aborted) {
    await whenSeen(o.signal);
    const rest = new AbortController();
    const stop = () => rest.abort();
    o.signal.addEventListener('abort', stop);
    const unwatch = whenHidden(stop);
    const began = Date.now();
    try {
      await stream(name, args, (e) => {
        if (rest.signal.aborted) return; // it was read before it was let go: who asks again gets it again
        args = next(args, e);
        on(e);
      }, { ...o, signal: rest.signal });
    } catch (e) {
      if (o.signal.aborted) return;
      if (e instanceof Refusal && e.status !== 0 && !(e.code === 'unavailable' || e.code === 'cancelled')) {
        o.failed?.(e);
        return;
      }
      await whenBack();
    } finally {
      unwatch();
      o.signal.removeEventListener('abort', stop);
    }
    // One that ends at once, again and again, is not asked more often than once a second.
    if (!rest.signal.aborted) await new Promise((done) => setTimeout(done, Math.max(0, 1000 - (Date.now() - began))));
  }
}

function behind(args: object, last: Event): object {
  const seq = (last.data.fields as { seq?: number } | undefined)?.seq;
  return typeof seq === 'number' ? { ...args, after: seq } : args;
}

/** followJob tells of a job's events from the first on, and goes on behind the last one when it was cut off. */
export async function followJob<T = Json>(id: string, on: (e: Event) => void, signal: AbortSignal): Promise<Result<T>> {
  for (let last = ''; ;) {
    try {
      return await events<T>(`v1/jobs/${encodeURIComponent(id)}/events`, {
        headers: { Accept: 'text/event-stream', ...(last ? { 'Last-Event-ID': last } : {}) }, signal,
      }, (e, at) => {
        last = at || last;
        on(e);
      });
    } catch (e) {
      if (signal.aborted || !(e instanceof Refusal) || e.status !== 0) throw e;
      await whenBack();
    }
  }
}

/** How long a stream may be silent; the server says something every 15 s. */
const silence = 45_000;

/** events reads an answer of server-sent events to its last message. */
async function events<T>(path: string, init: RequestInit, on: (e: Event, id: string) => void): Promise<Result<T>> {
  const answer = await request(path, init);
  if (!answer.body || !answer.headers.get('Content-Type')?.startsWith('text/event-stream')) {
    return (await answer.json()) as Result<T>; // it ended before it began
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (;;) {
      const part = await within(reader.read(), silence);
      if (part.done) throw unreachable();
      text += part.value;
      let end: number;
      let from = 0;
      while ((end = text.indexOf('\n\n', from)) >= 0) {
        const m = message(text.slice(from, end));
        from = end + 2;
        if (!m.data) continue;
        const body: unknown = JSON.parse(m.data);
        if (m.event === 'result') return body as Result<T>;
        if (m.event === 'no_outcome') {
          const why = body as { error: Failure; call?: string };
          throw new Refusal(why.error, 200, why.call);
        }
        on(body as Event, m.id);
      }
      text = text.slice(from);
    }
  } catch (e) {
    if (e instanceof Refusal || init.signal?.aborted) throw e;
    throw unreachable();
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/** message reads one server-sent event. */
function message(block: string): { id: string; event: string; data: string } {
  const m = { id: '', event: '', data: '' };
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    if (colon <= 0) continue; // a sign of life
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, '').replace(/\r$/, '');
    if (name === 'data') m.data += m.data ? `\n${value}` : value;
    else if (name === 'id' || name === 'event') m[name] = value;
  }
  return m;
}

function within<T>(wanted: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<never>((_, fail) => (timer = setTimeout(() => fail(unreachable()), ms)));
  return Promise.race([wanted, late]).finally(() => clearTimeout(timer));
}

/** whenHidden calls back once the page has been out of sight for a while. */
function whenHidden(then: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(then, 30_000);
  };
  document.addEventListener('visibilitychange', look);
  look();
  return () => {
    clearTimeout(timer);
    document.removeEventListener('visibilitychange', look);
  };
}

/** whenSeen is done when somebody looks at the page, or when the signal ends. */
function whenSeen(signal: AbortSignal): Promise<void> {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((done) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', look);
      signal.removeEventListener('abort', look);
      done();
    };
    document.addEventListener('visibilitychange', look);
    signal.addEventListener('abort', look);
  });
}
