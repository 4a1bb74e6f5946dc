// The address of what is shown, in the hash: #/NAME[/ID][?query], or #/NAME/PART[/ID][?query] for a view in parts. The hash is never
// sent to a server.

import { untrack } from 'svelte';

export interface Route {
  view: string;
  part: string; // of a view in parts; '': its first one
  id: string; // of what the drawer shows; '': it is closed
  query: URLSearchParams;
}

/** The views in parts: what comes behind their name is a part, and the id behind that. */
const parted = ['operate'];

type Query = Record<string, string | number | boolean | undefined>;

function parse(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [view = '', ...rest] = path.split('/');
  const part = parted.includes(view) ? plain(rest.shift() ?? '') : '';
  return { view: plain(view), part, id: plain(rest.join('/')), query: new URLSearchParams(search) };
}

function plain(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed a stray percent sign
  }
}

let now = $state.raw<Route>(parse(location.hash));
addEventListener('hashchange', () => (now = parse(location.hash)));

/** route is what the address says now; reactive. */
export const route = {
  get view() { return now.view; },
  get part() { return now.part; },
  get id() { return now.id; },
  get query() { return now.query; },
  /** text of one parameter of the query, or ''. */
  param(name: string): string { return now.query.get(name) ?? ''; },
};

/** address gives the hash of a view, something in it, a query, and a part of the view; what is empty in it is left out. */
export function address(view: string, id = '', query: Query | URLSearchParams = {}, part = ''): string {
  const search = query instanceof URLSearchParams ? query : new URLSearchParams();
  if (!(query instanceof URLSearchParams)) {
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== '' && value !== false) search.set(name, String(value));
    }
  }
  const text = search.toString();
  return `#/${encodeURIComponent(view)}${part ? `/${encodeURIComponent(part)}` : ''}${id ? `/${encodeURIComponent(id)}` : ''}${text ? `?${text}` : ''}`;
}

/** go opens an address; the browser's Back leads here again. */
export function go(view: string, id = '', query: Query | URLSearchParams = {}, part = ''): void {
  location.hash = address(view, id, query, part);
}

/** open shows something of the view in the drawer and keeps the query; '' closes it. */
export function open(id: string): void {
  go(now.view, id, now.query, now.part);
}

/** refine changes parameters of the query in place: typing into a filter is no step to go back from. An effect that calls it
 *  follows what it gives, not the address: else it would follow its own changes. */
export function refine(change: Query): void {
  const was = untrack(() => now);
  const query = new URLSearchParams(was.query);
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined || value === '' || value === false) query.delete(name);
    else query.set(name, String(value));
  }
  replace(address(was.view, was.id, query, was.part));
}

/** replace sets the address without a step in the history. */
export function replace(hash: string): void {
  if (hash === location.hash) return;
  history.replaceState(null, '', hash);
  now = parse(hash);
}
