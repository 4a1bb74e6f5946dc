// The JavaScript side of runCode: it runs one program. Descriptor 3 is the channel; program.py says what goes over it.
// This process was started ahead of its program, says {"ready": true}, and waits for it.
//
// Nothing here keeps a program from anything: it can change all of it. What it may do is up to the walls around it and
// to the host, which takes calls from it as from any stranger.

import { createRequire } from 'node:module'
import fs from 'node:fs'
import net from 'node:net'
import vm from 'node:vm'

const PROGRAM = 'program.js' // the name of the program's file, in its stacks
const most = { calls: 1, bytes: 1 << 16 }
const channel = new net.Socket({
  fd: 3, readable: true, writable: true, onread: { buffer: Buffer.allocUnsafe(1 << 18), callback: read },
})

class ToolError extends Error {
  constructor(code, message, reason, details) {
    super(message)
    this.name = 'ToolError'
    Object.assign(this, { code, reason, details })
  }
  toString() {
    return `${this.code}: ${this.message}`
  }
}
globalThis.ToolError = ToolError

let last = 0
const open = new Map() // by id, the calls that were sent and not answered
const waiting = [] // calls that are not sent yet
let next = 0 // of those that wait

function call(name, args) {
  const site = {}
  Error.captureStackTrace(site, call)
  const answer = new Promise((resolve, reject) => {
    const fail = (code, message, reason, details) => {
      const err = new ToolError(code, message, reason, details)
      err.stack = String(err) + '\n' + String(site.stack).split('\n').slice(1).join('\n')
      reject(err)
    }
    const [given = {}] = args
    if (args.length > 1 || given === null || typeof given !== 'object' || Array.isArray(given)) {
      return fail('invalid_input', `${name}() takes its arguments as one object`)
    }
    let line
    const id = ++last
    try {
      line = encode({ id, tool: name, args: given }, 'the arguments have')
    } catch (err) {
      return fail('invalid_input', `the arguments of ${name}: ${err.message}`)
    }
    if (line.length > most.bytes || Buffer.byteLength(line) > most.bytes) {
      return fail('invalid_input', `the arguments of ${name} are longer than ${most.bytes} bytes`)
    }
    waiting.push({ id, line, resolve, fail })
    sendNext()
  })
  answer.catch(() => {}) // one that nobody waits for is nobody's business
  return Object.setPrototypeOf(answer, unawaited)
}

// unawaited is the prototype of answers: a use of one before it is there would be undefined, or [object Promise]. Node looks
// for symbols of its own; those that a program uses are the three here.
const used = [Symbol.iterator, Symbol.asyncIterator, Symbol.toPrimitive]
const unawaited = new Proxy(Promise.prototype, {
  get(target, key, answer) {
    if (key in target) return Reflect.get(target, key, answer)
    if (typeof key === 'symbol' && !used.includes(key)) return undefined
    throw new TypeError('a call that was not awaited: write await in front of it')
  },
})

function sendNext() {
  while (next < waiting.length && open.size < most.calls) {
    const one = waiting[next]
    waiting[next++] = undefined
    open.set(one.id, one)
    send(one.line)
  }
  if (next === waiting.length) waiting.length = next = 0
}

// send writes a line to the channel. There is room for it as a rule, and then it takes one system call; else the rest
// waits.
function send(line) {
  if (channel.writableLength > 0) return channel.write(line)
  const bytes = Buffer.from(line)
  let sent = 0
  try {
    sent = fs.writeSync(3, bytes)
  } catch (err) {
    if (err.code !== 'EAGAIN') throw err
  }
  if (sent < bytes.length) channel.write(bytes.subarray(sent))
}

// tool is a tool by its name; its members are those whose names go on with theirs. Promises look for `then` in
// whatever they are given, and JSON for `toJSON`.
function tool(name) {
  const known = new Map()
  return new Proxy(function () {}, {
    get(_, key) {
      if (typeof key === 'symbol' || key === 'then' || key === 'toJSON') return undefined
      let found = known.get(key)
      if (!found) known.set(key, (found = tool(name ? `${name}.${key}` : key)))
      return found
    },
    apply: (_, __, args) => call(name, args),
  })
}

function encode(value, whose = 'the result has') {
  const other = (_, part) => {
    if (part instanceof Map) return Object.fromEntries(part)
    if (part instanceof Set) return [...part]
    if (typeof part === 'bigint') throw new TypeError(`${whose} a BigInt, which JSON has no word for`)
    if (typeof part === 'number' && !Number.isFinite(part)) throw new TypeError(`${whose} a number that is not finite`)
    return part
  }
  let text
  try {
    text = JSON.stringify(value, other)
  } catch (err) {
    if (String(err.message).startsWith(whose)) throw err
    throw new TypeError(`${whose} something that cannot be written as JSON: ${String(err.message).split('\n')[0]}`)
  }
  if (/\\ud[89a-f]/.test(text) && !wellFormed(JSON.parse(text))) {
    throw new TypeError(`${whose} text that is not valid Unicode`)
  }
  return text + '\n'
}

function wellFormed(part) {
  if (typeof part === 'string') return part.isWellFormed()
  if (part === null || typeof part !== 'object') return true
  return Object.entries(part).every(([name, value]) => name.isWellFormed() && wellFormed(value))
}

let parts = [] // of a line whose end has not come yet

// read takes what came, which is in a buffer that will be used again.
function read(size, buffer) {
  const piece = buffer.subarray(0, size)
  const lines = []
  let from = 0
  for (let at = piece.indexOf(10); at >= 0; at = piece.indexOf(10, from)) {
    parts.push(piece.subarray(from, at))
    lines.push(parts.length > 1 ? Buffer.concat(parts).toString() : parts[0].toString())
    parts = []
    from = at + 1
  }
  if (from < size) parts.push(Buffer.from(piece.subarray(from)))
  for (const line of lines) take(JSON.parse(line))
  return true
}

channel.on('end', () => process.exit(70)) // the host is gone
channel.on('error', () => process.exit(70))

function take(message) {
  if (!('id' in message)) {
    Object.assign(most, message.most)
    run(message.code)
    return
  }
  const one = open.get(message.id)
  open.delete(message.id)
  sendNext()
  if (!one) return
  const { error } = message
  if (error) one.fail(error.code, error.message, error.reason ?? '', error.details)
  else one.resolve(message.output ?? null)
}

async function run(source) {
  let line
  try {
    const main = new vm.Script(`(async (tools, require) => {\n${source}\n})`, {
      filename: PROGRAM,
      lineOffset: -1,
      importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    }).runInThisContext()
    line = encode({ return: (await main(tool(''), createRequire('/'))) ?? null })
    if (line === '{}\n') {
      throw new TypeError('the result is a function, or something else that JSON has no word for; return what it gives')
    }
    if (Buffer.byteLength(line) > most.bytes) {
      throw new RangeError(`the result is longer than ${most.bytes} bytes: return less, or print it`)
    }
  } catch (err) {
    line = raised(err)
  }
  channel.write(line, () => process.exit(0))
}

// raised is what is told of an exception: its frames in the program, and nothing of ours.
function raised(err) {
  const told = { type: 'Error', message: '', frames: [] }
  try {
    const known = err instanceof Error
    told.type = known ? cut(err.name, 200) : typeof err
    told.message = cut(known ? err.message : typeof err === 'object' ? JSON.stringify(err) : err, 4000)
    if (err instanceof SyntaxError && told.message.startsWith('Cannot use import statement')) {
      told.message += "; write const {...} = require('...')"
    }
    if (err instanceof ToolError) {
      told.code = cut(err.code, 100)
      told.message = cut(String(err), 4000)
    }
    const seen = new Set()
    for (const line of String(known ? err.stack : '').split('\n')) {
      const at =
        line.match(/^\s+at (?:async )?(?:(.*) \()?program\.js:(\d+):\d+\)?$/) ?? line.match(/^()program\.js:(\d+)$/)
      if (!at || seen.has(line) || told.frames.length === 20) continue
      seen.add(line)
      told.frames.unshift({ line: Number(at[2]), in: cut(at[1] || 'the program', 200) })
    }
  } catch {
    told.message = 'an exception that cannot be read'
  }
  return encode({ raised: told })
}

function cut(text, size) {
  text = String(text).toWellFormed()
  return text.length <= size ? text : text.slice(0, size).toWellFormed() + '...'
}

process.removeAllListeners('warning') // Node's own, which tells of features that are experimental
process.on('warning', (w) => w.name === 'ExperimentalWarning' || console.error(String(w)))
process.on('uncaughtException', (err) => channel.write(raised(err), () => process.exit(0)))
process.on('unhandledRejection', (err) => console.error('a promise was rejected, and nobody waits for it:', err))
channel.write('{"ready":true}\n')
