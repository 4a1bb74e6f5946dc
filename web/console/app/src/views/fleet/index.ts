import { session } from '../../lib/session.svelte';
import type { View } from '../../lib/view';

export const view: View = {
  name: 'fleet', title: 'Fleet', icon: 'fleet', key: 'f',
  main: () => import('./Main.svelte'),
  drawer: () => import('./Drawer.svelte'),
  shown: () => session.operator,
};
