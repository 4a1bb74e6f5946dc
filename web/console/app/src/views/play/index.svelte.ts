import { output } from '../../lib/api';
import { go } from '../../lib/route.svelte';
import type { View } from '../../lib/view';

let stories = $state(0);
let asked = false;

// A caller without a story, or without the right to it, sees no game.
function look(): void {
  if (asked) return;
  asked = true;
  output<{ stories?: unknown[] }>('story.show').then((s) => (stories = s.stories?.length ?? 0), () => (asked = false));
}

export const view: View = {
  name: 'play', title: 'Play', icon: 'play', key: 'p',
  main: () => import('./Main.svelte'),
  shown: () => {
    queueMicrotask(look);
    return stories > 0;
  },
  actions: () => stories ? [{ title: 'Play: a new game', words: 'story adventure start over', run: () => go('play') }] : [],
};
