// How a graph is drawn: in layers, so that everything that comes first is before what follows. A library for this would
// be larger than the rest of the console together, and plans are small: 500 boxes at most.
//
// The steps are the classical ones (Sugiyama): edges that close a circle are turned round, a box is in the layer behind
// the last of those that it waits for, long edges get a bend in each layer that they pass, the order inside the layers is
// improved by barycenters as long as that removes crossings, and then every box is moved as near to its neighbours as the
// others allow. Everything depends on the input alone, so that a graph looks the same each time.

/** A box of the graph, and the ids of those that come before it. */
export interface Box {
  id: string;
  after: readonly string[];
}

/** How large boxes are, and what is kept free between them. */
export interface Measure {
  width: number;
  height: number;
  /** Between layers, where the edges bend. */
  between: number;
  /** Between neighbours of a layer. */
  beside: number;
  /** Layers below each other, for narrow screens; else from left to right. */
  down: boolean;
}

/** Where a box is: its upper left corner. */
export interface Placed {
  id: string;
  x: number;
  y: number;
  layer: number;
}

/** An edge between two boxes, which are given by their place in the list. */
export interface Edge {
  from: number;
  to: number;
  path: string;
  /** It closes a circle, which no plan may have. */
  back: boolean;
}

export interface Layout {
  boxes: Placed[];
  edges: Edge[];
  width: number;
  height: number;
  /** How many edges are not drawn, because nobody could see them among the others. */
  left: number;
}

/** A long edge costs a bend for each layer that it passes; beyond so many the rest goes straight. */
const mostBends = 4000;
/** From so many edges on, those that follow from others are left out, and from the next number on all others. */
const manyLinks = 1500;
const mostLinks = 5000;
const sweeps = 12;

interface Link {
  from: number;
  to: number;
  back: boolean;
}

/** A vertex is a box, or a bend of an edge: a number behind those of the boxes. */
interface Graph {
  boxes: number;
  layer: number[];
  layers: number[][];
  before: number[][];
  behind: number[][];
  /** The vertices that each link passes, its ends included. */
  routes: number[][];
}

export function layout(boxes: readonly Box[], m: Measure): Layout {
  const all = turned(boxes.length, linksOf(boxes));
  const links = (all.length > manyLinks ? needed(boxes.length, all) : all).slice(0, mostLinks);
  const graph = layered(boxes.length, links);
  order(graph);
  return { ...draw(boxes, links, graph, m), left: all.length - links.length };
}

/** The edges as numbers. Of two boxes with one id the first is meant; what is not there has no edge. */
function linksOf(boxes: readonly Box[]): Link[] {
  const at = new Map<string, number>();
  boxes.forEach((b, i) => at.has(b.id) || at.set(b.id, i));
  return boxes.flatMap((b, to) =>
    [...new Set(b.after)].flatMap((id) => {
      const from = at.get(id);
      return from === undefined || from === to ? [] : [{ from, to, back: false }];
    }),
  );
}

/** Turns those edges round that close a circle: the ones that lead back to a box on the way that was walked. */
function turned(n: number, links: Link[]): Link[] {
  const out: Link[][] = lists(n);
  for (const l of links) out[l.from]!.push(l);
  const seen = new Uint8Array(n); // 1: on the way, 2: done
  for (let start = 0; start < n; start++) {
    if (seen[start]) continue;
    const way = [{ v: start, next: 0 }];
    seen[start] = 1;
    while (way.length > 0) {
      const top = way[way.length - 1]!;
      const link = out[top.v]![top.next++];
      if (!link) {
        seen[top.v] = 2;
        way.pop();
      } else if (seen[link.to] === 1) {
        link.back = true;
      } else if (seen[link.to] === 0) {
        seen[link.to] = 1;
        way.push({ v: link.to, next: 0 });
      }
    }
  }
  return links.map((l) => (l.back ? { from: l.to, to: l.from, back: true } : l));
}

/** Leaves those edges out that follow from others: the transitive reduction. */
function needed(n: number, links: Link[]): Link[] {
  const { layer } = layered(n, links);
  const out: Link[][] = lists(n);
  for (const l of links) out[l.from]!.push(l);
  const words = Math.ceil(n / 32);
  const reach = Array.from({ length: n }, () => new Uint32Array(words)); // what can be come to from each
  const has = (set: Uint32Array, v: number) => (set[v >>> 5]! >>> (v & 31)) & 1;
  const keep = new Set<Link>();
  for (const v of [...Array(n).keys()].sort((a, b) => layer[b]! - layer[a]!)) {
    for (const l of out[v]!.sort((a, b) => layer[a.to]! - layer[b.to]!)) {
      if (has(reach[v]!, l.to)) continue;
      keep.add(l);
      reach[l.to]!.forEach((word, i) => (reach[v]![i]! |= word));
      reach[v]![l.to >>> 5]! |= 1 << (l.to & 31);
    }
  }
  return links.filter((l) => keep.has(l));
}

/** Puts every box into the layer behind the last one that it waits for, and gives long edges their bends. */
function layered(n: number, links: Link[]): Graph {
  const layer: number[] = new Array(n).fill(0);
  const waits = new Array(n).fill(0);
  const out: number[][] = lists(n);
  for (const l of links) {
    out[l.from]!.push(l.to);
    waits[l.to]++;
  }
  const ready = [...layer.keys()].filter((v) => waits[v] === 0);
  for (let i = 0; i < ready.length; i++) {
    for (const to of out[ready[i]!]!) {
      layer[to] = Math.max(layer[to]!, layer[ready[i]!]! + 1);
      if (--waits[to] === 0) ready.push(to);
    }
  }
  const routes = links.map((l) => {
    const route = [l.from];
    for (let at = layer[l.from]! + 1; at < layer[l.to]! && layer.length < n + mostBends; at++) {
      route.push(layer.length);
      layer.push(at);
    }
    return [...route, l.to];
  });
  const g: Graph = { boxes: n, layer, layers: [], before: lists(layer.length), behind: lists(layer.length), routes };
  layer.forEach((at, v) => (g.layers[at] ??= []).push(v));
  for (const route of routes) {
    for (let i = 1; i < route.length; i++) {
      g.before[route[i]!]!.push(route[i - 1]!);
      g.behind[route[i - 1]!]!.push(route[i]!);
    }
  }
  return g;
}

/** Improves the order inside the layers, and keeps the best that was seen. */
function order(g: Graph): void {
  let best = g.layers.map((l) => [...l]);
  let least = crossings(g);
  for (let i = 0; i < sweeps && least > 0; i++) {
    const down = i % 2 === 0;
    const rank = ranks(g);
    const layers = down ? g.layers.slice(1) : g.layers.slice(0, -1).reverse();
    for (const l of layers) {
      const key = new Map(l.map((v) => [v, mean((down ? g.before : g.behind)[v]!, rank) ?? rank[v]!]));
      l.sort((a, b) => key.get(a)! - key.get(b)!);
      l.forEach((v, at) => (rank[v] = at));
    }
    const now = crossings(g);
    if (now < least) {
      least = now;
      best = g.layers.map((l) => [...l]);
    }
  }
  g.layers = best;
}

function ranks(g: Graph): number[] {
  const rank: number[] = new Array(g.layer.length).fill(0);
  for (const l of g.layers) l.forEach((v, at) => (rank[v] = at));
  return rank;
}

/** Counts crossings between neighbouring layers, with a Fenwick tree: pairs of edges whose ends are the other way round. */
export function crossings(g: Graph): number {
  const rank = ranks(g);
  let count = 0;
  for (const l of g.layers) {
    const ends = l.flatMap((v) => g.behind[v]!.map((to) => rank[to]!).sort((a, b) => a - b));
    const most = ends.reduce((a, b) => Math.max(a, b), 0);
    const tree = new Int32Array(most + 2);
    ends.forEach((end, seen) => {
      let before = 0;
      for (let i = end + 1; i > 0; i -= i & -i) before += tree[i]!;
      count += seen - before;
      for (let i = end + 1; i < tree.length; i += i & -i) tree[i]!++;
    });
  }
  return count;
}

/** Gives the vertices their places. "Along" is the direction of the layers, "across" the one inside them. */
function draw(boxes: readonly Box[], links: Link[], g: Graph, m: Measure): Omit<Layout, 'left'> {
  const long = m.down ? m.height : m.width;
  const wide = m.down ? m.width : m.height;
  const thick = (v: number) => (v < g.boxes ? wide : 0);
  // A layer that is much longer than the graph is deep is broken into several rows, so that the whole stays near to the
  // form of a screen.
  const most = Math.max(8, Math.ceil(Math.sqrt((boxes.length * (long + m.beside)) / (wide + m.beside) / 1.6)));
  const rows = g.layers.map((l) => broken(l, most, g.boxes));
  const across = settle(g, rows, thick, m.beside);
  const along: number[] = new Array(g.layer.length).fill(0);
  const ends: number[] = [];
  let at = 0;
  for (const layer of rows) {
    layer.forEach((row, i) => row.forEach((v) => (along[v] = at + i * (long + m.beside))));
    at += layer.length * (long + m.beside) - m.beside;
    ends.push(at);
    at += m.between;
  }
  const first = across.reduce((a, b) => Math.min(a, b), Infinity);
  const last = across.reduce((a, b, v) => Math.max(a, b + thick(v)), -Infinity);
  const point = (a: number, c: number) => (m.down ? `${round(c)} ${round(a)}` : `${round(a)} ${round(c)}`);
  const edges = links.map((l, i) => {
    const route = g.routes[i]!;
    const points: [number, number][] = [];
    for (const v of route) {
      const c = across[v]! - first + thick(v) / 2;
      if (v !== l.from) points.push([along[v]!, c]);
      if (v !== l.to) points.push([v < g.boxes ? along[v]! + long : ends[g.layer[v]!]!, c]);
    }
    return {
      ...(l.back ? { from: l.to, to: l.from } : { from: l.from, to: l.to }),
      path: smooth(points, point),
      back: l.back,
    };
  });
  const depth = Math.max(0, at - m.between);
  const breadth = boxes.length === 0 ? 0 : last - first;
  return {
    boxes: boxes.map((b, v) => {
      const [a, c] = [along[v]!, across[v]! - first];
      return { id: b.id, x: round(m.down ? c : a), y: round(m.down ? a : c), layer: g.layer[v]! };
    }),
    edges,
    width: round(m.down ? breadth : depth),
    height: round(m.down ? depth : breadth),
  };
}

/** Breaks a layer into rows of about the same length, of at most so many boxes. Bends take no room, and stay where they are. */
function broken(layer: number[], most: number, boxes: number): number[][] {
  const count = layer.filter((v) => v < boxes).length;
  const rows = Math.max(1, Math.ceil(count / most));
  if (rows === 1) return [layer];
  const each = Math.ceil(count / rows);
  const out: number[][] = lists(rows);
  let seen = 0;
  for (const v of layer) {
    out[Math.min(rows - 1, Math.floor(seen / each))]!.push(v);
    if (v < boxes) seen++;
  }
  return out;
}

/** Moves every vertex as near to the mean of its neighbours as the order and the room between vertices allow. */
function settle(g: Graph, rows: number[][][], thick: (v: number) => number, beside: number): number[] {
  const across: number[] = new Array(g.layer.length).fill(0);
  for (const row of rows.flat()) {
    let at = 0;
    const length = row.reduce((sum, v) => sum + thick(v) + beside, -beside);
    for (const v of row) {
      across[v] = at - length / 2;
      at += thick(v) + beside;
    }
  }
  const middle = across.map((c, v) => c + thick(v) / 2);
  for (let i = 0; i < 8; i++) {
    const down = i % 2 === 0;
    for (const layer of down ? rows : [...rows].reverse()) {
      for (const row of layer) {
        const near = row.map((v) => {
          const one = mean((down ? g.before : g.behind)[v]!, middle);
          return one ?? mean((down ? g.behind : g.before)[v]!, middle) ?? middle[v]!;
        });
        const apart = row.map((v, k) => (k === 0 ? 0 : (thick(row[k - 1]!) + thick(v)) / 2 + beside));
        spread(near, apart).forEach((c, k) => (middle[row[k]!] = c));
      }
    }
  }
  return middle.map((c, v) => c - thick(v) / 2);
}

/**
 * Gives the places that are nearest to those wanted, in squares, and at least so far apart: isotonic regression, by
 * pooling neighbours that would come too close.
 */
export function spread(wanted: readonly number[], apart: readonly number[]): number[] {
  const offset: number[] = [];
  const pools: { sum: number; count: number }[] = [];
  wanted.forEach((w, i) => {
    offset.push((offset[i - 1] ?? 0) + (i === 0 ? 0 : apart[i]!));
    let pool = { sum: w - offset[i]!, count: 1 };
    while (pools.length > 0) {
      const last = pools[pools.length - 1]!;
      if (last.sum / last.count <= pool.sum / pool.count) break;
      pool = { sum: last.sum + pool.sum, count: last.count + pool.count };
      pools.pop();
    }
    pools.push(pool);
  });
  return pools.flatMap((p) => new Array<number>(p.count).fill(p.sum / p.count)).map((c, i) => c + offset[i]!);
}

/** A line through the points that is straight inside the layers and bends between them. */
function smooth(points: [number, number][], point: (a: number, c: number) => string): string {
  let path = `M${point(...points[0]!)}`;
  for (let i = 1; i < points.length; i++) {
    const [a, c] = points[i - 1]!;
    const [b, d] = points[i]!;
    path += c === d ? `L${point(b, d)}` : `C${point((a + b) / 2, c)} ${point((a + b) / 2, d)} ${point(b, d)}`;
  }
  return path;
}

function mean(list: readonly number[], of: readonly number[]): number | undefined {
  return list.length === 0 ? undefined : list.reduce((sum, v) => sum + of[v]!, 0) / list.length;
}

function round(n: number): number {
  return Math.round(n * 10) / 10;
}

function lists<T>(n: number): T[][] {
  return Array.from({ length: n }, () => []);
}
