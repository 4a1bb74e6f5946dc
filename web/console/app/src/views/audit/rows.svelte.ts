// The rows that are shown now, for the drawer beside them.

import type { Row } from './ask';

let rows = $state.raw<Row[]>([]);

export const shown = {
  get rows() { return rows; },
  set(to: Row[]) { rows = to; },
};
