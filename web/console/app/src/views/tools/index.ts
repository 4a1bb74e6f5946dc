import { go } from '../../lib/route.svelte';
import { oneLine } from '../../lib/text';
import type { View } from '../../lib/view';
import { catalogue, load } from './catalogue.svelte';

export const view: View = {
  name: 'tools', title: 'Tools', icon: 'tools', key: 't',
  main: () => import('./Main.svelte'),
  drawer: () => import('./Drawer.svelte'),
  actions: async () => {
    if (!catalogue.sources) await load();
    return (catalogue.sources ?? []).flatMap((s) => s.tools.map((t) => ({
      title: `Call ${oneLine(t.name, 60)}`, hint: oneLine(t.source, 30), words: oneLine(t.description ?? '', 200), run: () => go('tools', t.name),
    })));
  },
};
