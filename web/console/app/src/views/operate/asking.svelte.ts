// What a part of Operate asks for: its data, asked again when it is told to; or why there is none.

import { Refusal } from '../../lib/api';
import { messageOf } from '../../lib/text';

export class Asking<T> {
  got = $state.raw<T>();
  failed = $state('');

  constructor(private readonly ask: () => Promise<T>) {
    void this.again();
  }

  again = async (): Promise<void> => {
    try {
      this.got = await this.ask();
      this.failed = '';
    } catch (e) {
      this.failed = e instanceof Refusal && e.code === 'access_denied' ? 'This is for operators: the owner, and callers with their role.' : messageOf(e);
    }
  };
}
