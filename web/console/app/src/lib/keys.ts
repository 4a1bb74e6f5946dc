// Keys, in one place: a view that wants one binds it, and the newest that does gets it. So a drawer takes Esc before the list below it.

export interface Binding {
  keys: string; // 'j', 'Enter', 'mod+k' (Cmd on a Mac, Ctrl elsewhere), 'g t' (one after the other), '?'
  run: (e: KeyboardEvent) => void | boolean; // false: not now; others are asked
  inFields?: boolean; // also while somebody types
}

const bound: Binding[] = [];
let prefix = '';
let forget: ReturnType<typeof setTimeout> | undefined;

/** bind adds bindings until the function that it returns is called; made for the return value of $effect. */
export function bind(...bindings: Binding[]): () => void {
  bound.push(...bindings);
  return () => {
    for (const b of bindings) {
      const i = bound.lastIndexOf(b);
      if (i >= 0) bound.splice(i, 1);
    }
  };
}

/** every lists all keys of the console by where they work, but for those that go to a view; '?' shows it. */
export const every: { where: string; keys: [keys: string, does: string][] }[] = [
  { where: 'Everywhere', keys: [['mod+k', 'Commands'], ['/', 'Search'], ['Escape', 'Close'], ['?', 'These keys']] },
  { where: 'In lists', keys: [['j', 'Next'], ['k', 'Previous'], ['ArrowDown', 'Next'], ['ArrowUp', 'Previous'], ['Enter', 'Open']] },
  { where: 'In a tool or a plan', keys: [['mod+enter', 'Run']] },
  { where: 'In Live', keys: [['p', 'Pause, or go on']] },
  { where: 'In Play', keys: [['1…9', 'Choose'], ['t', 'Say something else']] },
];

export const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent);

/** spoken gives the keys of a binding as they are printed on keyboards. */
export function spoken(keys: string): string[] {
  const names: Record<string, string> = { mod: isMac ? '⌘' : 'Ctrl', Escape: 'Esc', enter: 'Enter', ArrowDown: '↓', ArrowUp: '↑' };
  return keys.split(/[ +]/).map((k) => names[k] ?? (k.length === 1 && keys.includes('+') ? k.toUpperCase() : k));
}

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement
    && (target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName)
      || target instanceof HTMLInputElement && !/^(checkbox|radio|button|submit|range)$/.test(target.type));
}

/** listen hears the page's keys; it is called once. */
export function listen(): void {
  addEventListener('keydown', (e) => {
    if (e.defaultPrevented || e.isComposing) return;
    const mod = isMac ? e.metaKey : e.ctrlKey;
    if (e.altKey || (isMac ? e.ctrlKey : e.metaKey)) return;
    const key = mod ? `mod+${e.key.toLowerCase()}` : e.key;
    const typing = isField(e.target);
    const after = prefix ? `${prefix} ${key}` : key;
    prefix = '';
    clearTimeout(forget);
    for (const wanted of after === key ? [key] : [after, key]) {
      for (let i = bound.length - 1; i >= 0; i--) {
        const b = bound[i]!;
        if (b.keys !== wanted || typing && !b.inFields) continue;
        if (b.run(e) === false) continue;
        e.preventDefault();
        return;
      }
    }
    // Enter and Space belong to what has the focus; a letter may be the first of two.
    if (!typing && !mod && bound.some((b) => b.keys.startsWith(`${key} `))) {
      prefix = key;
      forget = setTimeout(() => (prefix = ''), 1000);
      e.preventDefault();
    }
  });
}
