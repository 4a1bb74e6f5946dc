package tool

import (
	"context"
	"errors"
	"slices"
	"time"
)

// The reasons of errors about a store that cannot be used now.
const (
	StoreDown    = "store_down"    // it is not there or starting; nothing was written
	StoreUnclear = "store_unclear" // it went away at a moment that leaves open whether something was written
	StoreFull    = "store_full"    // it has no room
)

// StoreAway reports whether an error, whoever has put words around it, is that the store was away: it may well be there
// again in a moment.
func StoreAway(err error) bool { return storeReason(err, StoreDown, StoreUnclear) }

func storeReason(err error, reasons ...string) bool {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if slices.Contains(reasons, e.Reason) {
			return true
		}
	}
	return false
}

// BeforeRun marks the error of a stage which stands in front of the tool and has not let the call through: whatever the
// reason, the tool has done nothing. A reason alone would not tell, since a tool may be on another machine with a store
// of its own.
func BeforeRun(err error) error {
	if err == nil {
		return nil
	}
	e := *AsError(err)
	e.Err = beforeRun{err}
	return &e
}

// NotRun reports whether an error is marked so.
func NotRun(err error) bool {
	var mark beforeRun
	return errors.As(err, &mark)
}

type beforeRun struct{ error }

func (b beforeRun) Unwrap() error { return b.error }

// How long what a call has left behind waits for a store that is away, beyond what the store itself waits.
const (
	persistWait  = 10 * time.Second
	persistPause = 250 * time.Millisecond
	persistWord  = 3 * time.Second
)

// Persist writes what is left to be written of a call that has run: it must not be lost because the store is away for a
// while. It tries again until the store takes it, and tells the caller so now and then: nobody waits without a word. It
// gives up after ten seconds, or with the call's context where the call is Patient.
func Persist(ctx context.Context, c *Call, out Sink, what string, write func() error) error {
	var told time.Time
	for end := time.Now().Add(persistWait); ; {
		err := write()
		again := StoreAway(err) && (c.Patient || time.Now().Before(end)) || c.Patient && storeReason(err, StoreFull)
		if !again {
			return err
		}
		if time.Since(told) >= persistWord {
			told = time.Now()
			_ = out.Emit(LogEvent("warn", c.Tool+" ran; "+what+
				" waits for the store, which cannot be used at the moment"))
		}
		select {
		case <-time.After(persistPause):
		case <-ctx.Done():
			return err
		}
	}
}
