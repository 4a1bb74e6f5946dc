// What a form needs to know of a JSON Schema 2020-12. A form can show a part of what a schema can say; for the rest there is a
// field for JSON, and the server has the last word about everything.

import type { Json, Schema } from './api';

export type Doc = { [keyword: string]: Json };

/** What a field is shown as. */
export type Shape =
  | { kind: 'text'; long: boolean }
  | { kind: 'number'; whole: boolean }
  | { kind: 'switch' }
  | { kind: 'null' }
  | { kind: 'const'; value: Json }
  | { kind: 'enum'; values: Json[] }
  | { kind: 'object'; members: [string, Schema][]; required: Set<string> }
  | { kind: 'list'; items: Schema }
  | { kind: 'choice'; of: Schema[] }
  | { kind: 'json' };

const isDoc = (s: Json | undefined): s is Doc => s !== null && typeof s === 'object' && !Array.isArray(s);

/** deref follows references within a schema, not forever. */
export function deref(schema: Schema, root: Schema): Doc {
  let s: Schema = schema;
  for (let i = 0; i < 16 && isDoc(s) && typeof s.$ref === 'string'; i++) {
    const target = s.$ref.startsWith('#') && isDoc(root) ? at(root, s.$ref.slice(1)) : undefined;
    if (!isDoc(target)) return {};
    const { $ref: _, ...beside } = s;
    s = { ...target, ...beside };
  }
  return isDoc(s) ? s : {};
}

/** at finds what a JSON pointer names. */
function at(doc: Json, pointer: string): Json | undefined {
  let now: Json | undefined = doc;
  for (const part of pointer.split('/').slice(1)) {
    if (now === null || typeof now !== 'object') return undefined;
    now = (now as Doc)[decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')];
  }
  return now;
}

/** step adds a member's name to a JSON pointer. */
export const step = (pointer: string, name: string | number): string =>
  `${pointer}/${String(name).replaceAll('~', '~0').replaceAll('/', '~1')}`;

// Words that a form does not show and that change what fits: a field that had them would say too little.
const beyond = ['if', 'not', 'allOf', 'prefixItems', 'patternProperties', 'dependentSchemas', 'contains', 'propertyNames', '$dynamicRef'];

/** shapeOf says what a field for a schema is. */
export function shapeOf(schema: Schema, root: Schema): Shape {
  const s = deref(schema, root);
  if ('const' in s) return { kind: 'const', value: s.const! };
  if (Array.isArray(s.enum)) return { kind: 'enum', values: s.enum };
  if (beyond.some((word) => word in s)) return { kind: 'json' };
  const choices = s.oneOf ?? s.anyOf;
  if (Array.isArray(choices) && choices.length) {
    const { oneOf: _, anyOf: __, title: ___, description: ____, default: _____, ...common } = s;
    return { kind: 'choice', of: choices.map((c) => isDoc(c) ? { ...common, ...deref(c, root) } : (c as Schema)) };
  }
  if (Array.isArray(s.type)) {
    if (s.type.length === 1) return shapeOf({ ...s, type: s.type[0]! }, root);
    return { kind: 'choice', of: s.type.map((type) => ({ ...s, type, title: String(type), description: '' })) };
  }
  switch (s.type) {
    case 'string': return { kind: 'text', long: !s.pattern && !s.format && !(typeof s.maxLength === 'number' && s.maxLength <= 200) };
    case 'number': return { kind: 'number', whole: false };
    case 'integer': return { kind: 'number', whole: true };
    case 'boolean': return { kind: 'switch' };
    case 'null': return { kind: 'null' };
    case 'array': return isDoc(s.items) ? { kind: 'list', items: s.items } : { kind: 'json' };
  }
  if (isDoc(s.properties) && (s.type === 'object' || s.type === undefined)) {
    const required = new Set((Array.isArray(s.required) ? s.required : []).map(String));
    const members = Object.entries(s.properties) as [string, Schema][];
    // What has to be filled in comes first; else they stay in the order of the schema.
    members.sort(([a], [b]) => Number(required.has(b)) - Number(required.has(a)));
    return { kind: 'object', members, required };
  }
  return { kind: 'json' };
}

/** fits guesses whether a value is meant by one of several schemas, well enough to show the right one. */
export function fits(value: Json | undefined, schema: Schema, root: Schema): boolean {
  const shape = shapeOf(schema, root);
  switch (shape.kind) {
    case 'text': return typeof value === 'string';
    case 'number': return typeof value === 'number';
    case 'switch': return typeof value === 'boolean';
    case 'null': return value === null;
    case 'const': return JSON.stringify(value) === JSON.stringify(shape.value);
    case 'enum': return shape.values.some((v) => JSON.stringify(v) === JSON.stringify(value));
    case 'list': return Array.isArray(value);
    case 'object':
      return isDoc(value ?? undefined) && [...shape.required].every((name) => name in (value as Doc))
        && shape.members.every(([name, s]) => deref(s, root).const === undefined || JSON.stringify(deref(s, root).const) === JSON.stringify((value as Doc)[name]));
    case 'choice': return shape.of.some((one) => fits(value, one, root));
    case 'json': return value !== undefined && value !== null && typeof value === 'object';
  }
}

/** initial gives the value that a field begins with; undefined: none. */
export function initial(schema: Schema, root: Schema, required: boolean, depth = 0): Json | undefined {
  const s = deref(schema, root);
  if (s.default !== undefined && required) return s.default;
  const shape = shapeOf(schema, root);
  if (shape.kind === 'const') return required ? shape.value : undefined;
  if (!required || depth > 8) return undefined;
  switch (shape.kind) {
    case 'switch': return false;
    case 'null': return null;
    case 'list': return [];
    case 'choice': return initial(shape.of[0]!, root, true, depth + 1);
    case 'object': {
      const made: Doc = {};
      for (const [name, member] of shape.members) {
        const v = initial(member, root, shape.required.has(name), depth + 1);
        if (v !== undefined) made[name] = v;
      }
      return made;
    }
    default: return undefined;
  }
}

/** titleOf names one of several schemas. */
export function titleOf(schema: Schema, root: Schema): string {
  const s = deref(schema, root);
  if (typeof s.title === 'string' && s.title) return s.title;
  if ('const' in s) return JSON.stringify(s.const);
  if (isDoc(s.properties)) {
    for (const [name, member] of Object.entries(s.properties)) {
      const fixed = deref(member as Schema, root).const;
      if (fixed !== undefined) return `${name}: ${typeof fixed === 'string' ? fixed : JSON.stringify(fixed)}`;
    }
    return Object.keys(s.properties).slice(0, 3).join(', ') || 'object';
  }
  return typeof s.type === 'string' ? s.type : 'JSON';
}

/** hint says in a few words what else is asked for. */
export function hint(s: Doc): string {
  const words: string[] = [];
  const has = (name: string) => typeof s[name] === 'number' ? s[name] as number : undefined;
  const range = (least: number | undefined, most: number | undefined, unit: string) => {
    if (least !== undefined && most !== undefined) words.push(`${least} to ${most}${unit}`);
    else if (least !== undefined) words.push(`at least ${least}${unit}`);
    else if (most !== undefined) words.push(`at most ${most}${unit}`);
  };
  range(has('minimum'), has('maximum'), '');
  if (has('exclusiveMinimum') !== undefined) words.push(`more than ${has('exclusiveMinimum')}`);
  if (has('exclusiveMaximum') !== undefined) words.push(`less than ${has('exclusiveMaximum')}`);
  if (has('multipleOf') !== undefined) words.push(`a multiple of ${has('multipleOf')}`);
  range(has('minLength') === 1 && has('maxLength') === undefined ? undefined : has('minLength'), has('maxLength'), ' characters');
  range(has('minItems'), has('maxItems'), ' items');
  if (typeof s.pattern === 'string') words.push(s.pattern);
  if (typeof s.format === 'string') words.push(s.format);
  if (s.default !== undefined && typeof s.default !== 'boolean') words.push(`default: ${typeof s.default === 'string' ? s.default : JSON.stringify(s.default)}`);
  return words.join(' · ');
}

/** A Fault is what the server says of one place of the arguments: a JSON pointer, and what is wrong there. */
export interface Fault { at: string; problem: string }

/** faultsOf finds the faults in the details of a failure. */
export function faultsOf(details: Json | undefined): Fault[] {
  const list = isDoc(details) ? details.faults : undefined;
  return (Array.isArray(list) ? list : []).filter((f): f is Doc => isDoc(f) && typeof f.problem === 'string')
    .map((f) => ({ at: typeof f.at === 'string' ? f.at : '', problem: String(f.problem) }));
}
