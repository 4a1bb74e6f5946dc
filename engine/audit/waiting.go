package audit

import (
	"context"
	"sync"
	"sync/atomic"

	"toolpost/tool"
)

// waiting are the records that the log could not take: reading goes on while a disk is full. They are written
// when there is room again. Of those that are too many, the log learns the number.
type waiting struct {
	most int
	any  atomic.Bool // whether there are some, for a quick look

	mu      sync.Mutex
	records []*tool.Record
	lost    int
}

func (w *waiting) add(r *tool.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.any.Store(true)
	if len(w.records) >= w.most {
		w.lost++
		return
	}
	w.records = append(w.records, r)
}

// flush writes what waits, until one cannot be written. One caller at a time does it; others go on.
func (w *waiting) flush(ctx context.Context, log Log) {
	if !w.any.Load() || !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	for len(w.records) > 0 {
		r := w.records[0]
		if w.lost > 0 && r.Lost == 0 {
			r.Lost, w.lost = w.lost, 0
		}
		if err := log.Append(ctx, r, r.Begun); err != nil && tool.CodeOf(err) != tool.CodeConflict {
			return
		}
		w.records = w.records[1:]
	}
	w.any.Store(false)
}
