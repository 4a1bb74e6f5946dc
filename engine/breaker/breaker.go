// Package breaker is the stage that leaves a tool alone for a while when it breaks call after call. Callers are told
// at once what is wrong and when to come back, instead of waiting for one more failure; whatever the tool stands on
// is not hammered while it recovers.
package breaker

import (
	"context"
	"errors"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/host/backoff"
	"toolpost/host/process"
	"toolpost/tool"
)

// Options is the section limits.breaker of a config. It has useful zero values.
type Options struct {
	Off      bool          `yaml:"off" doc:"let every call reach its tool, however often it has failed"`
	Failures int           `yaml:"failures" schema:"default=5" doc:"crashes, invalid replies or unavailable answers in a row that open a tool's breaker"`
	Open     time.Duration `yaml:"open" schema:"default=30s" doc:"how long calls are refused before one is tried again"`
}

// Validate checks what a config says.
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

// From gives the options of a config.
func From(cfg *config.Config) (o Options, err error) {
	err = cfg.Section(Section().Name).Decode(&o)
	return o, err
}

// For returns the stage of one tool, a tool.Middleware; nil: there is none. It is made anew whenever tools are
// published, so a reload closes every breaker: whoever reloads has most likely just repaired something.
//
// Each tool has a breaker of its own. A breaker for a whole source would trip sooner when a shared server is away,
// but one tool that crashes on everything would then take its healthy neighbours with it. What really is shared, the
// program under several tools, has its own pauses between starts.
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
	trying time.Time // until when others wait for the outcome of the call that is tried
}

// stage stands behind everything that may refuse a call, so that what is refused is neither counted nor tried.
func (b *circuit) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
		try, err := b.enter()
		if err != nil {
			return nil, err
		}
		defer func() { b.leave(try, r, err) }() // a runner that panics has neither result nor error, and is not counted
		return next.Invoke(ctx, c, out)
	})
}

// enter lets a call through, unless the breaker is open. After its time one call is tried, and the others wait for its
// outcome, but no longer than the breaker would have stayed open: the call may take hours.
func (b *circuit) enter() (try bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.count.Tripped():
		return false, nil
	case b.count.Wait() > 0 || time.Now().Before(b.trying):
		return false, b.count.Refusal(b.name, "call")
	}
	b.trying = time.Now().Add(b.count.Pause())
	return true, nil
}

// leave counts what became of a call.
func (b *circuit) leave(try bool, r *tool.Result, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if try {
		b.trying = time.Time{}
	}
	switch {
	case r != nil && !r.Trace.Cached: // an answer from memory does not make a broken tool whole
		b.count.Worked()
	case broke(err):
		b.count.Failed(string(tool.CodeOf(err))) // the message may say what another caller sent
	}
}

// broke reports whether an error says that the tool is broken. A failure that the tool itself reports is a result,
// and a refusal of the arguments shows that somebody was there to refuse them.
//
// A call that ran out of time, or was cancelled, says nothing either way. The time may have been the caller's own,
// and somebody with a short deadline must not be able to close a tool to everybody else; a worker that has stopped
// answering is replaced by its runner. A reply that is too long was an answer to these arguments; others may get a
// shorter one. Nor does an error count that says itself when to try again, such as that of a full queue or of a store
// that is away: whoever says so keeps callers apart already.
func broke(err error) bool {
	var long *process.LimitError
	switch e := tool.AsError(err); {
	case e == nil || errors.As(err, &long):
		return false
	case e.Code == tool.CodeUnavailable:
		return e.Retry() == 0
	default:
		return e.Code == tool.CodeCrash || e.Code == tool.CodeProtocol
	}
}
