// What the form of a tool is to begin with: somebody wants to make a call again. It is taken once.

import type { Json } from '../../lib/api';

export const again: { args: Json | undefined; session: string } = $state({ args: undefined, session: '' });

/** take gives what there is, and forgets it. */
export function take(): { args: Json | undefined; session: string } {
  const was = { args: again.args, session: again.session };
  again.args = undefined;
  again.session = '';
  return was;
}
