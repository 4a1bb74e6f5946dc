// Who is signed in, for all of the page.

import { onSignedOut, providers, Refusal, session as ask, signIn as begin, signOut as end, type Farewell, type Provider, type Session } from './api';
import { whenBack } from './connection.svelte';
import { replace, route } from './route.svelte';
import { messageOf } from './text';

type Who = { state: 'asking' } | { state: 'out'; why: string; farewell?: Farewell | undefined } | { state: 'in'; session: Session };

let who = $state.raw<Who>({ state: 'asking' });
onSignedOut(() => {
  if (who.state === 'in') who = { state: 'out', why: 'You were signed out: the server was restarted, you were away too long, or your provider ended it. Sign in to go on where you were.' };
});
// A page that follows nothing learns here that its session is over.
setInterval(() => {
  if (who.state === 'in' && !document.hidden) void ask().catch(() => undefined);
}, 10_000);

export const session = {
  get who(): Who { return who; },
  /** who is signed in; views are only ever shown to somebody */
  get caller(): string { return who.state === 'in' ? who.session.caller : ''; },
  get operator(): boolean { return who.state === 'in' && who.session.operator; },
};

/** start finds out who is here: by the code of a one-time link, which leaves the address at once, or by the cookie. */
export async function start(): Promise<void> {
  const code = route.view === 'signin' ? route.param('code') : '';
  if (code) {
    replace('#/');
    await signIn({ code });
    return;
  }
  for (;;) {
    try {
      who = { state: 'in', session: await ask() };
      return;
    } catch (e) {
      if (e instanceof Refusal && e.status === 0) {
        await whenBack();
        continue;
      }
      who = { state: 'out', why: e instanceof Refusal && e.status !== 401 ? e.message : '' };
      return;
    }
  }
}

/** known lists the providers with which people sign in; none while the server cannot be asked. */
export async function known(): Promise<Provider[]> {
  try {
    return await providers();
  } catch {
    return [];
  }
}

/** signIn begins a session, or says why not. */
export async function signIn(by: { code: string } | { token: string }): Promise<void> {
  try {
    who = { state: 'in', session: await begin(by) };
  } catch (e) {
    who = { state: 'out', why: messageOf(e) };
  }
}

/** signOut ends the session; while the server cannot be reached nothing is signed out, and the shell says so. */
export async function signOut(): Promise<void> {
  let farewell: Farewell | undefined;
  try {
    farewell = await end();
  } catch (e) {
    if (e instanceof Refusal && e.status !== 401) return;
  }
  who = { state: 'out', why: '', farewell };
}
