// Tokens and leases have this in common: one is issued, its secret is shown once, and it can be revoked.

import { messageOf } from '../../lib/text';
import { own } from '../../lib/own';

export class Issuing<Item extends { id: string }, Issued extends { token: string }> {
  /** Whether the form is open. */
  open = $state(false);
  issued = $state.raw<Issued>();
  /** The one to revoke, if that is confirmed. */
  doomed = $state.raw<Item>();
  failed = $state('');

  constructor(private readonly kind: 'token' | 'lease', private readonly changed: () => void) {}

  /** Issues one, and says whether it did. */
  async issue(args: object): Promise<boolean> {
    const issued = await this.try(() => own<Issued>(`${this.kind}.issue`, args));
    if (!issued) return false;
    this.issued = issued;
    this.open = false;
    this.changed();
    return true;
  }

  async revoke(): Promise<void> {
    if (!this.doomed) return;
    const { id } = this.doomed;
    await this.try(() => own(`${this.kind}.revoke`, { id }));
    this.changed();
  }

  private async try<T>(ask: () => Promise<T>): Promise<T | undefined> {
    this.failed = '';
    try {
      return await ask();
    } catch (e) {
      this.failed = messageOf(e);
      return undefined;
    }
  }
}
