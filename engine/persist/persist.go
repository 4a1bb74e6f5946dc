// Package persist writes what is left to be written of a call that has run, while the store may be away.
package persist

import (
	"context"
	"errors"
	"slices"
	"time"

	"toolpost/tool"
)

// The reasons of errors about a store that cannot be used now.
const (
	Down    = "store_down"    // it is unreachable or starting; nothing was written
	Unclear = "store_unclear" // the connection broke at a moment that leaves open whether something was written
	Full    = "store_full"    // it has no room
)

// Away reports whether an error, however it is wrapped, means that the store was away: it may well be back in a
// moment.
func Away(err error) bool { return hasReason(err, Down, Unclear) }

// Retry reports whether an error is about a store that takes the same write later: it was away, or has no room.
func Retry(err error) bool { return Away(err) || hasReason(err, Full) }

func hasReason(err error, reasons ...string) bool {
	for e := (*tool.Error)(nil); errors.As(err, &e); err = e.Err {
		if slices.Contains(reasons, e.Reason) {
			return true
		}
	}
	return false
}

// How long Write waits for a store that is away, beyond the store's own wait.
const (
	giveUp      = 10 * time.Second
	pause       = 250 * time.Millisecond
	reportEvery = 3 * time.Second
)

// Write writes what is left to be written of a call that has run: it must not be lost because the store is away for a
// while. It retries until the store takes it, and reports that to the caller now and then, so that the caller does not
// wait in silence. It gives up after ten seconds, or for a Background call when the context ends.
func Write(ctx context.Context, c *tool.Call, out tool.Sink, what string, write func() error) error {
	var told time.Time
	for end := time.Now().Add(giveUp); ; {
		err := write()
		again := Away(err) && time.Now().Before(end) || c.Background && Retry(err)
		if !again {
			return err
		}
		if time.Since(told) >= reportEvery {
			told = time.Now()
			ev := tool.LogEvent("warn", c.Tool+" ran; "+what+" waits for the store, which cannot be used at the moment")
			ev.Ours = true
			_ = out.Emit(ev)
		}
		if !tool.Sleep(ctx, pause) {
			return err
		}
	}
}
