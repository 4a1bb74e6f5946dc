// Whether the server can be reached. Nobody polls: a request that fails says so, and from then on one question, asked at
// growing intervals, finds out when it is back. Streams wait for that and go on where they were.

const first = 500;
const most = 15_000;

let state = $state.raw<'up' | 'lost' | 'back'>('up');
let waiting: (() => void)[] = [];
let wake: (() => void) | undefined; // ends the wait before the next question

/** connection is whether the server can be reached: up, lost, or back for a moment. */
export const connection = {
  get state() { return state; },
};

/** lost notes that a request has not reached the server. */
export function lost(): void {
  if (state === 'lost') return;
  state = 'lost';
  void look();
}

/** whenBack is done when the server can be reached; at once where it is. */
export function whenBack(): Promise<void> {
  return state === 'lost' ? new Promise((done) => waiting.push(done)) : Promise.resolve();
}

/** hurry asks now: somebody has come back to the page, or the machine is on a network again. */
export function hurry(): void {
  wake?.();
}

async function look(): Promise<void> {
  for (let wait = first; ; wait = Math.min(wait * 2, most)) {
    // Spread, so that the pages of one server that restarts do not all come at once.
    await pause(wait * (0.75 + Math.random() / 2));
    try {
      const answer = await fetch('healthz', { cache: 'no-store', signal: AbortSignal.timeout(most) });
      if (answer.ok) break;
    } catch {
      // still away
    }
  }
  state = 'back';
  const ready = waiting;
  waiting = [];
  for (const done of ready) done();
  await pause(2500);
  if (state === 'back') state = 'up';
}

function pause(ms: number): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    wake = () => {
      clearTimeout(timer);
      done();
    };
  });
}

addEventListener('online', hurry);
document.addEventListener('visibilitychange', () => document.hidden || hurry());
