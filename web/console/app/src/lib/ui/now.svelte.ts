// One clock for all times on the page: a timer for each would draw thousands of times a second in a long list.

import { createSubscriber } from 'svelte/reactivity';

const subscribe = createSubscriber((update) => {
  const timer = setInterval(() => document.hidden || update(), 1000);
  return () => clearInterval(timer);
});

/** now gives the time; what reads it in a component is drawn again each second. */
export function now(): number {
  subscribe();
  return Date.now();
}
