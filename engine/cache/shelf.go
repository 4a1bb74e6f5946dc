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

// A shelf holds results, the most recently used first, up to a number of bytes.
type shelf struct {
	most int64

	mu    sync.Mutex
	byKey map[key]*list.Element
	used  *list.List // of *entry
	bytes int64
}

func newShelf(most int64) shelf {
	return shelf{most: most, byKey: map[key]*list.Element{}, used: list.New()}
}

// get gives the result of an equal call, if nothing has changed since and it is not too old.
func (s *shelf) get(k key, now stamp, at time.Time) *entry {
	if now == (stamp{}) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	el := s.byKey[k]
	if el == nil {
		return nil
	}
	e := el.Value.(*entry)
	if e.stamp != now || !at.Before(e.until) {
		s.remove(el)
		return nil
	}
	s.used.MoveToFront(el)
	return e
}

// put keeps a result, in the place of one before, and lets go of those that were not used for longest.
func (s *shelf) put(e *entry) {
	if e.stamp == (stamp{}) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if el := s.byKey[e.key]; el != nil {
		s.remove(el)
	}
	s.byKey[e.key] = s.used.PushFront(e)
	s.bytes += e.bytes()
	for s.bytes > s.most {
		s.remove(s.used.Back())
	}
}

// remove takes a result down; the caller holds the lock.
func (s *shelf) remove(el *list.Element) {
	e := el.Value.(*entry)
	s.used.Remove(el)
	delete(s.byKey, e.key)
	s.bytes -= e.bytes()
}

func (s *shelf) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byKey)
	s.used.Init()
	s.bytes = 0
}

func (s *shelf) size() (entries, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.byKey)), s.bytes
}
