// Search by a few letters: every word of the query must be found in an item, or the item is not found at all. A word is found as
// it is, by letters in their order ("ltt" for light_torch), or with one slip of the finger ("opreate"); the last two only in the
// title, since in a long description any few letters are somewhere.

/** rank gives the items that a query finds, best first; texts are the title and what else may be meant. */
export function rank<T>(items: T[], query: string, texts: (item: T) => string[]): T[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return items;
  const found: { item: T; score: number }[] = [];
  for (const item of items) {
    const [title = '', ...more] = texts(item);
    let score = 0;
    for (const word of words) {
      const best = Math.max(points(title, word), ...more.map((text) => plain(text.toLowerCase(), word) / 3));
      if (best <= 0) {
        score = -1;
        break;
      }
      score += best;
    }
    if (score > 0) found.push({ item, score });
  }
  return found.sort((a, b) => b.score - a.score).map((f) => f.item);
}

/** points says how well a title fits a word: 0 is not at all. */
function points(title: string, word: string): number {
  const text = title.toLowerCase();
  return plain(text, word) || inOrder(title, text, word) || slipped(text, word);
}

/** plain finds a word as it is: the whole, at the beginning, at the beginning of a word, or inside one. */
function plain(text: string, word: string): number {
  if (!text) return 0;
  if (text === word) return 100;
  const at = text.indexOf(word);
  if (at === 0) return 80 - Math.min(40, text.length / 4);
  if (at < 0) return 0;
  const begins = text.split(/[^\p{L}\p{N}]+/u).some((w) => w.startsWith(word));
  return begins ? 60 - Math.min(20, text.length / 8) : word.length > 1 ? 30 : 0;
}

/** inOrder finds the letters of a word one after the other, beginning where a word begins, and close together. */
function inOrder(title: string, text: string, word: string): number {
  if (word.length < 2) return 0;
  const begins = (i: number) => i === 0 || /[^\p{L}\p{N}]/u.test(text[i - 1]!) || /\p{Ll}/u.test(title[i - 1]!) && /\p{Lu}/u.test(title[i]!);
  let best = 0;
  for (let start = text.indexOf(word[0]!); start >= 0; start = text.indexOf(word[0]!, start + 1)) {
    if (!begins(start)) continue;
    let at = start;
    let jumps = 0; // to letters that neither follow the last one nor begin a word
    for (const c of word.slice(1)) {
      const next = text.indexOf(c, at + 1);
      if (next < 0) { at = -1; break; }
      if (next !== at + 1 && !begins(next)) jumps++;
      at = next;
    }
    if (at >= 0 && at - start < 4 * word.length && jumps <= Math.ceil(word.length / 2)) best = Math.max(best, 20 - 3 * jumps - (at - start) / 8);
  }
  return Math.max(0, best);
}

/** slipped finds a word of the title that begins as the word does but for one letter: wrong, missing, too many, or two swapped. */
function slipped(text: string, word: string): number {
  if (word.length < 4) return 0;
  return text.split(/[^\p{L}\p{N}]+/u).some((one) => [-1, 0, 1].some((by) => oneOff(one.slice(0, word.length + by), word))) ? 4 : 0;
}

function oneOff(a: string, b: string): boolean {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  const [x, y] = [a.slice(i), b.slice(i)];
  return x.slice(1) === y.slice(1) || x === y.slice(1) || x.slice(1) === y || x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2);
}
