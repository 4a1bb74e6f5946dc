import { expect, test } from 'vitest';
import { rank } from './rank';

const items = [
  { title: 'Call light_torch', words: 'Lights a torch, step by step, and says what it sees on the way.' },
  { title: 'Call readFile', words: 'Reads a file and gives its text, with the numbers of its lines if they are wanted.' },
  { title: 'Call greet', words: 'Says hello to a person whose name is given.' },
  { title: 'Operate', words: 'go to open view' },
  { title: 'Theme: dark', words: 'colour night' },
  { title: 'Explain the policy', words: 'why was it refused' },
];
const found = (query: string) => rank(items, query, (i) => [i.title, i.words]).map((i) => i.title);

test('nothing asked is everything, in its order', () => expect(found(' ')).toEqual(items.map((i) => i.title)));
test.each([
  ['oper', 'Operate'], ['dark', 'Theme: dark'], ['torch', 'Call light_torch'], ['ltor', 'Call light_torch'], ['rf', 'Call readFile'],
  ['rdfile', 'Call readFile'], ['opreate', 'Operate'], ['gret', 'Call greet'], ['call greet', 'Call greet'], ['night', 'Theme: dark'],
  ['polcy', 'Explain the policy'],
])('%s finds %s first', (query, title) => expect(found(query)[0]).toBe(title));
test.each(['zzz', 'qx', 'torch zzz', 'lswy', 'hlo', 'x'])('%s finds nothing', (query) => expect(found(query)).toEqual([]));
test('what begins so comes before what only has it inside', () => expect(found('re')[0]).toBe('Call readFile'));
