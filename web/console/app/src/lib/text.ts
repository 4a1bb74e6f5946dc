// Text of tools is only ever text. What could hide in it or turn it around is made visible here, as the server does it
// with names: controls as their pictures, everything else that is invisible as an escape.

const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{1d173}-\u{1d17a}]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

/** visible gives text in which nothing is hidden; tabs and line feeds stay. */
export function visible(text: string): string {
  return text.replace(hidden, (c) => {
    const code = c.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return '\u2421';
    return `\\u{${code.toString(16)}}`;
  });
}

/** oneLine gives visible text without line breaks, cut after some characters. */
export function oneLine(text: string, most = 300): string {
  const head = text.length > most ? `${[...text.slice(0, most)].join('')}…` : text;
  return visible(head).replace(/[\t\n]+/g, ' ');
}

/** link gives the address of a link that a page may offer; undefined: it stays text. */
export function link(text: string): string | undefined {
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** plural: "1 call", "2 calls". */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** count writes a number with separators, or shortened from a hundred thousand on: 12,345, 1.2 M. */
export function count(n: number): string {
  if (Math.abs(n) < 100_000) return n.toLocaleString('en');
  const units = ['k', 'M', 'G', 'T'];
  let i = -1;
  do {
    n /= 1000;
    i++;
  } while (Math.abs(n) >= 999.5 && i < units.length - 1);
  return `${significant(n)} ${units[i]}`;
}

/** duration of milliseconds, in three digits: 0.84 ms, 41 ms, 1.25 s, 3 min 20 s. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return '–';
  if (ms < 0.001) return '0 ms';
  if (ms < 1) return `${significant(ms * 1000)} µs`;
  if (ms < 999.5) return `${significant(ms)} ms`;
  if (ms < 59_950) return `${significant(ms / 1000)} s`;
  const units: [number, string][] = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']];
  const i = Math.max(0, units.findIndex(([size]) => ms >= size));
  const [size, unit] = units[i]!;
  const next = units[i + 1];
  const whole = Math.floor(ms / size);
  const rest = next ? Math.floor((ms % size) / next[0]) : 0;
  return next && rest ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

/** bytes in three digits: 512 B, 1.2 kB, 3.4 MB. */
export function bytes(n: number): string {
  if (!Number.isFinite(n)) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return `${i === 0 ? n : significant(n)} ${units[i]}`;
}

function significant(n: number): string {
  const digits = Math.abs(n) >= 99.95 ? 0 : Math.abs(n) >= 9.995 ? 1 : 2;
  return String(Number(n.toFixed(digits)));
}

/** ago says how long ago a time was, as people do: now, 12 s ago, 3 min ago, in 5 min. */
export function ago(then: number, now: number): string {
  if (Math.abs(now - then) < 1500) return 'now';
  return then > now ? `in ${lasting(then, now)}` : `${lasting(then, now)} ago`;
}

/** lasting says how much time there is between two times, roughly: 12 s, 3 min. */
export function lasting(from: number, to: number): string {
  const off = Math.max(1000, Math.abs(to - from));
  const [size, unit] = ([[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']] as const).find(([s]) => off >= s)!;
  return `${Math.floor(off / size)} ${unit}`;
}

/** exact writes a time in full, in the reader's zone: 2026-07-28 14:03:05.123. */
export function exact(t: Date): string {
  if (Number.isNaN(t.getTime())) return '–';
  const p = (n: number, width = 2) => String(n).padStart(width, '0');
  return `${t.getFullYear()}-${p(t.getMonth() + 1)}-${p(t.getDate())} ${p(t.getHours())}:${p(t.getMinutes())}:${p(t.getSeconds())}.${p(t.getMilliseconds(), 3)}`;
}

/** What somebody is told of what was thrown. */
export const messageOf = (e: unknown): string => (e instanceof Error ? e.message : String(e));
