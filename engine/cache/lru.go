package cache

import (
	"container/list"
	"encoding/json"
	"sync"
	"time"

	"toolpost/tool"
)

// overhead is what a result takes beside its own bytes, roughly: many small ones are not free.
const overhead = 512

// An entry is a result that is kept.
type entry struct {
	key     key
	stamp   stamp
	until   time.Time
	output  json.RawMessage
	summary string
	spec    *tool.Spec
}

func (e *entry) bytes() int64 {
	return int64(overhead + len(e.output) + len(e.summary) + len(e.key.caller) + len(e.key.door))
}

// An lru holds results, the most recently used first, up to a number of bytes.
type lru struct {
	most int64

	mu    sync.Mutex
	byKey map[key]*list.Element
	used  list.List // of *entry
	bytes int64
}

// get returns the result of an equal call, if nothing has changed since and it is not too old.
func (l *lru) get(k key, now stamp, at time.Time) *entry {
	if now == (stamp{}) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	el := l.byKey[k]
	if el == nil {
		return nil
	}
	e := el.Value.(*entry)
	if e.stamp != now || !at.Before(e.until) {
		l.remove(el)
		return nil
	}
	l.used.MoveToFront(el)
	return e
}

// put keeps a result, in the place of one before, and lets go of those that were not used for longest.
func (l *lru) put(e *entry) {
	if e.stamp == (stamp{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if el := l.byKey[e.key]; el != nil {
		l.remove(el)
	}
	l.byKey[e.key] = l.used.PushFront(e)
	l.bytes += e.bytes()
	for l.bytes > l.most {
		l.remove(l.used.Back())
	}
}

// remove takes a result down; the caller holds the lock.
func (l *lru) remove(el *list.Element) {
	e := el.Value.(*entry)
	l.used.Remove(el)
	delete(l.byKey, e.key)
	l.bytes -= e.bytes()
}

func (l *lru) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.byKey)
	l.used.Init()
	l.bytes = 0
}
