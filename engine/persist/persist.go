// Package persist is for a store that may be away: it writes what is left to be written of a call that has run, and logs,
// once for all parts of a program, that the store cannot be used.
package persist

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
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

// Doubtful reports whether an error leaves open whether the store wrote something.
func Doubtful(err error) bool { return hasReason(err, Unclear) }

// Retry reports whether an error is about a store that takes the same write later: it was away, or has no room.
func Retry(err error) bool { return Away(err) || hasReason(err, Full) }

func hasReason(err error, reasons ...string) bool {
	return anyReason(err, func(reason string) bool { return slices.Contains(reasons, reason) })
}

func anyReason(err error, match func(reason string) bool) bool {
	for e := (*tool.Error)(nil); errors.As(err, &e); err = e.Err {
		if match(e.Reason) {
			return true
		}
	}
	return false
}

// Faults logs that the store cannot be used. The parts of a program share one, so that the log has one line a minute about
// it, however many of them fail. A nil Faults logs nothing.
type Faults struct {
	Log   *slog.Logger
	Store string // its name in the log
	Once  bool   // the program makes one call: its owner logs Last at the end instead

	mu   sync.Mutex
	last error
	told time.Time
}

// reportAgain is how long the log says nothing more about a store that cannot be used.
const reportAgain = time.Minute

// Report reports whether an error means that the store cannot be used: then the caller logs nothing.
func (f *Faults) Report(err error) bool {
	if f == nil || !anyReason(err, func(reason string) bool { return strings.HasPrefix(reason, "store") }) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = err
	if now := time.Now(); !f.Once && now.Sub(f.told) >= reportAgain {
		f.told = now
		f.Log.Error("the store cannot be used, so calls that may change something are refused: repair it, or correct `store` "+
			"in the config; `toolpost doctor` checks it", f.about()...)
	}
	return true
}

// Last returns the attributes of the last error, for a log.
func (f *Faults) Last() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return nil
	}
	return f.about()
}

func (f *Faults) about() []any { return []any{"store", f.Store, "error", tool.AsError(f.last).Message} }

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
