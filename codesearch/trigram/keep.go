package trigram

import (
	"context"
	"errors"
	"time"
)

// Changed says that something may have changed: the tree is read again soon.
func (x *Index) Changed() {
	select {
	case x.kick <- struct{}{}:
	default: // it is going to be read anyway
	}
}

// keep reads the tree again after changes. Between two times it rests longer than the reading took, so that a tree that
// is never at rest does not keep a processor busy.
func (x *Index) keep(ctx context.Context) {
	w := &watch{root: x.root.Abs()}
	defer w.close()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.kick:
		case <-again:
		case <-w.events:
		case <-w.errors:
		}
		if _, ok := w.pause(ctx, x.o.Pause); !ok {
			return
		}
		began := time.Now()
		found, err := x.update(ctx)
		if errors.Is(err, errTooManyFiles) || ctx.Err() != nil {
			return
		}
		if err == nil {
			w.follow(found.folders)
		}
		if found != nil && found.unrest {
			again = time.After(x.o.rest)
		}
		changed, ok := w.pause(ctx, 4*time.Since(began))
		if !ok {
			return
		}
		if changed {
			x.Changed()
		}
	}
}

// update does one refresh for keep.
func (x *Index) update(ctx context.Context) (*refresh, error) {
	if x.broken.Swap(false) {
		x.discard()
	}
	found, err := x.refresh(ctx)
	if err != nil && ctx.Err() == nil {
		x.o.Log.Warn("the code index is not up to date", "folder", x.root.Abs(), "why", err)
	}
	return found, err
}

// pause waits, and says whether the watcher told of a change meanwhile. It is not ok when ctx has ended.
func (w *watch) pause(ctx context.Context, d time.Duration) (changed, ok bool) {
	over := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return changed, false
		case <-over:
			return changed, true
		case <-w.events:
			changed = true
		case <-w.errors:
			changed = true
		}
	}
}
