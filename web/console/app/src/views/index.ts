// The views, in the order of the navigation. A view is a folder here: its index.ts is small and always loaded, what it shows is not.

import type { View } from '../lib/view';
import { view as audit } from './audit';
import { view as live } from './live';
import { view as operate } from './operate';
import { view as plans } from './plans';
import { view as play } from './play';
import { view as tools } from './tools';

export const views: View[] = [play, tools, live, plans, audit, operate].sort((a, b) => a.order - b.order);

/** first is what a visitor sees who asks for nothing else. */
export const first: View = views[0]!;
