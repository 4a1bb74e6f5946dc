// The Node side of the namel3ss runner: it calls module:function and answers for it. The runner passes
// this text to node with -e, and the app's folders, first the nearest, as arguments. The request comes on
// descriptor 0 and the reply goes to 3, so that whatever the tool prints, or writes to 1 or 2, cannot
// corrupt it.
//
// Node 18 or later, built-in modules only.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const VERSION = 1;
const REPLY = 3;
const roots = process.argv.slice(1);
process.argv.length = 1;

let replied = false;
let context = {}; // the request's capability_context

function reply(message) {
  if (replied) return;
  replied = true;
  const data = Buffer.from(JSON.stringify(message));
  for (let sent = 0; sent < data.length; ) sent += fs.writeSync(REPLY, data, sent);
  fs.closeSync(REPLY);
}

function fail(err) {
  if (!replied && err instanceof Error && err.stack) process.stderr.write(err.stack + "\n");
  const message = { ok: false, protocol_version: VERSION, error: describe(err) };
  const check = blocked(err);
  if (check) {
    message.error.reason_code = check.reason;
    message.capability_checks = [check];
  }
  reply(message);
  process.exit(0);
}

// blocked tells what a failure says of a guarantee that nobody watches: there is no file to read, and so no attempt.
function blocked(err) {
  const { guarantees = {}, sources = {} } = context;
  if (!guarantees.no_filesystem_read || !["ENOENT", "EACCES", "EPERM"].includes(err?.code) || typeof err.path !== "string") return null;
  const file = path.resolve(err.path);
  if (roots.some((root) => file === root || file.startsWith(root + path.sep))) return null; // its own files it may read
  const source = sources.no_filesystem_read ?? "engine";
  return { capability: "filesystem_read", allowed: false, guarantee_source: source, reason: "guarantee_blocked" };
}

function describe(err) {
  let type = typeof err;
  let message = "an error whose text cannot be made";
  try {
    if (err instanceof Error) type = err.constructor?.name || err.name || "Error";
    message = String(err instanceof Error ? err.message : err) || type;
  } catch {
    // a tool may throw whatever it likes
  }
  return { type: String(type), message: whole(message) };
}

// whole replaces halves of characters, which no JSON reader has to accept.
function whole(text) {
  return Buffer.from(text, "utf8").toString("utf8");
}

// checked refuses what JSON.stringify would quietly turn into something else.
function checked(key, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError(`${value} is not a JSON number`);
  if (typeof value === "string" && whole(value) !== value) throw new RangeError("a string has half a character in it");
  if (whole(key) !== key) throw new RangeError("a key has half a character in it");
  if (value instanceof Set) return [...value];
  if (value instanceof Map) return Object.fromEntries(value);
  return value;
}

// locate finds the file of a module: tools/greet.mjs as it is, tools.greet and tools/greet with the usual endings.
function locate(module) {
  const endings = [".mjs", ".js", ".cjs", "/index.mjs", "/index.js", "/index.cjs"];
  const bases = [module, module.replaceAll(".", "/")];
  const names = [module, ...bases.flatMap((base) => endings.map((ending) => base + ending))];
  for (const root of roots) {
    for (const name of names) {
      const file = path.join(root, name);
      if (fs.statSync(file, { throwIfNoEntry: false })?.isFile()) return file;
    }
  }
  throw new Error(`no module ${module}; looked for ${bases[1]}.mjs, .js and .cjs in ${roots.join(" and ")}`);
}

async function load(entry) {
  const at = entry.lastIndexOf(":");
  const module = entry.slice(0, at);
  const name = entry.slice(at + 1);
  const loaded = await import(pathToFileURL(locate(module)).href);
  // A CommonJS module's exports are its default export; not all of them are found by their names.
  const found = loaded[name] ?? loaded.default?.[name];
  if (typeof found === "function") return found;
  const known = [...Object.keys(loaded), ...Object.keys(loaded.default ?? {})].filter((key) => key !== "default");
  throw new TypeError(`module ${module} has no function ${name}; it has ${[...new Set(known)].slice(0, 10).join(", ") || "none"}`);
}

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);

try {
  const request = JSON.parse(fs.readFileSync(0, "utf8"));
  process.title = "tp:" + String(request.tool).replace(/[^!-~]/g, "_"); // what the system's ps shows
  context = request.capability_context ?? {};
  const run = await load(request.entry);
  const result = await run(request.payload);
  const text = JSON.stringify(result === undefined ? null : result, checked);
  if (text === undefined) throw new TypeError(`the result, a ${typeof result}, cannot be written as JSON`);
  reply({ ok: true, protocol_version: VERSION, result: JSON.parse(text) });
  process.exit(0);
} catch (err) {
  fail(err);
}
