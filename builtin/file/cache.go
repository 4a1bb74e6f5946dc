package file

import (
	"container/list"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"toolpost/host/workspace"
)

// CacheOptions limit what is kept.
type CacheOptions struct {
	Size int64 `yaml:"size" kind:"bytes" schema:"default=0" doc:"bytes to keep in memory"`
}

// settled is how old a file's last change must be before the file is cached: within the resolution of a file system's clock,
// two changes can have the same time.
const settled = 3 * time.Second

// A cache keeps the files that were read last. A file is opened, and so checked, before the cache is consulted: the cache
// saves the read, not the check.
type cache struct {
	size int64
	now  func() time.Time

	mu   sync.Mutex
	used int64
	kept map[string]*list.Element
	last *list.List // of *kept, the most recently used first
}

type kept struct {
	abs    string
	stamp  workspace.Stamp
	output json.RawMessage
}

func newCache(o CacheOptions) *cache {
	if o.Size == 0 {
		return nil
	}
	return &cache{size: o.Size, now: time.Now, kept: map[string]*list.Element{}, last: list.New()}
}

// get returns the cached content of a file in exactly this state, or else reads it.
func (c *cache) get(f *workspace.File, read func() (json.RawMessage, error)) (json.RawMessage, error) {
	if c == nil {
		return read()
	}
	if out := c.find(f); out != nil {
		return out, nil
	}
	out, err := read()
	if err == nil {
		c.keep(f, out)
	}
	return out, err
}

func (c *cache) find(f *workspace.File) json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.kept[f.Abs()]
	if !ok {
		return nil
	}
	k := e.Value.(*kept)
	if k.stamp != f.Stamp() {
		c.drop(e)
		return nil
	}
	c.last.MoveToFront(e)
	return k.output
}

// keep caches what was read, unless the file changed meanwhile or very recently.
func (c *cache) keep(f *workspace.File, out json.RawMessage) {
	stamp, err := f.Restat()
	if err != nil || stamp != f.Stamp() || int64(len(out)) > c.size ||
		c.now().Sub(time.Unix(stamp.CTime.Unix())) < settled {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.kept[f.Abs()]; ok {
		c.drop(e)
	}
	k := &kept{f.Abs(), stamp, slices.Clip(out)}
	c.kept[k.abs] = c.last.PushFront(k)
	for c.used += int64(len(out)); c.used > c.size; {
		c.drop(c.last.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	k := c.last.Remove(e).(*kept)
	delete(c.kept, k.abs)
	c.used -= int64(len(k.output))
}
