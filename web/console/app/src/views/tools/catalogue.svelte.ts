// The catalogue and the sources, shared by the list, the drawer and the palette.

import { output, Refusal, tools, type Tool } from '../../lib/api';

export interface Source {
  name: string;
  protocol: string;
  state: 'ready' | 'down' | 'degraded';
  error: string;
  since: string;
  tools: Tool[];
}

interface Health { name: string; protocol: string; state: string; since: string; error?: string }

let list = $state.raw<Source[]>();
let why = $state('');
let loading: Promise<void> | undefined;

/** catalogue is what was last loaded; reactive. */
export const catalogue = {
  get sources() { return list; },
  get why() { return why; },
};

/** load asks for all of it; several who ask at once share one answer. */
export function load(): Promise<void> {
  return (loading ??= ask().finally(() => (loading = undefined)));
}

async function ask(): Promise<void> {
  try {
    const [all, health] = await Promise.all([tools(), sources()]);
    const by = new Map<string, Source>();
    for (const h of health) {
      by.set(h.name, { name: h.name, protocol: h.protocol, state: h.state === 'open' ? (h.error ? 'degraded' : 'ready') : 'down', error: h.error ?? '', since: h.since, tools: [] });
    }
    const of = (t: Tool): Source => {
      const known = by.get(t.source);
      if (known) return known;
      const made: Source = { name: t.source, protocol: t.protocol, state: 'ready', error: '', since: '', tools: [] };
      by.set(t.source, made);
      return made;
    };
    for (const t of all.failed ?? []) Object.assign(of(t), { state: 'down', error: t.reason ?? '' });
    for (const t of all.tools) {
      const s = of(t);
      s.tools.push(t);
      if (!t.available && s.state === 'ready') Object.assign(s, { state: 'degraded', error: t.reason ?? '' });
    }
    for (const s of by.values()) if (s.tools.length && s.tools.every((t) => !t.available)) s.state = 'down';
    list = [...by.values()];
    why = '';
  } catch (e) {
    if (!(e instanceof Refusal)) throw e;
    why = e.message;
  }
}

/** sources tells how each is; who does not run the program is not told. */
async function sources(): Promise<Health[]> {
  try {
    return (await output<{ sources: Health[] }>('listSources')).sources;
  } catch (e) {
    if (e instanceof Refusal && e.status !== 0) return [];
    throw e;
  }
}
