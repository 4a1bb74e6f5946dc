import type { View } from '../../lib/view';
import { waiting, watch } from '../../lib/approvals.svelte';

export const view: View = {
  name: 'overview', title: 'Overview', icon: 'overview', key: 'h',
  main: () => import('./Main.svelte'),
  badge: () => {
    queueMicrotask(watch); // the number in the navigation is what begins the stream
    return waiting.list.length || undefined;
  },
};
