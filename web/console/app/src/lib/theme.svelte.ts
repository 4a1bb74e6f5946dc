// Light, dark, or what the machine says. The choice is a preference and nothing else is kept in the browser.

export type Theme = 'system' | 'light' | 'dark';

const place = 'theme';
let chosen = $state.raw<Theme>(read());
apply();

function read(): Theme {
  const kept = localStorage.getItem(place);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

function apply(): void {
  if (chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

export const theme = {
  get now(): Theme { return chosen; },
  set(to: Theme): void {
    chosen = to;
    if (to === 'system') localStorage.removeItem(place);
    else localStorage.setItem(place, to);
    apply();
  },
};

/** colour gives what a custom property such as --ok is now, for canvases, which do not know properties. Reactive to a choice
 *  of theme; a page that draws listens to the machine's own change with onSchemeChange. */
export function colour(property: string): string {
  void chosen;
  const probe = document.createElement('span');
  probe.style.color = `var(${property})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** onSchemeChange calls back when the machine turns light or dark; it returns what ends that. */
export function onSchemeChange(then: () => void): () => void {
  const query = matchMedia('(prefers-color-scheme: dark)');
  query.addEventListener('change', then);
  return () => query.removeEventListener('change', then);
}
