import { go } from '../../lib/route.svelte';
import type { View } from '../../lib/view';
import { parts } from './parts';

export const view: View = {
  name: 'operate', title: 'Operate', icon: 'operate', key: 'o',
  main: () => import('./Main.svelte'),
  drawer: () => import('./Job.svelte'),
  actions: () => parts.map((p) => ({ title: p.title, hint: 'operate', words: p.words, run: () => go('operate', '', {}, p.name) })),
};
