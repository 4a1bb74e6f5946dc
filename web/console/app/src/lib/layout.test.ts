import { describe, expect, test } from 'vitest';
import { layout, spread, type Box, type Measure } from './layout';

const m: Measure = { width: 160, height: 40, between: 48, beside: 16, down: false };
const box = (id: string, ...after: string[]): Box => ({ id, after });

/** Numbers that look random and are the same each time. */
function dice(seed: number) {
  return (below: number) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
}

function random(n: number, seed: number): Box[] {
  const roll = dice(seed);
  return Array.from({ length: n }, (_, i) =>
    box(`t${i}`, ...Array.from({ length: i === 0 ? 0 : roll(4) }, () => `t${roll(i)}`)),
  );
}

/** Every promise that a layout makes, for any graph. */
function holds(boxes: Box[], measure: Measure) {
  const l = layout(boxes, measure);
  expect(l.boxes.map((b) => b.id)).toEqual(boxes.map((b) => b.id));
  // One question for all pairs: an expectation for each would cost more than the layout.
  const { width, height } = measure;
  const outside = l.boxes.filter((b) => b.x < 0 || b.y < 0 || b.x + width > l.width + 0.1 || b.y + height > l.height + 0.1);
  const near = (a: number, b: number, size: number) => Math.abs(a - b) < size - 0.2;
  const overlaps = l.boxes.flatMap((a, i) =>
    l.boxes.slice(i + 1).filter((b) => near(a.x, b.x, width) && near(a.y, b.y, height)),
  );
  expect([outside, overlaps]).toEqual([[], []]);
  for (const e of l.edges.filter((e) => !e.back)) {
    const [from, to] = [l.boxes[e.from]!, l.boxes[e.to]!];
    expect(to.layer, `${from.id} comes before ${to.id}`).toBeGreaterThan(from.layer);
    if (measure.down) expect(to.y).toBeGreaterThan(from.y);
    else expect(to.x).toBeGreaterThan(from.x);
    expect(e.path).not.toMatch(/NaN|Infinity|undefined/);
  }
  return l;
}

describe('a layout', () => {
  test('of nothing is empty', () => {
    expect(layout([], m)).toEqual({ boxes: [], edges: [], width: 0, height: 0, left: 0 });
  });

  test('has a box in the layer behind the last one that it waits for', () => {
    const l = holds([box('a'), box('b', 'a'), box('c', 'b'), box('d', 'a', 'c')], m);
    expect(l.boxes.map((b) => b.layer)).toEqual([0, 1, 2, 3]);
  });

  test('of a chain is straight', () => {
    const l = holds([box('a'), box('b', 'a'), box('c', 'b')], m);
    expect(new Set(l.boxes.map((b) => b.y)).size).toBe(1);
    expect(l.height).toBe(m.height);
    expect(l.edges.every((e) => !e.path.includes('C'))).toBe(true);
  });

  test('of a diamond has its ends in the middle', () => {
    const l = holds([box('a'), box('b', 'a'), box('c', 'a'), box('d', 'b', 'c')], m);
    const [a, b, c, d] = l.boxes.map((p) => p.y);
    expect(a).toBe((b! + c!) / 2);
    expect(d).toBe(a);
  });

  test('has no crossings where none are needed', () => {
    // Written so that the order of the list crosses all of them.
    const l = holds([box('a'), box('b'), box('c'), box('x', 'c'), box('y', 'b'), box('z', 'a')], m);
    const y = Object.fromEntries(l.boxes.map((b) => [b.id, b.y]));
    const pairs = [
      ['a', 'z'],
      ['b', 'y'],
      ['c', 'x'],
    ]
      .map(([p, q]) => [y[p!]!, y[q!]!])
      .sort((p, q) => p[0]! - q[0]!);
    expect(pairs.map((p) => p[1])).toEqual(pairs.map((p) => p[1]).sort((p, q) => p! - q!));
  });

  test('turns the edges round that close a circle, and still draws them', () => {
    const l = holds([box('a', 'c'), box('b', 'a'), box('c', 'b'), box('self', 'self')], m);
    expect(l.edges.filter((e) => e.back)).toHaveLength(1);
    expect(l.edges).toHaveLength(3);
    const back = l.edges.find((e) => e.back)!;
    expect(l.boxes[back.to]!.layer).toBeLessThan(l.boxes[back.from]!.layer);
  });

  test('bears ids that are there twice, or not at all', () => {
    const l = holds([box('a'), box('a'), box('b', 'a', 'a', 'nobody'), box('__proto__', 'constructor')], m);
    expect(l.edges.map((e) => [e.from, e.to])).toEqual([[0, 2]]);
  });

  test('keeps what it promises for graphs of any form, both ways', () => {
    for (let seed = 1; seed <= 12; seed++) {
      holds(random(2 + seed * 5, seed), { ...m, down: seed % 2 === 0 });
    }
  });

  test('of 500 boxes side by side has about the form of a screen', () => {
    const fan = [box('first'), ...Array.from({ length: 498 }, (_, i) => box(`t${i}`, 'first'))];
    const l = layout([...fan, box('last', ...fan.map((b) => b.id))], m);
    expect(l.width / l.height).toBeGreaterThan(0.5);
    expect(l.width / l.height).toBeLessThan(4);
  });

  test('leaves edges out that follow from others where there are too many to see', () => {
    const all = Array.from({ length: 200 }, (_, i) => box(`t${i}`, ...Array.from({ length: i }, (_, k) => `t${k}`)));
    const l = layout(all, m);
    expect(l.edges.map((e) => [e.from, e.to])).toEqual(Array.from({ length: 199 }, (_, i) => [i, i + 1]));
    expect(l.left).toBe((200 * 199) / 2 - 199);
    expect(layout(all.slice(0, 10), m).left).toBe(0);
  });

  test('stays bounded where no edge follows from others', () => {
    const left = Array.from({ length: 100 }, (_, i) => box(`a${i}`));
    const l = layout([...left, ...left.map((b) => box(`to ${b.id}`, ...left.map((b) => b.id)))], m);
    expect(l.edges).toHaveLength(5000);
    expect(l.left).toBe(100 * 100 - 5000);
  });

  test('is the same each time', () => {
    expect(layout(random(60, 7), m)).toEqual(layout(random(60, 7), m));
  });
});

describe('places', () => {
  test('are those wanted where there is room', () => {
    expect(spread([0, 100, 200], [0, 50, 50])).toEqual([0, 100, 200]);
  });
  test('are moved the least that makes room', () => {
    expect(spread([100, 100], [0, 50])).toEqual([75, 125]);
    expect(spread([100, 100, 400], [0, 50, 50])).toEqual([75, 125, 400]);
    expect(spread([10, 0], [0, 20])).toEqual([-5, 15]);
  });
});
