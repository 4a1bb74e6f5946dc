// Keys of lists that come from a server. Where two items of a list have one key, Svelte stops drawing the whole page; and what
// has a key only once today may come twice tomorrow: a row that was added while the log was read, a dependency that a plan
// names twice. So no list is keyed by its data itself: keyed by place, or by what is made here. keyed.test.ts sees to it.

/** keyed gives each item with a key that no other one of the list has: its own, unless an earlier item has that. */
export function keyed<T>(items: readonly T[], key: (item: T) => string): [key: string, item: T][] {
  const taken = new Map<string, number>(); // a key, and how many items asked for it
  return items.map((item) => {
    const own = key(item);
    let n = taken.get(own) ?? 0;
    let unique = n ? `${own}\0${n}` : own;
    while (taken.has(unique)) unique = `${own}\0${++n}`; // an item may have just that for its own
    taken.set(unique, 1);
    taken.set(own, n + 1);
    return [unique, item];
  });
}
