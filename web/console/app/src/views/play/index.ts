import { go } from '../../lib/route.svelte';
import type { View } from '../../lib/view';

export const view: View = {
  name: 'play', title: 'Play', icon: 'play', order: 1, key: 'p',
  main: () => import('./Main.svelte'),
  actions: () => [{ title: 'Play: a new game', words: 'story adventure start over', run: () => go('play') }],
};
