// The parts of Operate, each with an address of its own: #/operate/NAME.

import type { Component } from 'svelte';

export interface Part { name: string; title: string; words: string; main: () => Promise<{ default: Component }> }

export const parts: Part[] = [
  { name: 'sources', title: 'Sources', words: 'what is down health add mcp server', main: () => import('./Sources.svelte') },
  { name: 'approvals', title: 'Approvals', words: 'allow deny waiting history', main: () => import('./Approvals.svelte') },
  { name: 'jobs', title: 'Jobs', words: 'questions async failed', main: () => import('./Jobs.svelte') },
  { name: 'limits', title: 'Limits', words: 'what is full quota queue disk store', main: () => import('./Limits.svelte') },
  { name: 'callers', title: 'Callers', words: 'tokens keys who', main: () => import('./Keys.svelte') },
  { name: 'leases', title: 'Leases', words: 'single use permission', main: () => import('./Leases.svelte') },
  { name: 'policy', title: 'Policy', words: 'explain why refused rule', main: () => import('./Explain.svelte') },
  { name: 'config', title: 'Config', words: 'toolpost.yaml reload errors', main: () => import('./Config.svelte') },
];
