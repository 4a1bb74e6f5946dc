// A game: a session, in which a story is told turn by turn. Everything that lasts is on the server, so that a page that is
// loaded again, or one that lost its connection, asks story.show and goes on.

import { newCall, output, Refusal, stream, type Event } from '../../lib/api';
import { whenBack } from '../../lib/connection.svelte';
import { isObject, merge } from '../../lib/diff';
import { messageOf } from '../../lib/text';
import { begin, settled, told, type Turn } from './turn';

/** What story.show says of a story. */
export interface Story {
  name: string;
  title: string;
  /** The prompt that begins it. */
  opening: string;
  /** Why it cannot be told. */
  error?: string;
}

interface Shown {
  stories?: Story[];
  turns?: unknown[];
  state?: unknown;
}

type Phase = 'loading' | 'ready' | 'playing' | 'lost';

export class Game {
  phase = $state<Phase>('loading');
  /** Why the story cannot be shown at all. */
  failed = $state('');
  stories = $state.raw<Story[]>([]);
  turns = $state.raw<Turn[]>([]);
  state = $state.raw<unknown>({});
  private teller = $state('');
  private left = new AbortController();
  private late: Turn | undefined; // what an event changed since the last frame

  constructor(readonly session: string, readonly wanted: string) {}

  /** The story that is told: the one of the address, of the last turn, or the first. */
  get story(): Story | undefined {
    const name = this.wanted || this.teller;
    return this.stories.find((s) => s.name === name) ?? this.stories[0];
  }

  get now(): Turn | undefined {
    return this.turns.at(-1);
  }

  async load(): Promise<void> {
    try {
      const shown = await this.ask();
      this.take(shown);
      this.phase = 'ready';
    } catch (e) {
      if (this.left.signal.aborted) return;
      if (e instanceof Refusal && e.status === 0) {
        await whenBack();
        return this.load();
      }
      this.failed = messageOf(e);
      this.phase = 'ready';
    }
  }

  /** Plays a turn, and stays with it when the connection is lost. */
  async play(prompt: string): Promise<void> {
    if (this.phase !== 'ready' || prompt.trim() === '') return;
    this.phase = 'playing';
    const before = this.turns.filter((t) => !t.failed);
    this.turns = [...before, begin(prompt, new Date().toISOString())];
    try {
      const args = { ...(this.story ? { story: this.story.name } : {}), prompt };
      const o = { session: this.session, id: newCall(), signal: this.left.signal };
      const result = await stream<unknown>('story.turn', args, (e) => this.hear(e), o);
      this.flush();
      this.change((t) => settled(t, result.output));
      if (!result.ok) this.change((t) => ({ ...t, failed: result.error?.message || 'the turn failed' }));
      if (isObject(result.output) && isObject(result.output.state)) this.state = result.output.state;
    } catch (e) {
      if (this.left.signal.aborted) return;
      this.flush();
      if (e instanceof Refusal && e.status === 0) await this.recover(prompt, before.length);
      else this.change((t) => ({ ...t, failed: messageOf(e) }));
    }
    this.phase = 'ready';
  }

  /** Ends what is under way; the server cancels a turn whose listener went away. */
  leave(): void {
    this.left.abort();
  }

  /** The connection was lost in the middle of a turn: the server knows what became of it. */
  private async recover(prompt: string, before: number): Promise<void> {
    this.phase = 'lost';
    for (;;) {
      await whenBack();
      if (this.left.signal.aborted) return;
      try {
        this.take(await this.ask());
        break;
      } catch (e) {
        if (e instanceof Refusal && e.status === 0) continue;
        this.change((t) => ({ ...t, failed: messageOf(e) }));
        return;
      }
    }
    const last = this.now;
    if (this.turns.length > before && last?.prompt === prompt && last.choices.length > 0) return;
    const cut = { ...(last?.prompt === prompt ? last : begin(prompt, new Date().toISOString())), failed: 'the connection was lost' };
    this.turns = [...this.turns.slice(0, before), cut];
  }

  private ask(): Promise<Shown> {
    return output<Shown>('story.show', {}, { ...(this.session ? { session: this.session } : {}), signal: this.left.signal });
  }

  private take(shown: Shown): void {
    this.stories = shown.stories ?? [];
    this.turns = (shown.turns ?? []).map((t) => settled(begin('', ''), t));
    this.state = shown.state ?? {};
    const last = shown.turns?.at(-1);
    this.teller = isObject(last) && typeof last.story === 'string' ? last.story : '';
    this.failed = '';
  }

  /** Events can come faster than anybody looks: the page is drawn once for all that came between two frames. */
  private hear(e: Event): void {
    if (e.kind === 'state_patch') this.state = merge(this.state, e.data);
    const turn = this.late ?? this.now;
    if (!turn) return;
    const next = told(turn, e);
    if (next === turn) return;
    if (!this.late) requestAnimationFrame(() => this.flush());
    this.late = next;
  }

  private flush(): void {
    const late = this.late;
    this.late = undefined;
    if (late) this.change(() => late);
  }

  private change(to: (t: Turn) => Turn): void {
    const last = this.now;
    if (last) this.turns = [...this.turns.slice(0, -1), to(last)];
  }
}
