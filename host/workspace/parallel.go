package workspace

import (
	"context"
	"errors"
	"io/fs"
	"sync"
)

// batchSize is how many entries are handed over at once: handing over costs more than most visits.
const batchSize = 32

// parallel walks in the caller's goroutine and visits in several others, and waits for them.
func (w *walk) parallel(ctx context.Context, start *folder, visit func(*Entry) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan []Entry, w.Parallel)
	var wg sync.WaitGroup
	for range w.Parallel {
		wg.Go(func() {
			for batch := range batches {
				visitBatch(ctx, cancel, batch, visit)
			}
		})
	}
	walkErr := w.feed(ctx, start, batches)
	close(batches)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		walkErr = err
	}
	if errors.Is(walkErr, fs.SkipAll) {
		return nil
	}
	return walkErr
}

// feed walks and hands over what it comes to.
func (w *walk) feed(ctx context.Context, start *folder, batches chan<- []Entry) error {
	var batch []Entry
	w.visit = func(e *Entry) error {
		e.dir.refs.Add(1)
		if batch = append(batch, *e); len(batch) < batchSize {
			return nil
		}
		batches <- batch // the visitors take every batch, also when the walk is over
		batch = make([]Entry, 0, batchSize)
		return ctx.Err()
	}
	err := w.folder(ctx, start)
	batches <- batch
	return err
}

func visitBatch(ctx context.Context, cancel context.CancelCauseFunc, batch []Entry, visit func(*Entry) error) {
	for i := range batch {
		if ctx.Err() == nil {
			if err := visit(&batch[i]); err != nil {
				cancel(err)
			}
		}
		batch[i].dir.release()
	}
}
