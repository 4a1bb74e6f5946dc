// The nodes of the fleet, asked for again and again while the view is open.

import { Refusal } from '../../lib/api';
import { own } from '../../lib/own';
import { count, messageOf } from '../../lib/text';

/** A Node is docs/05-command-line.md, listNodes. */
export interface Node {
  name: string; id: string; role: 'hub' | 'worker'; state: 'up' | 'draining' | 'gone' | 'refused'; version?: string; labels?: string[];
  tools: number; running: number; places?: number; load: number; since?: string; drift?: string[]; refused?: string; here?: boolean; address?: string;
}

const every = 2000; // ms

let all = $state.raw<Node[]>();
let none = $state(false);
let failed = $state('');

export const fleet = {
  /** undefined: not known yet. Reactive, like all of it. */
  get nodes() { return all; },
  /** The server is no hub. */
  get none() { return none; },
  get failed() { return failed; },
};

/** look asks once. */
export async function look(): Promise<void> {
  try {
    const l = await own<{ nodes: Node[] | null }>('listNodes');
    all = (l.nodes ?? []).sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
    [none, failed] = [false, ''];
  } catch (e) {
    none = e instanceof Refusal && e.code === 'not_found';
    failed = none ? '' : messageOf(e);
  }
}

const rank = (n: Node): number => (n.state === 'gone' ? 2 : 0) + (n.role === 'hub' ? 0 : 1);

/** watch looks until the signal ends it; a page that is not seen asks nothing. */
export function watch(signal: AbortSignal): void {
  void look();
  const timer = setInterval(() => document.hidden || void look(), every);
  signal.addEventListener('abort', () => clearInterval(timer));
}

/** The word of a state, as outcomes know their looks. */
export const stateOf = (n: Node): string => ({ up: 'up', draining: 'waiting', gone: 'off', refused: 'error' })[n.state] ?? n.state;

export const places = (n: Node): string => (n.places ? `${count(n.running)} of ${count(n.places)}` : '–');
