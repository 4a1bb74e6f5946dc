package tool

import (
	"context"
	"errors"
	"slices"
	"time"
)

// The reasons of errors about a store that cannot be used now.
const (
	StoreDown    = "store_down"    // it is unreachable or starting; nothing was written
	StoreUnclear = "store_unclear" // the connection broke at a moment that leaves open whether something was written
	StoreFull    = "store_full"    // it has no room
)

// StoreAway reports whether an error, however it is wrapped, means that the store was away: it may well be back in a
// moment.
func StoreAway(err error) bool { return storeReason(err, StoreDown, StoreUnclear) }

func storeReason(err error, reasons ...string) bool {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if slices.Contains(reasons, e.Reason) {
			return true
		}
	}
	return false
}

// BeforeRun marks an error of a stage that is in front of the tool and has not let the call through: whatever the
// reason, the tool has done nothing. The reason alone would not show that, since a tool may be on another machine with
// a store of its own.
func BeforeRun(err error) error {
	if err == nil {
		return nil
	}
	e := *AsError(err)
	e.Err = beforeRun{err}
	return &e
}

// NotRun reports whether an error is marked by BeforeRun.
func NotRun(err error) bool {
	var mark beforeRun
	return errors.As(err, &mark)
}

type beforeRun struct{ error }

func (b beforeRun) Unwrap() error { return b.error }

// How long Persist waits for a store that is away, beyond the store's own wait.
const (
	persistWait  = 10 * time.Second
	persistPause = 250 * time.Millisecond
	persistWord  = 3 * time.Second
)

// Persist writes what is left to be written of a call that has run: it must not be lost because the store is away for a
// while. It retries until the store takes it, and reports that to the caller now and then, so that the caller does not
// wait in silence. It gives up after ten seconds, or for a Background call when the context ends.
func Persist(ctx context.Context, c *Call, out Sink, what string, write func() error) error {
	var told time.Time
	for end := time.Now().Add(persistWait); ; {
		err := write()
		again := StoreAway(err) && (c.Background || time.Now().Before(end)) || c.Background && storeReason(err, StoreFull)
		if !again {
			return err
		}
		if time.Since(told) >= persistWord {
			told = time.Now()
			ev := LogEvent("warn", c.Tool+" ran; "+what+" waits for the store, which cannot be used at the moment")
			ev.Ours = true
			_ = out.Emit(ev)
		}
		if !Sleep(ctx, persistPause) {
			return err
		}
	}
}
