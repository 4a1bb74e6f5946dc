// Search by a few letters: all words of the query must be found; those at the beginning of a word come first.

/** rank gives the items that a query finds, best first; texts are the title and what else may be meant. */
export function rank<T>(items: T[], query: string, texts: (item: T) => string[]): T[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return items;
  const found: { item: T; score: number }[] = [];
  for (const item of items) {
    let score = 0;
    for (const word of words) {
      const best = Math.max(...texts(item).map((text, i) => points(text.toLowerCase(), word) / (i + 1)));
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

function points(text: string, word: string): number {
  if (!text) return 0;
  if (text === word) return 100;
  const at = text.indexOf(word);
  if (at === 0) return 80 - Math.min(40, text.length / 4);
  if (at > 0) return /[\s._/-]/.test(text[at - 1]!) ? 50 : 25;
  // letters in order, such as "ltt" for light_torch
  let from = 0;
  for (const c of word) {
    from = text.indexOf(c, from) + 1;
    if (!from) return 0;
  }
  return word.length > 1 ? 5 : 0;
}
