import type { Component } from 'svelte';
import type { IconName } from './ui/icons';

/** An Action is one thing that the palette offers. */
export interface Action {
  title: string;
  hint?: string; // what stands to the right, such as a kind
  keys?: string; // that do the same, as lib/keys writes them
  words?: string; // further words that find it
  run: () => void;
}

/** A View is one entry of the navigation. What it shows is loaded when it is first opened. */
export interface View {
  name: string; // in addresses: #/NAME
  title: string;
  icon: IconName;
  key: string; // the second of two keys that open it: g, then this one
  main: () => Promise<{ default: Component }>;
  /** What slides over from the right at #/NAME/ID. */
  drawer?: () => Promise<{ default: Component<{ id: string }> }>;
  /** What the palette offers beside the views; asked each time that it opens. */
  actions?: () => Action[] | Promise<Action[]>;
  /** A number beside the title, such as calls that run; undefined: none. Reactive. */
  badge?: () => number | undefined;
  /** Whether it is in the navigation; without it: always. Its address works all the same. Reactive. */
  shown?: () => boolean;
}
