package idempotency

import (
	"context"
	"errors"
	"strings"
	"time"

	"toolpost/engine/persist"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Claim is the state of a key.
type Claim struct {
	Mine   bool     // it is new: this process runs the call, and settles it
	Input  [32]byte // of the call that has the key
	Result []byte   // its outcome, or nil if there is none yet
	Lost   bool     // there will be no outcome: its process is gone
	Away   bool     // its process has not been seen for a moment, and may be gone
	Call   string   // the call that has the key, if it is for another machine: see nameOf
	At     int64    // a number of the claim, which grows

	Age time.Duration // since the call that has the key took it
}

// Outcomes remembers outcomes beyond the life of this process.
type Outcomes interface {
	// Claim takes the scope of a key for a call of this process, or returns the claim that exists. One whose process is gone counts
	// as lost for ttl.
	Claim(ctx context.Context, scope, input [32]byte, call string, ttl time.Duration) (Claim, error)
	// Settle ends a claim of this process: with an outcome to remember, or with nil.
	Settle(ctx context.Context, scope [32]byte, result []byte, ttl time.Duration) error
	// Lose ends a claim of this process, without an outcome: the call may have had one elsewhere.
	Lose(ctx context.Context, scope [32]byte, ttl time.Duration) error
	// Known returns what is known of a key, without a claim to it.
	Known(ctx context.Context, scope [32]byte, ttl time.Duration) (c Claim, known bool, err error)
	// Take lets a call have the key of another one that will never run, if its claim is the given one still.
	Take(ctx context.Context, scope [32]byte, from Claim, call string, ttl time.Duration) (taken bool, err error)
	// Reach returns for how long no outcome has been forgotten because there were too many.
	Reach(ctx context.Context) (time.Duration, error)
	// Hold gives the claim of a call of this process another number, so that no call takes it that knew the old one. It reports
	// whether the call has the key still.
	Hold(ctx context.Context, scope [32]byte, call string) (held bool, err error)
}

// Unknown is the reason of a refusal: the process that ran the first call with the key ended while it ran.
const Unknown = "idempotency_unknown"

// The pauses between looks for the outcome of a call that runs in another process: short at first, then longer.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
	askPause   = time.Second // between questions to other machines, while the process may come back
)

// What begins the name of a call that runs on no machine but those of which Late knows: elsewhere stands before the digest of the tool's
// definition and again before the id, undefined, of an earlier version, before the id alone. Without either the call may have run in its
// own process.
const (
	elsewhere = "#"
	undefined = "@"
)

// A First is the call that has a key.
type First struct {
	Call   string
	Digest string // of the definition of its tool, by which it ran; "" if it is not known

	Age time.Duration // since it took the key, which was before it began
}

// nameOf returns what the claim of a call says of it.
func nameOf(c *tool.Call) string {
	if c.Spec == nil || c.Spec.Digest == "" { // a local call cannot be found on another machine
		return ""
	}
	return elsewhere + c.Spec.Digest + elsewhere + c.ID
}

// first returns the call of a claim, if it ran elsewhere.
func (c Claim) first() (f First, ok bool) {
	f.Age = c.Age
	if named, ok := strings.CutPrefix(c.Call, elsewhere); ok {
		f.Digest, f.Call, ok = strings.Cut(named, elsewhere)
		return f, ok
	}
	f.Call, ok = strings.CutPrefix(c.Call, undefined)
	return f, ok
}

// A durable is the memory that several processes share. Within this process the other one comes first.
type durable struct {
	Outcomes
	ttl  time.Duration
	late Late
}

// A Late finds what became of a call on another machine, after this one has lost sight of it, for one that repeats it: its outcome, or
// that it has begun nowhere, and never will. It returns neither if no other machine can know.
type Late func(ctx context.Context, first First, again *tool.Call) (r *tool.Result, never bool, err error)

func (d *durable) run(
	ctx context.Context, next tool.Handler, c *tool.Call, out tool.Sink, e *entry,
) (*tool.Result, error) {
	var asked time.Time
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		claim, err := d.Claim(ctx, e.scope, e.input, nameOf(c), max(d.ttl, LostFor))
		switch {
		case err != nil:
			return nil, err
		case claim.Mine:
			return d.first(ctx, next, c, out, e)
		case claim.Input != e.input:
			return nil, conflict(c)
		case claim.Lost || claim.Away && c.Spec != nil && !c.Spec.Effects.Repeatable() && time.Since(asked) >= askPause:
			asked = time.Now()
			r, mine, err := d.found(ctx, claim, c, e)
			switch {
			case mine:
				return d.first(ctx, next, c, out, e)
			case r != nil:
				return replay(r), nil
			case err != nil && (claim.Lost || tool.AsError(err).Reason != Unknown):
				return nil, err
			}
		case claim.Result != nil:
			var r tool.Stored
			if err := strictjson.Unmarshal(claim.Result, &r); err != nil {
				return nil, tool.Errorf(tool.CodeInternal,
					"the outcome that was remembered for this idempotency key cannot be read: %w", err)
			}
			r.Result.Content = r.Content
			return replay(&r.Result), nil
		}
		if !tool.Sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

// LostFor is how long a key counts as lost, whatever ended its process: another machine may still run the call, and remembers it as
// long.
const LostFor = 24 * time.Hour

// found returns what became of a call on another machine, or takes its key if it will never run.
func (d *durable) found(ctx context.Context, claim Claim, c *tool.Call, e *entry) (r *tool.Result, mine bool, err error) {
	never := false
	if first, ok := claim.first(); ok && d.late != nil {
		if r, never, err = d.late(ctx, first, c); r != nil || err != nil {
			return r, false, err
		}
	}
	if never {
		mine, err = d.Take(ctx, e.scope, claim, nameOf(c), max(d.ttl, LostFor))
		return nil, mine, err
	}
	return nil, false, tool.Errorf(tool.CodeConflict, "the first call of %s with this idempotency key was interrupted, and its outcome is unknown; "+
		"look before you call again with a new key", c.Tool).Because(Unknown)
}

// holds reports why a call may not begin on a machine that may not know of a call which has the key by now: one that has joined since,
// or has forgotten.
func (d *durable) holds(ctx context.Context, c *tool.Call, e *entry) error {
	held, err := d.Hold(ctx, e.scope, nameOf(c))
	if err == nil && !held {
		err = tool.Errorf(tool.CodeConflict, "another call has the idempotency key of this call of %s by now; call again with the key to get its outcome", c.Tool).Because(Unknown)
	}
	return tool.BeforeRun(err)
}

// first runs the call that has the key. A claim that is not settled, as after a crash, refuses later calls: not running
// is better than running twice.
func (d *durable) first(
	ctx context.Context, next tool.Handler, c *tool.Call, out tool.Sink, e *entry,
) (r *tool.Result, err error) {
	var keep []byte
	defer func() {
		settle := func() error { return d.Settle(context.WithoutCancel(ctx), e.scope, keep, d.ttl) }
		switch {
		// What a tool of our own has changed may be in the store, although that could not say so.
		case keep == nil && (tool.InDoubt(err) || persist.Doubtful(err) && !tool.NotRun(err)):
			free := context.WithoutCancel(ctx)
			lose := func() error { return d.Lose(free, e.scope, max(d.ttl, LostFor)) }
			err = errors.Join(err, persist.Write(free, c, out, "that its outcome is unknown", lose))
			return
		case keep == nil:
			_ = settle() // if that fails, the store repeats it
			return
		}
		if failed := persist.Write(ctx, c, out, "its outcome", settle); failed != nil {
			r, err = nil, tool.Errorf(tool.CodeUnavailable,
				"%s ran, but its outcome could not be remembered for its idempotency key: %w", c.Tool, failed)
		}
	}()
	if d.late != nil {
		c.Holds = func() error { return d.holds(ctx, c, e) }
	}
	r, err = next.Invoke(ctx, c, out)
	if err != nil || r.Ask != nil {
		return r, err
	}
	if keep, err = strictjson.Marshal(tool.Stored{Result: *r, Content: r.Content}); err != nil {
		return nil, err
	}
	return r, nil
}
