// The accounts of the caller: what connects one, and what comes back from its provider.

import { at } from '../../lib/api';
import { own } from '../../lib/own';
import { replace, route } from '../../lib/route.svelte';
import { messageOf } from '../../lib/text';

export interface Connection {
  name: string; caller: string; state: string; kind: 'account' | 'pasted' | 'client_credentials'; provider?: string; hosts: string[];
  scopes?: string[]; connected?: string; expires?: string; used?: string; memory?: boolean;
}

/** What a link of a tool says beside the view: which connection, and for which agent, if not for the caller. */
export interface Asked { name: string; link: string; caller: string }

export class Connecting {
  asked = $state.raw<Asked>();
  done = $state('');
  failed = $state('');
  busy = $state(false);

  constructor(private readonly changed: () => void) {}

  /** Reads what the address brings, and takes it out of the address: a code is used once. */
  async arrive(): Promise<void> {
    const [state, code, issuer, error, where] = ['state', 'code', 'iss', 'error', 'at'].map((name) => route.param(name));
    const link = route.param('link');
    if (link) this.asked = { name: route.param('name'), link, caller: route.param('caller') };
    if (state || error || link) replace('#/connections');
    if (error) this.failed = 'The provider says that access was not granted.';
    else if (state && code) {
      await this.try(async () => {
        const { name } = await own<{ name: string }>('connections.finish', { secret_state: state, secret_code: code, issuer, at: where });
        this.done = `${name} is connected.`;
      });
    }
  }

  /** Sends the browser to the provider. */
  async connect({ name, link }: { name: string; link?: string }): Promise<void> {
    await this.try(async () => {
      const redirect = at(`v1/connections/callback/${name}`);
      const { secret_url } = await own<{ secret_url: string }>('connections.start', { ...(link ? { secret_link: link } : { name }), redirect });
      if (/^https?:\/\//.test(secret_url)) location.assign(secret_url);
    });
  }

  /** Keeps a key for what a link names, or for a connection of the caller. */
  async paste(of: { name: string; link?: string }, key: string): Promise<void> {
    await this.try(async () => {
      const { name } = await own<{ name: string }>('connections.key', { ...(of.link ? { secret_link: of.link } : { name: of.name }), secret_key: key });
      this.done = `${name} is connected.`;
      this.asked = undefined;
    });
  }

  async remove(name: string): Promise<void> {
    await this.try(async () => {
      const { stays } = await own<{ stays?: string }>('connections.remove', { name });
      this.done = `${name} is forgotten.`;
      if (stays) this.failed = `The provider may still accept it: ${stays}`;
    });
  }

  private async try(act: () => Promise<void>): Promise<void> {
    this.failed = this.done = '';
    this.busy = true;
    try {
      await act();
    } catch (e) {
      this.failed = messageOf(e);
    }
    this.busy = false;
    this.changed();
  }
}
