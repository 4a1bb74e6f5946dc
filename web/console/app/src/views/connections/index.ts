import type { View } from '../../lib/view';

export const view: View = {
  name: 'connections', title: 'Connections', icon: 'key', key: 'c',
  main: () => import('./Main.svelte'),
};
