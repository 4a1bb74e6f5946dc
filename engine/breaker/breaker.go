// Package breaker is the stage that leaves a tool alone for a while when it fails call after call. Callers learn at once
// what is wrong and when to come back, instead of waiting for one more failure. The service behind the tool is not
// hammered while it recovers.
package breaker

import (
	"context"
	"errors"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/host/backoff"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// Options is the section limits.breaker of a config. It has useful zero values.
type Options struct {
	Off      bool          `yaml:"off" doc:"let every call reach its tool, however often it has failed"`
	Failures int           `yaml:"failures" schema:"default=5" doc:"crashes, invalid replies or unavailable answers in a row that open a tool's breaker"`
	Open     time.Duration `yaml:"open" schema:"default=30s" doc:"how long calls are refused before one is tried again"`
}

// Validate checks the options of a config.
func (o *Options) Validate() error {
	if o.Failures < 0 || o.Open < 0 {
		return errors.New("failures and open cannot be negative; `off: true` turns the breaker off")
	}
	return nil
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{
		Name: "limits.breaker", Options: Options{},
		Doc: "when to stop calling a tool that keeps failing",
	}
}

// From returns the options of a config.
func From(cfg *config.Config) (o Options, err error) {
	err = cfg.Section(Section().Name).Decode(&o)
	return o, err
}

// For returns the stage of one tool, or nil if the breaker is off. It is made anew whenever tools are published, so a
// reload closes every breaker: the operator has most likely just repaired something.
//
// Each tool has its own breaker. A breaker for a whole source would trip sooner when a shared server is down, but then
// one tool that crashes on everything would take its healthy neighbours with it. The shared part, the program under
// several tools, has its own pauses between starts.
func (o Options) For(spec *tool.Spec) tool.Middleware {
	if o.Off {
		return nil
	}
	b := &circuit{name: spec.Name, count: backoff.Breaker{Failures: o.Failures, First: -1, Open: o.Open}}
	return b.stage
}

// A circuit is the breaker of one tool.
type circuit struct {
	name string

	mu     sync.Mutex
	count  backoff.Breaker
	trying time.Time // until when other calls wait for the outcome of the trial call
}

// stage runs behind the stages that may refuse a call, so that a refused call is neither counted nor tried.
func (b *circuit) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
		try, err := b.enter()
		if err != nil {
			return nil, err
		}
		defer func() { b.leave(try, r, err) }() // a panic leaves neither result nor error, and is not counted
		return next.Invoke(ctx, c, out)
	})
}

// enter lets a call through unless the breaker is open. After the open time one call is tried. The others wait for its
// outcome, but no longer than the breaker would have stayed open: the call may take hours.
func (b *circuit) enter() (try bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.count.Tripped():
		return false, nil
	case b.count.Wait() > 0 || time.Now().Before(b.trying):
		return false, tool.BeforeRun(b.count.Refusal(b.name, "call"))
	}
	b.trying = time.Now().Add(b.count.Pause())
	return true, nil
}

// leave counts the outcome of a call.
func (b *circuit) leave(try bool, r *tool.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if try {
		b.trying = time.Time{}
	}
	switch {
	case r != nil && !r.Trace.Cached: // a cached answer does not prove that the tool works again
		b.count.Worked()
	case broke(err):
		b.count.Failed(string(tool.CodeOf(err))) // only the code: the message may contain another caller's data
	}
}

// broke reports whether an error means that the tool is broken. A failure that the tool itself reports is a result, and
// a refusal of the arguments shows that the tool works.
//
// A call that timed out or was cancelled proves nothing. The deadline may have been the caller's own, and a caller with
// a short deadline must not be able to close a tool to all others; a worker that stopped answering is replaced by its
// runner. A reply that is too long was an answer to these arguments; others may get a shorter one. Nor does an error
// count that itself sets a time to try again, such as that of a full queue or of a store that is down: its source keeps
// callers apart already.
func broke(err error) bool {
	var long *bounded.LimitError
	switch e := tool.AsError(err); {
	case e == nil || errors.As(err, &long):
		return false
	case e.Code == tool.CodeUnavailable:
		return e.Retry() == 0
	default:
		return e.Code == tool.CodeCrash || e.Code == tool.CodeProtocol
	}
}
