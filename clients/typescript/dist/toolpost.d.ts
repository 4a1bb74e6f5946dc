/**
 * A client for Toolpost: list tools, call them, follow what they do, answer what they ask. It needs `fetch`, and nothing
 * else: it runs in Node 18 or later, in Deno, in Bun and in browsers.
 *
 *     import { Toolpost } from "toolpost";
 *
 *     const toolpost = new Toolpost({ url: "http://127.0.0.1:8700", token });
 *     console.log((await toolpost.call("greet", { name: "Ada" })).unwrap());
 *
 * Everything that waits takes an AbortSignal. A call that is given up, by it or by leaving its stream, is cancelled by
 * the server, which sees that nobody listens any more.
 */
export interface Options {
    /** Default: TOOLPOST_URL of the environment, where there is one, or http://127.0.0.1:8700. */
    url?: string;
    /** A function is asked before each request. Default: TOOLPOST_TOKEN of the environment. */
    token?: string | (() => string | Promise<string>);
    /** For authorities of your own, proxies and Unix sockets: a fetch that knows of them. Default: the global one. */
    fetch?: typeof fetch;
    /** How often a refusal that says when to come back is followed. Default: 2. */
    retries?: number;
    /** After so many milliseconds of silence a connection counts as broken; the server gives a sign every 15 s. */
    silence?: number;
}
export interface JobOptions {
    /** Whose state the call belongs to. */
    session?: string;
    /** Idempotency key: calls with the same one are one call. */
    key?: string;
    /** Token of a lease, for tools that need one. */
    lease?: string;
    /** What an agent calls a series of its calls, for their records. */
    run?: string;
    /** W3C trace context. */
    traceparent?: string;
    signal?: AbortSignal;
}
export interface CallOptions extends JobOptions {
    /** In milliseconds. */
    timeout?: number;
    /** Only say what the policy decides. */
    dryRun?: boolean;
    /** The answers to the question that `resume` names. */
    answers?: unknown;
    resume?: string;
    /** The call's id, to cancel it by. Default: a new one. */
    call?: string;
}
export interface Following {
    onEvent?: (event: ToolEvent) => void;
}
export interface Asking extends Following {
    /** Gives the answers to a tool's question. Without it the question is in the result. */
    ask?: (question: Ask) => unknown;
}
export interface Tool {
    name: string;
    description?: string;
    /** 0 safe, 1 writes, 2 system, 3 dangerous. */
    tier: number;
    /** JSON Schema of the arguments. */
    input?: Record<string, unknown>;
    available: boolean;
    /** Why it is not available. */
    reason?: string;
    /** It is about calls and sessions, and not for a list of things to do. */
    unlisted?: boolean;
    [more: string]: unknown;
}
export interface ToolEvent {
    kind: "log" | "progress" | "output" | "state_patch" | "asset" | "ui_event" | "error";
    seq: number;
    time: string;
    data: Record<string, unknown>;
}
/** A question: make the same call again with `resume: ask.id` and `answers`. */
export interface Ask {
    id: string;
    message: string;
    /** JSON Schema of the answers, where there are no needs. */
    schema?: unknown;
    /** Several things, or such as no person answers. */
    needs?: {
        key: string;
        kind: "form" | "link" | "model" | "roots";
        message?: string;
        schema?: unknown;
        params?: unknown;
    }[];
}
export interface Job {
    id: string;
    tool: string;
    state: "queued" | "running" | "done" | "failed" | "asked" | "cancelled" | "lost";
    result?: Result;
    error?: ToolpostError;
}
/** What a session holds, at a version; 0: nothing has changed it. */
export interface State {
    version: number;
    value: Record<string, unknown>;
}
/** There is no outcome. The message says what to do next; code and reason are for programs (docs/errors.md). */
export declare class ToolpostError extends Error {
    name: string;
    readonly code: string;
    readonly reason: string;
    readonly details: unknown;
    /** Of HTTP; 0: none came. */
    readonly status: number;
    /** The call's id, if there was one. */
    call: string;
    /** Nothing was sent: the call has not run. */
    readonly unreachable: boolean;
    constructor(code: string, message: string, more?: {
        reason?: string;
        details?: unknown;
        status?: number;
        cause?: unknown;
    });
    /** In how many milliseconds to try again, if the server says so. */
    get retryAfter(): number | undefined;
}
/** The tool ran and said no. Thrown by Result.unwrap alone: a failure is an outcome. */
export declare class ToolFailed extends ToolpostError {
    name: string;
}
/** The one outcome of a call. */
export declare class Result<T = unknown> {
    readonly ok: boolean;
    readonly output: T;
    readonly summary: string;
    readonly failure?: ToolFailed;
    readonly ask?: Ask;
    readonly trace: Record<string, unknown>;
    readonly call: string;
    constructor(from: unknown);
    /** The output; a ToolFailed where the tool said no, or has a question. */
    unwrap(): T;
}
/** The events of a call, in order; then `result` is its outcome. Leaving the loop over them cancels the call. */
export declare class Stream<T = unknown> implements AsyncIterable<ToolEvent> {
    #private;
    /** The call's id, to cancel it by. */
    readonly call: string;
    constructor(call: string, events: AsyncGenerator<ToolEvent, Result<T>>);
    get result(): Result<T>;
    [Symbol.asyncIterator](): AsyncGenerator<ToolEvent, void>;
}
export declare class Toolpost {
    #private;
    constructor(options?: Options);
    /** Every tool that you may see, also those that are not available. */
    tools(signal?: AbortSignal): Promise<Tool[]>;
    tool(name: string, signal?: AbortSignal): Promise<Tool>;
    /** Makes a call, when the first event is asked for. */
    stream<T = unknown>(name: string, args?: object, options?: CallOptions): Stream<T>;
    /** Makes a call and returns its outcome. */
    call<T = unknown>(name: string, args?: object, options?: CallOptions & Asking): Promise<Result<T>>;
    /** Cancels a call of yours, by its id. */
    cancel(call: string): Promise<void>;
    /** Makes a call that runs later, whatever becomes of this program. */
    start(name: string, args?: object, options?: JobOptions): Promise<Job>;
    /** Your jobs, the newest first, without their results. */
    jobs(which?: {
        state?: Job["state"];
        limit?: number;
    }): Promise<Job[]>;
    job(id: string): Promise<Job>;
    /** The events of a job after so many. A connection that breaks is made again, and no event comes twice. */
    watch(id: string, after?: number, signal?: AbortSignal): Stream;
    /** Waits until a job has ended, or asks. */
    wait(id: string, options?: Following & {
        signal?: AbortSignal;
    }): Promise<Job>;
    cancelJob(id: string): Promise<Job>;
    /** Answers the question of a job, which then goes on. */
    answerJob(id: string, answers: unknown): Promise<Job>;
    /** What a session holds. Calls belong to one by their option `session`. */
    state(session: string): Promise<State>;
    /** Merges a patch into a session (null removes), unless it is at another version. Returns the new version. */
    patch(session: string, patch: object, ifVersion?: number): Promise<number>;
    /** Empties a session. Returns the new version. */
    reset(session: string): Promise<number>;
    /** The file that an asset event names by its sha256. */
    asset(sha256: string, signal?: AbortSignal): Promise<Uint8Array>;
}
