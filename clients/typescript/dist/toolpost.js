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
/** There is no outcome. The message says what to do next; code and reason are for programs (docs/errors.md). */
export class ToolpostError extends Error {
    name = "ToolpostError";
    code;
    reason;
    details;
    /** Of HTTP; 0: none came. */
    status;
    /** The call's id, if there was one. */
    call = "";
    /** Nothing was sent: the call has not run. */
    unreachable;
    constructor(code, message, more = {}) {
        super(message, { cause: more.cause });
        this.code = code;
        this.reason = more.reason ?? "";
        this.details = more.details;
        this.status = more.status ?? 0;
        this.unreachable = this.reason === "unreachable";
    }
    /** In how many milliseconds to try again, if the server says so. */
    get retryAfter() {
        const ms = isObject(this.details) ? this.details["retry_after_ms"] : undefined;
        return typeof ms === "number" && ms >= 0 ? ms : undefined;
    }
}
/** The tool ran and said no. Thrown by Result.unwrap alone: a failure is an outcome. */
export class ToolFailed extends ToolpostError {
    name = "ToolFailed";
}
/** The one outcome of a call. */
export class Result {
    ok;
    output;
    summary;
    failure;
    ask;
    trace;
    call;
    constructor(from) {
        const of = object(from);
        this.ok = take(of, "ok", "boolean");
        this.output = of["output"];
        this.summary = take(of, "summary", "string", "");
        this.trace = take(of, "trace", "object", {});
        this.call = take(of, "call", "string", "");
        if (of["error"] !== undefined)
            this.failure = failure(ToolFailed, of["error"], this.call);
        if (of["ask"] !== undefined) {
            const ask = object(of["ask"]);
            take(ask, "id", "string");
            take(ask, "message", "string", "");
            this.ask = ask;
        }
    }
    /** The output; a ToolFailed where the tool said no, or has a question. */
    unwrap() {
        if (this.ask)
            throw new ToolFailed("tool_error", `the tool asks: ${this.ask.message}`, { reason: "asked" });
        if (!this.ok)
            throw this.failure ?? new ToolFailed("tool_error", this.summary || "the tool failed");
        return this.output;
    }
}
/** The events of a call, in order; then `result` is its outcome. Leaving the loop over them cancels the call. */
export class Stream {
    /** The call's id, to cancel it by. */
    call;
    #events;
    #result;
    constructor(call, events) {
        this.call = call;
        this.#events = events;
    }
    get result() {
        if (!this.#result)
            throw new Error("the call has no result yet: read its events to the end");
        return this.#result;
    }
    async *[Symbol.asyncIterator]() {
        this.#result ??= yield* this.#events;
    }
}
export class Toolpost {
    #base;
    #token;
    #fetch;
    #retries;
    #silence;
    constructor(options = {}) {
        const env = globalThis.process?.env ?? {};
        const url = new URL(options.url ?? env["TOOLPOST_URL"] ?? "http://127.0.0.1:8700");
        if (!/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
            throw new ToolpostError("invalid_input", "this is not the address of a server: write it like http://127.0.0.1:8700");
        }
        this.#base = url.href.replace(/\/+$/, "");
        this.#token = options.token ?? env["TOOLPOST_TOKEN"];
        this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
        this.#retries = options.retries ?? 2;
        this.#silence = options.silence ?? 60_000;
    }
    /** Every tool that you may see, also those that are not available. */
    async tools(signal) {
        return take(await this.#json("GET", "/v1/tools", { signal }), "tools", "array").map(toTool);
    }
    async tool(name, signal) {
        return toTool(await this.#json("GET", path("/v1/tools", name), { signal }));
    }
    /** Makes a call, when the first event is asked for. */
    stream(name, args = {}, options = {}) {
        const call = options.call ?? newID();
        const until = options.timeout === undefined ? Infinity : Date.now() + options.timeout;
        const request = () => ({
            headers: headersOf({ ...options, call, ...(until < Infinity && { timeout: Math.max(until - Date.now(), 1) }) }),
            body: JSON.stringify(args), signal: options.signal, until,
        });
        const again = options.lease ? never : unlessRun;
        return new Stream(call, this.#follow("POST", path("/v1/tools", name) + "/call", call, again, request));
    }
    /** Makes a call and returns its outcome. */
    async call(name, args = {}, options = {}) {
        const { ask, onEvent, ...first } = options;
        let given = first;
        for (let n = 1; n <= maxRounds; n++) {
            const stream = this.stream(name, args, given);
            for await (const event of stream)
                onEvent?.(event);
            const question = stream.result.ask;
            if (!ask || !question)
                return stream.result;
            const { call: _, ...rest } = given;
            given = { ...rest, resume: question.id, answers: await ask(question) };
            if (first.key)
                given.key = `${first.key}/${n}`; // with answers it is another call
        }
        throw new ToolpostError("conflict", `${name} goes on asking after ${maxRounds} answers`, { reason: "asked" });
    }
    /** Cancels a call of yours, by its id. */
    async cancel(call) {
        await this.#json("DELETE", path("/v1/calls", call), {});
    }
    /** Makes a call that runs later, whatever becomes of this program. */
    async start(name, args = {}, options = {}) {
        const headers = { ...headersOf({ call: newID(), ...options }), Prefer: "respond-async" };
        const sent = { headers, body: JSON.stringify(args), signal: options.signal };
        return toJob(await this.#output("POST", path("/v1/tools", name) + "/call", sent, options.lease ? never : unlessRun));
    }
    /** Your jobs, the newest first, without their results. */
    async jobs(which = {}) {
        const query = new URLSearchParams(Object.entries(which).map(([k, v]) => [k, String(v)])).toString();
        return take(object(await this.#output("GET", "/v1/jobs" + (query && "?" + query), {})), "jobs", "array").map(toJob);
    }
    async job(id) {
        return toJob(await this.#output("GET", path("/v1/jobs", id), {}));
    }
    /** The events of a job after so many. A connection that breaks is made again, and no event comes twice. */
    watch(id, after = 0, signal) {
        const request = (seen) => ({ headers: { "Last-Event-ID": String(seen) }, signal });
        return new Stream(id, this.#follow("GET", path("/v1/jobs", id) + "/events", id, reading, request, after));
    }
    /** Waits until a job has ended, or asks. */
    async wait(id, options = {}) {
        const stream = this.watch(id, 0, options.signal);
        for await (const event of stream)
            options.onEvent?.(event);
        return toJob(stream.result.unwrap());
    }
    async cancelJob(id) {
        return toJob(await this.#output("DELETE", path("/v1/jobs", id), {}));
    }
    /** Answers the question of a job, which then goes on. */
    async answerJob(id, answers) {
        return toJob((await this.call("answerJob", { job: id, answers })).unwrap());
    }
    /** What a session holds. Calls belong to one by their option `session`. */
    async state(session) {
        const of = object((await this.call("state.get", { session })).unwrap());
        return { version: take(of, "version", "number"), value: take(of, "state", "object") };
    }
    /** Merges a patch into a session (null removes), unless it is at another version. Returns the new version. */
    async patch(session, patch, ifVersion) {
        const of = (await this.call("state.patch", { session, patch, if_version: ifVersion })).unwrap();
        return take(object(of), "version", "number");
    }
    /** Empties a session. Returns the new version. */
    async reset(session) {
        return take(object((await this.call("state.reset", { session })).unwrap()), "version", "number");
    }
    /** The file that an asset event names by its sha256. */
    async asset(sha256, signal) {
        const answer = await this.#open("GET", path("/v1/assets", sha256), { signal });
        return answer.whole(maxBody);
    }
    // -- requests
    /** Sends a request and returns its answer, if it is a success. */
    async #open(method, path, sent) {
        const token = typeof this.#token === "function" ? await this.#token() : this.#token;
        const headers = { ...sent.headers };
        if (token)
            headers["Authorization"] = "Bearer " + plain("the token", token);
        if (sent.body !== undefined)
            headers["Content-Type"] = "application/json";
        const answer = new Answer(sent.signal, this.#silence, sent.until ?? Infinity);
        // A redirect is never followed: the token is for this server alone.
        const init = { method, headers, redirect: "manual", cache: "no-store", signal: answer.signal };
        if (sent.body !== undefined)
            init.body = sent.body;
        await answer.begin(this.#fetch(this.#base + path, init));
        if (answer.status >= 200 && answer.status < 300)
            return answer;
        const text = decode(await answer.whole(maxProblem));
        try {
            const problem = parse(text);
            throw failure(ToolpostError, problem["error"], take(problem, "call", "string", ""), answer.status);
        }
        catch (e) {
            if (!(e instanceof ToolpostError) || e.status)
                throw e;
            throw bad(`the server answered ${answer.status}, and not in our words`);
        }
    }
    async #json(method, path, sent, again = reading) {
        for (let tries = 1;; tries++) {
            try {
                const answer = await this.#open(method, path, { ...sent, until: Date.now() + 2 * this.#silence });
                const body = await answer.whole(maxBody);
                return answer.status === 204 ? {} : parse(decode(body));
            }
            catch (e) {
                await this.#pause(e, again, tries, sent);
            }
        }
    }
    /** What a route gives that stands for a call. */
    async #output(method, path, sent, again = reading) {
        return new Result(await this.#json(method, path, sent, again)).unwrap();
    }
    async *#follow(method, path, call, again, request, seen = 0) {
        for (let tries = 1;; tries++) {
            const sent = request(seen);
            let answer;
            try {
                answer = await this.#open(method, path, { ...sent, headers: { ...sent.headers, Accept: "text/event-stream" } });
                for await (const { name, data } of answer.messages()) {
                    const of = parse(data);
                    if (name === "result")
                        return new Result(of);
                    if (name === "no_outcome")
                        throw failure(ToolpostError, of["error"], take(of, "call", "string", ""));
                    const event = toEvent(name, of);
                    if (event.seq <= seen)
                        throw bad(`the server sent event ${event.seq} after event ${seen}`);
                    seen = event.seq;
                    tries = 0;
                    if (again === unlessRun)
                        again = never;
                    yield event;
                }
            }
            catch (e) {
                if (e instanceof ToolpostError)
                    e.call ||= call;
                await this.#pause(e, again, tries, sent);
            }
            finally {
                answer?.close();
            }
        }
    }
    /** Throws the error, or returns when it is time to try again. */
    async #pause(e, again, tries, { signal, until = Infinity }) {
        const least = e instanceof ToolpostError ? again(e) : undefined;
        if (least === undefined || tries > this.#retries || least > longestWait)
            throw e;
        const wait = (least + 10) * (1 + Math.random() / 4) * 2 ** Math.max(tries - 1, 0);
        if (Date.now() + wait >= until)
            throw e;
        await new Promise((resolve, reject) => {
            const stop = () => { clearTimeout(timer); reject(signal?.reason); };
            const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, wait);
            if (signal?.aborted)
                stop();
            signal?.addEventListener("abort", stop, { once: true });
        });
    }
}
const maxRounds = 20;
const longestWait = 30_000; // a server that asks for more patience than that is not asked again
const grace = 5_000; // beyond the timeout of a call: the server says itself that it is over
const maxProblem = 1 << 20, maxMessage = 32 << 20, maxBody = 64 << 20;
const never = () => undefined;
/** Something that is only read can be read again. */
const reading = (e) => (e.unreachable || e.reason === "disconnected" ? 200 : e.retryAfter);
/** Quotas, breakers and queues stand in front of a tool. A store that is away may have been behind it. */
const unlessRun = (e) => {
    if (e.unreachable)
        return 200;
    const before = e.code === "unavailable" && !e.reason.startsWith("store");
    return before || e.code === "quota_exceeded" || e.code === "breaker_open" ? e.retryAfter : undefined;
};
/** An answer while it is read, piece by piece as it is asked for. */
class Answer {
    status = 0;
    #response;
    #control = new AbortController();
    #timer;
    #outer;
    #silence;
    #until;
    #stop = () => this.#control.abort(this.#outer?.reason);
    constructor(outer, silence, until) {
        this.#outer = outer;
        this.#silence = silence;
        this.#until = until;
        if (outer?.aborted)
            this.#stop();
        outer?.addEventListener("abort", this.#stop, { once: true });
    }
    get signal() {
        return this.#control.signal;
    }
    async begin(asked) {
        this.#response = await this.#wait(asked);
        this.status = this.#response.status;
    }
    close() {
        clearTimeout(this.#timer);
        this.#outer?.removeEventListener("abort", this.#stop);
        this.#control.abort();
    }
    /** Waits for the server, but not longer than it may be silent, and than the call may take. */
    async #wait(what) {
        const left = this.#until + grace - Date.now();
        const over = left < this.#silence
            ? new ToolpostError("timeout", "the server gave no outcome in the time that there was")
            : new ToolpostError("crash", `the server gave no sign of life for ${this.#silence} ms; a call may have run`, disconnected);
        clearTimeout(this.#timer);
        this.#timer = setTimeout(() => this.#control.abort(over), Math.min(left, this.#silence));
        try {
            return await what;
        }
        catch (e) {
            this.close();
            if (this.signal.reason instanceof ToolpostError)
                throw this.signal.reason;
            if (this.#outer?.aborted)
                throw this.#outer.reason;
            throw broken(e);
        }
        finally {
            clearTimeout(this.#timer);
        }
    }
    async *#pieces() {
        const reader = this.#response?.body?.getReader();
        for (;;) {
            const next = await this.#wait(reader?.read() ?? Promise.resolve({ done: true, value: undefined }));
            if (next.done)
                return;
            yield next.value;
        }
    }
    async whole(most) {
        const pieces = [];
        let size = 0;
        try {
            for await (const piece of this.#pieces()) {
                pieces.push(piece);
                if ((size += piece.length) > most)
                    throw bad(`the server's answer is larger than ${most} bytes`);
            }
        }
        finally {
            this.close();
        }
        const all = new Uint8Array(size);
        let at = 0;
        for (const piece of pieces) {
            all.set(piece, at);
            at += piece.length;
        }
        return all;
    }
    /** The server-sent events that the body is made of, each with a line of data. It never ends by itself: a stream has a last message. */
    async *messages() {
        if (this.#response?.headers.get("Content-Type")?.split(";")[0]?.trim() !== "text/event-stream") {
            throw bad("the server did not answer with a stream of events: is it a toolpost server?");
        }
        let name = "", data;
        for await (const line of this.#lines()) {
            const [, field, value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
            if (line === "" && data !== undefined)
                yield { name, data };
            if (line === "")
                [name, data] = ["", undefined];
            else if (field === "event")
                name = value;
            else if (field === "data" && data === undefined)
                data = value;
            else if (field === "data")
                throw bad("the server sent a message of several lines");
        }
        throw new ToolpostError("crash", "the server ended its answer before there was an outcome; a call may have run", disconnected);
    }
    async *#lines() {
        const decoder = new TextDecoder("utf-8", { fatal: true });
        let parts = [], size = 0; // of a line that has not ended
        for await (const piece of this.#pieces()) {
            const lines = decode(piece, decoder).split("\n");
            for (const [i, text] of lines.entries()) {
                parts.push(text);
                if ((size += text.length) > maxMessage)
                    throw bad(`the server sent a line of more than ${maxMessage} characters`);
                if (i === lines.length - 1)
                    break;
                yield parts.join("").replace(/\r$/, "");
                [parts, size] = [[], 0];
            }
        }
    }
}
const disconnected = { reason: "disconnected" };
function bad(message) {
    return new ToolpostError("protocol", message);
}
/** What fetch says where there is no answer. Only Node tells whether there was a connection. */
function broken(cause) {
    const why = cause.cause;
    const text = String(why?.message ?? cause.message ?? cause);
    if (["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"].includes(String(why?.code))) {
        const message = `nothing answers there (${text}): is \`toolpost serve\` running?`;
        return new ToolpostError("unavailable", message, { reason: "unreachable", cause });
    }
    return new ToolpostError("crash", `the connection broke (${text}); a call may have run`, { ...disconnected, cause });
}
function isObject(value) {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
function object(value) {
    if (!isObject(value))
        throw bad("the server's answer is not what it should be: is it a toolpost server?");
    return value;
}
function take(of, name, kind, missing) {
    const value = of[name] ?? missing;
    const is = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
    if (is !== kind)
        throw bad(`the server's answer has no ${name} that is a ${kind}: is it a toolpost server?`);
    return value;
}
function decode(bytes, decoder) {
    try {
        return (decoder ?? new TextDecoder("utf-8", { fatal: true })).decode(bytes, { stream: decoder !== undefined });
    }
    catch {
        throw bad("the server's answer is not UTF-8");
    }
}
function parse(text) {
    let value;
    try {
        value = JSON.parse(text);
    }
    catch (e) {
        throw bad(`the server's answer is not JSON: ${String(e)}`);
    }
    return object(value);
}
function failure(Kind, from, call, status = 0) {
    const of = object(from);
    const more = { reason: take(of, "reason", "string", ""), details: of["details"], status };
    const e = new Kind(take(of, "code", "string"), take(of, "message", "string"), more);
    e.call = call;
    return e;
}
function toTool(from) {
    const of = object(from);
    take(of, "name", "string");
    take(of, "tier", "number");
    take(of, "available", "boolean");
    take(of, "input", "object", {});
    return of;
}
function toJob(from) {
    const of = object(from);
    const job = { id: take(of, "job", "string"), tool: take(of, "tool", "string", ""), state: take(of, "state", "string") };
    if (of["result"] !== undefined)
        job.result = new Result(of["result"]);
    if (of["error"] !== undefined)
        job.error = failure(ToolpostError, of["error"], job.id);
    return job;
}
function toEvent(name, of) {
    if (take(of, "kind", "string") !== name)
        throw bad(`the server sent an event of another kind than its message, ${name}`);
    take(of, "seq", "number");
    take(of, "data", "object");
    return of;
}
// ---- what is sent
const headerNames = {
    call: "Toolpost-Call", session: "Toolpost-Session", key: "Idempotency-Key", lease: "Toolpost-Lease", run: "Toolpost-Run",
    resume: "Toolpost-Resume", traceparent: "traceparent",
};
function headersOf(options) {
    const headers = {};
    for (const [name, header] of Object.entries(headerNames)) {
        const value = options[name];
        if (value !== undefined)
            headers[header] = plain(name, value);
    }
    if (options.timeout !== undefined)
        headers["Toolpost-Timeout"] = `${Math.ceil(options.timeout)}ms`;
    if (options.dryRun)
        headers["Toolpost-Dry-Run"] = "true";
    if (options.answers !== undefined) {
        const escaped = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
        headers["Toolpost-Answers"] = JSON.stringify(options.answers).replace(/[\u007f-\uffff]/g, escaped);
    }
    return headers;
}
/** A text as fetch sends it: a character for each byte of its UTF-8. */
function plain(name, value) {
    if (/[\u0000-\u001f\u007f-\u009f]/.test(value) || value.trim() !== value) {
        throw new ToolpostError("invalid_input", `${name} cannot be sent: it must be plain text on one line`);
    }
    return Array.from(new TextEncoder().encode(value), (byte) => String.fromCharCode(byte)).join("");
}
function path(under, name) {
    if (["", ".", ".."].includes(name))
        throw new ToolpostError("not_found", `there is nothing named "${name}"`);
    return `${under}/${encodeURIComponent(name)}`;
}
/** Unique is enough: an id is no secret, and only its caller can use it. */
function newID() {
    return Array.from({ length: 4 }, () => Math.floor(Math.random() * 2 ** 32).toString(16).padStart(8, "0")).join("");
}
