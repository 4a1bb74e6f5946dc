import { go } from '../../lib/route.svelte';
import type { View } from '../../lib/view';

export const view: View = {
  name: 'audit', title: 'Audit', icon: 'audit', key: 'a',
  main: () => import('./Main.svelte'),
  drawer: () => import('./Drawer.svelte'),
  actions: () => [
    { title: 'Calls that failed in the last hour', hint: 'audit', words: 'errors', run: () => go('audit', '', { outcome: 'failed', since: '1h' }) },
    { title: 'Calls that were refused today', hint: 'audit', words: 'denied policy', run: () => go('audit', '', { outcome: 'refused', since: '24h' }) },
  ],
};
