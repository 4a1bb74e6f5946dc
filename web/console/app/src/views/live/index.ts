import type { View } from '../../lib/view';
import { live, watch } from './calls.svelte';

export const view: View = {
  name: 'live', title: 'Live', icon: 'live', key: 'l',
  main: () => import('./Main.svelte'),
  drawer: () => import('./Drawer.svelte'),
  badge: () => {
    queueMicrotask(watch); // the number in the navigation is what begins the stream
    return live.running || undefined;
  },
};
