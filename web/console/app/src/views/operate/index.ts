import { go } from '../../lib/route.svelte';
import type { View } from '../../lib/view';

export const view: View = {
  name: 'operate', title: 'Operate', icon: 'operate', order: 6, key: 'o',
  main: () => import('./Main.svelte'),
  drawer: () => import('./Job.svelte'),
  actions: () => [
    ...(['sources', 'full', 'keys', 'leases', 'jobs', 'policy', 'config'] as const).map((at) => ({
      title: { sources: 'What is down', full: 'What is full', keys: 'Callers and tokens', leases: 'Leases', jobs: 'Jobs', policy: 'Explain the policy', config: 'The config' }[at],
      hint: 'operate', run: () => go('operate', '', { at }),
    })),
  ],
};
