// What a part of Operate asks for: its data, asked again when it is told to; or why there is none.

import { whyNot } from '../../lib/own';

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
      this.failed = whyNot(e);
    }
  };
}
