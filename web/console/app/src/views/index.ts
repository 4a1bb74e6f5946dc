// The views, in the order of the navigation. A view is a folder here: its index.ts is small and always loaded, what it shows is not.

import type { View } from '../lib/view';
import { view as audit } from './audit';
import { view as connections } from './connections';
import { view as fleet } from './fleet';
import { view as live } from './live';
import { view as operate } from './operate';
import { view as overview } from './overview';
import { view as plans } from './plans';
import { view as play } from './play/index.svelte';
import { view as tools } from './tools';

export const views: View[] = [overview, tools, live, plans, audit, operate, connections, fleet, play];

/** first is what a visitor sees who asks for nothing else. */
export const first: View = overview;
