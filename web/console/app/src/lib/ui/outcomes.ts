// What a thing came to, in one of seven looks. Each has a colour and a shape of its own, so that colour is never the only sign.

export type Look = 'ok' | 'failed' | 'refused' | 'error' | 'running' | 'waiting' | 'skipped';

const looks: Record<string, Look> = {
  ok: 'ok', success: 'ok', done: 'ok', ready: 'ok', up: 'ok', valid: 'ok', verified: 'ok', live: 'ok', granted: 'ok',
  failed: 'failed', tool_error: 'failed', degraded: 'failed', retrying: 'failed', expired: 'failed', asked: 'waiting',
  refused: 'refused', denied: 'refused', access_denied: 'refused', revoked: 'refused', held: 'refused',
  error: 'error', crash: 'error', timeout: 'error', lost: 'error', down: 'error', broken: 'error',
  running: 'running', starting: 'running',
  waiting: 'waiting', queued: 'waiting', pending: 'waiting',
  skipped: 'skipped', cancelled: 'skipped', off: 'skipped',
};

/** lookOf gives the look of a word for an outcome or a state; unknown words are quiet. A word can be a tool's, such as "constructor". */
export function lookOf(word: string): Look {
  return Object.hasOwn(looks, word) ? looks[word]! : 'skipped';
}

/** colourOf gives the custom property of a look. */
export function colourOf(look: Look): string {
  return look === 'waiting' || look === 'skipped' ? '--text-3' : `--${look}`;
}
