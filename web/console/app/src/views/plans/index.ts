import { go } from '../../lib/route.svelte';
import type { View } from '../../lib/view';

export const view: View = {
  name: 'plans', title: 'Plans', icon: 'plans', key: 'n',
  main: () => import('./Main.svelte'),
  actions: () => [{ title: 'Plans: run one', words: 'new paste upload check', run: () => go('plans', 'new') }],
};
