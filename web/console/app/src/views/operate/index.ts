import { go } from '../../lib/route.svelte';
import type { View } from '../../lib/view';
import { waiting, watch } from './approvals.svelte';

export const view: View = {
  name: 'operate', title: 'Operate', icon: 'operate', order: 6, key: 'o',
  main: () => import('./Main.svelte'),
  drawer: () => import('./Job.svelte'),
  badge: () => {
    queueMicrotask(watch); // the number in the navigation is what begins the stream
    return waiting.list.length || undefined;
  },
  actions: () => [
    ...(['sources', 'approvals', 'full', 'keys', 'leases', 'jobs', 'policy', 'config'] as const).map((at) => ({
      title: { sources: 'What is down', approvals: 'What has to be approved', full: 'What is full', keys: 'Callers and tokens', leases: 'Leases', jobs: 'Jobs', policy: 'Explain the policy', config: 'The config' }[at],
      hint: 'operate', run: () => go('operate', '', { at }),
    })),
  ],
};
