package audit

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"toolpost/host/secret"
	"toolpost/tool"
)

// A redacted log gets to keep no secret.
type redacted struct {
	of       Log
	redactor *secret.Redactor
	columns  Table
}

// Begin implements Log.
func (l redacted) Begin(ctx context.Context, r *tool.Record) error {
	return l.redactor.Error(l.of.Begin(ctx, l.clean(r)))
}

// Append implements Log.
func (l redacted) Append(ctx context.Context, r *tool.Record, durable bool) error {
	return l.redactor.Error(l.of.Append(ctx, l.clean(r), durable))
}

// clean returns a record without secrets. Digests stay as they are: nobody reads a value off them.
func (l redacted) clean(was *tool.Record) *tool.Record {
	if l.redactor.Idle() {
		return was
	}
	r := *was
	for i := range l.columns {
		if c := &l.columns[i]; !c.Ours {
			redactValue(l.redactor, c.Value(&r))
		}
	}
	return &r
}

// redactValue replaces a value. What it shares with another record stays as it is.
func redactValue(redactor *secret.Redactor, value any) {
	switch v := value.(type) {
	case *string:
		*v = redactor.String(*v)
	case *json.RawMessage:
		*v = redactor.JSON(*v)
	case *[]string:
		*v = redactedTexts(redactor, *v)
	case *[][]string:
		var lists [][]string
		for _, list := range *v {
			lists = append(lists, redactedTexts(redactor, list))
		}
		*v = lists
	}
}

func redactedTexts(redactor *secret.Redactor, was []string) (texts []string) {
	for _, text := range was {
		texts = append(texts, redactor.String(text))
	}
	return texts
}

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
