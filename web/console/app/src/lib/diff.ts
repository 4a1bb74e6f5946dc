// What changed between two JSON documents, and how patches change one.

export type Change = 'added' | 'changed' | 'removed';

/** The path of a member of an object or a list, as a JSON pointer. */
export function below(path: string, key: string | number): string {
  return `${path}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`;
}

/** A document can be as large as a tool likes, and only what can be seen is worth looking for. */
const mostVisited = 20_000;

/**
 * Lists what changed, by path. Something that is new or gone is listed with its own path, and not with those below it; a
 * value that became another one is changed.
 */
export function diff(before: unknown, after: unknown): Map<string, Change> {
  const changes = new Map<string, Change>();
  let visited = 0;
  const visit = (a: unknown, b: unknown, path: string) => {
    if (visited++ > mostVisited || Object.is(a, b)) return;
    const [x, y] = [members(a), members(b)];
    if (!x || !y || Array.isArray(a) !== Array.isArray(b)) {
      changes.set(path, 'changed');
      return;
    }
    for (const [key, value] of y) {
      if (x.has(key)) visit(x.get(key), value, below(path, key));
      else changes.set(below(path, key), 'added');
    }
    for (const key of x.keys()) if (!y.has(key)) changes.set(below(path, key), 'removed');
  };
  visit(before, after, '');
  return changes;
}

/** The members of an object or a list; undefined for everything else. */
export function members(value: unknown): Map<string, unknown> | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  return new Map(Object.entries(value));
}

/**
 * Merges a patch into a document as the session does: objects member by member, lists and everything else as a whole, and
 * null removes. The document is not changed.
 */
export function merge(document: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const out = new Map(isObject(document) ? Object.entries(document) : []);
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) out.delete(key);
    else out.set(key, merge(out.get(key), value));
  }
  return Object.fromEntries(out); // defines members: a key "__proto__" is a member like any other
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
