// Package follow is the common part of everything that can be followed: the log of calls, the log of the process, its
// load. The number of followers is limited, per caller and in all. Each ends after an hour; a client that wants to
// continue asks again and is authorised again. All end with the process. A follower waits in its own call and reads at
// its own pace, so no writer ever waits for it.
package follow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// How many followers there may be at once, and for how long. A page of the console follows two or three things, and
// people have several open; each costs a goroutine and the pages that it reads.
const (
	MostOfCaller = 32
	MostOfAll    = 128
	Longest      = time.Hour
)

// Timeout is the timeout of a tool that follows something: the tool ends by itself before.
const Timeout = Longest + time.Minute

// gather is how long a follower waits for more after the first change: then many lines cost as much as one.
const gather = 20 * time.Millisecond

// Followers are the present followers.
type Followers struct {
	ending chan struct{}
	end    func()

	mu  sync.Mutex
	of  map[string]int // by caller
	all int
}

// New makes an empty set of followers.
func New() *Followers {
	f := &Followers{ending: make(chan struct{}), of: map[string]int{}}
	f.end = sync.OnceFunc(func() { close(f.ending) })
	return f
}

// Close ends all followers, because the process is about to end.
func (f *Followers) Close() { f.end() }

// A Follower is one call that follows something.
type Follower struct {
	of     *Followers
	caller string
	over   *time.Timer
}

// Begin lets a caller follow something, until End.
func (f *Followers) Begin(p tool.Principal) (*Follower, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[p.ID] >= MostOfCaller || f.all >= MostOfAll {
		return nil, tool.Errorf(tool.CodeQuotaExceeded, "%q follows %d things and all callers together %d; at most %d and %d "+
			"are followed at once: end one first (`toolpost ps` lists them)", p.ID, f.of[p.ID], f.all, MostOfCaller, MostOfAll,
		).Because("followers")
	}
	f.of[p.ID]++
	f.all++
	return &Follower{f, p.ID, time.NewTimer(Longest)}, nil
}

// End ends the follower. It must be called once.
func (f *Follower) End() {
	f.over.Stop()
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.of.all--
	if f.of.of[f.caller]--; f.of.of[f.caller] == 0 {
		delete(f.of.of, f.caller)
	}
}

// A Watched is the outcome of a call that followed lines.
type Watched struct {
	Next   int64 `json:"next"`            // the value of after with which the next call continues
	Missed int64 `json:"missed,omitzero"` // lines that were dropped before this follower read them
	// Others are the values of others with which the next call continues: its next at each other node of the fleet.
	Others map[string]int64 `json:"others,omitzero"`
}

// Lines sends lines to out, from w.Next on: again and again those that next returns, with the number of the last one and
// how many in between are no longer kept. It reads at once after it has read some, otherwise when something has changed, see
// Wait. It returns the error of out, or of a cancelled call.
func (f *Follower) Lines(
	ctx context.Context, out tool.Sink, w *Watched, changed func() <-chan struct{},
	next func(after int64) (lines []tool.Event, last, missed int64),
) (err error) {
	for on := true; on && err == nil; {
		change, most := changed(), Longest // before reading: later changes are read the next time
		lines, last, missed := next(w.Next)
		if w.Missed += missed; missed > 0 {
			lines = slices.Insert(lines, 0, missing(missed))
		}
		for _, ev := range lines {
			if err := out.Emit(ev); err != nil {
				return err
			}
		}
		if last > w.Next {
			w.Next, most = last, 0
		}
		on, err = f.Wait(ctx, change, most)
	}
	return err
}

// missing tells a follower how many lines it has missed.
func missing(lines int64) tool.Event {
	text := fmt.Sprintf("%d lines are missing: they came faster than they were read", lines)
	fields, _ := strictjson.Marshal(map[string]int64{"missed": lines}) // marshals: a number
	return tool.NewEvent(tool.KindLog, tool.Log{Level: "warn", Message: text, Fields: fields})
}

// Left reports whether the client of a call has disconnected: the call was not cancelled, and nothing waits for its
// outcome. An explicit cancellation, and a server that ends a call, set another cause.
func Left(ctx context.Context) bool { return errors.Is(context.Cause(ctx), context.Canceled) }

// Wait waits until there may be something new: changed is closed, or most has passed. It reports whether to go on: not
// when the follower's time is over or the process ends. It returns the error of a cancelled call.
func (f *Follower) Wait(ctx context.Context, changed <-chan struct{}, most time.Duration) (bool, error) {
	tick := time.NewTimer(most)
	defer tick.Stop()
	select {
	case <-changed:
		return f.Wait(ctx, nil, min(gather, most))
	case <-tick.C:
		return true, nil
	case <-f.over.C:
		return false, nil
	case <-f.of.ending:
		return false, nil
	case <-ctx.Done():
		return false, tool.AsError(context.Cause(ctx))
	}
}
