package engine

import (
	"context"
	"reflect"
	"time"

	"toolpost/tool"
)

// Waits on sources whose tools change. A source may say so as often as it likes, and each time all that is published is
// made anew: so one that says it all the time is asked ten times a second, and no oftener.
const (
	relistPause   = 100 * time.Millisecond
	relistTimeout = 10 * time.Second
	firstRelist   = time.Second // after a listing that failed; then twice as long each time
	lastRelist    = 30 * time.Second
)

// listen lists the tools of a source again whenever it says that they changed, until it retires. Its runner stays, and
// so do the calls that run on it.
func (e *Engine) listen(src *source, changed <-chan struct{}) {
	for came(src.life, changed) {
		changed = tool.Changed(src.Runner)
		for delay := firstRelist; !e.relist(src); delay = min(2*delay, lastRelist) {
			if !came(src.life, time.After(delay)) {
				return
			}
		}
		if !came(src.life, time.After(relistPause)) {
			return
		}
	}
}

// came waits for a channel; false: ctx ended first.
func came[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// relist publishes the tools that a source has now, and reports whether it could be asked. Until it can, those that it
// had stay: it is not known that they are gone.
func (e *Engine) relist(src *source) bool {
	ctx, cancel := context.WithTimeout(src.life, relistTimeout)
	defer cancel()
	specs, err := e.list(ctx, src.Binding)
	if err != nil {
		if src.life.Err() == nil {
			e.log.Warn("the tools of a source changed and cannot be listed; those that it had stay", "source", src.Name,
				"error", err)
		}
		return false
	}
	e.replacing.Lock()
	defer e.replacing.Unlock()
	old := e.shelf.Load()
	if old.sources[src.Name] != src || src.Err == nil && reflect.DeepEqual(specs, src.specs) {
		return true
	}
	src.specs, src.Err = specs, nil
	src.verdict = e.check(ctx, src)
	e.publish(old.bound, old.policy) // not the current policy: that one comes with the sources it is for
	e.log.Info("the tools of a source changed", "source", src.Name, "tools", len(specs))
	return true
}
