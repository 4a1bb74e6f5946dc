// Package state has the tools that look at and change the state of sessions: state.get, state.watch, state.patch and state.reset.
// A session belongs to a caller. Everybody has to do with their own sessions alone, and who runs this program with
// those of all. A change is a call like any other, so that who changed what is on record.
package state

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"toolpost/engine/session"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The names of the tools.
const (
	getName   = "state.get"
	watchName = "state.watch"
	patchName = "state.patch"
	resetName = "state.reset"
)

// Sessions keeps the documents of sessions.
type Sessions interface {
	// Get gives the document of a session; one that nobody has changed is {}.
	Get(ctx context.Context, caller, session string) (session.State, error)
	// Next gives the version that follows the one that was seen, as far as it is remembered; false: there is none yet.
	Next(ctx context.Context, caller, session string, seen int64) (session.State, bool, error)
	// PatchAt merges patches into the document, all at once, where it is still at the version that was seen, and at any
	// version for a seen below zero. An error of code conflict says that it is not. It gives the new version.
	PatchAt(ctx context.Context, caller, session string, seen int64, patches []map[string]any) (version int64, err error)
	// Reset empties the document and gives the new version.
	Reset(ctx context.Context, caller, session string) (version int64, err error)
}

// A Runner has the tools.
type Runner struct{ sessions Sessions }

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// New makes the source.
func New(sessions Sessions) *Runner { return &Runner{sessions} }

// What the inputs have in common.
const (
	open  = `{"type":"object","additionalProperties":false,`
	which = `"session":{"type":"string","minLength":1,"description":"the session; default: that of the call"},` +
		`"caller":{"type":"string","minLength":1,"description":"whose session it is, for who runs toolpost; default: who asks"}`

	sessionInput = open + `"properties":{` + which + `}}`
	watchInput   = open + `"properties":{` + which + `,` +
		`"after":{"type":"integer","minimum":0,"description":"the version that was seen; default: the newest"},` +
		`"wait_ms":{"type":"integer","minimum":0,"maximum":20000,"description":"how long to wait for another; default 10000"}}}`
	patchInput = open + `"required":["patch"],"properties":{` + which + `,` +
		`"patch":{"type":"object","description":"what is merged: objects merge key by key at every depth, everything else replaces, null removes"},` +
		`"if_version":{"type":"integer","minimum":0,"description":"merge only if the session is still at this version; default: merge anyway"}}}`
)

// Tools implements tool.Source. Those that change something do not declare it: they need no lease of a tier, and count
// as tools that may change something all the same.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{
		{Name: getName, Description: "Gives the state of a session and its version.", Input: json.RawMessage(sessionInput), Effects: tool.Effects{Reads: true, Idempotent: true}},
		{Name: watchName, Description: "Waits for the next version of a session and gives it; newer is false where none came.", Input: json.RawMessage(watchInput), Effects: tool.Effects{Reads: true}},
		{Name: patchName, Description: "Merges a patch into the state of a session.", Input: json.RawMessage(patchInput)},
		{Name: resetName, Description: "Empties the state of a session.", Input: json.RawMessage(sessionInput)},
	}, nil
}

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error { return nil }

// arguments are those of all the tools.
type arguments struct {
	Session   string          `json:"session"`
	Caller    string          `json:"caller"`
	Patch     json.RawMessage `json:"patch"`
	IfVersion *int64          `json:"if_version"`
	After     *int64          `json:"after"`
	WaitMS    *int64          `json:"wait_ms"`
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(context.Cause(ctx))
	}
	args, err := read(c)
	if err != nil {
		return nil, err
	}
	switch c.Tool {
	case getName:
		return r.get(ctx, args)
	case watchName:
		return r.watch(ctx, args)
	case patchName:
		return r.patch(ctx, args)
	case resetName:
		version, err := r.sessions.Reset(ctx, args.Caller, args.Session)
		return changed(args, version, err)
	}
	return nil, tool.Errorf(tool.CodeNotFound, "there is no tool %q about states", c.Tool)
}

// read takes the arguments of a call, and says whose session they mean.
func read(c *tool.Call) (args arguments, err error) {
	if err := strictjson.UnmarshalClosed(c.Args, &args); err != nil {
		return args, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", c.Tool, err)
	}
	if args.Session == "" {
		args.Session = c.Session
	}
	if args.Caller == "" {
		args.Caller = c.Caller.ID
	}
	switch {
	case args.Caller != c.Caller.ID && !c.Caller.Operator():
		return args, tool.Errorf(tool.CodeAccessDenied, "%q has to do with its own sessions alone; leave out the caller", c.Caller.ID)
	case args.Session == "":
		return args, tool.Errorf(tool.CodeInvalidInput, "%s needs a session; name one", c.Tool)
	}
	return args, nil
}

func (r *Runner) get(ctx context.Context, args arguments) (*tool.Result, error) {
	st, err := r.sessions.Get(ctx, args.Caller, args.Session)
	if err != nil {
		return nil, err
	}
	return result(st, fmt.Sprintf("session %s is at version %d", args.Session, st.Version))
}

// How long a watch waits where it is not told, at the most, and between two looks.
const (
	standardWait = 10 * time.Second
	longestWait  = 20 * time.Second
	lookEvery    = 200 * time.Millisecond
)

// A watched is the outcome of state.watch.
type watched struct {
	Newer   bool            `json:"newer"`
	Version int64           `json:"version"`
	State   json.RawMessage `json:"state,omitzero"` // where it is newer
}

func (r *Runner) watch(ctx context.Context, args arguments) (*tool.Result, error) {
	seen, err := r.seen(ctx, args)
	if err != nil {
		return nil, gone(ctx, err)
	}
	wait := standardWait
	if args.WaitMS != nil {
		wait = time.Duration(min(max(*args.WaitMS, 0), longestWait.Milliseconds())) * time.Millisecond
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		st, more, err := r.sessions.Next(ctx, args.Caller, args.Session, seen)
		switch {
		case err != nil:
			return nil, gone(ctx, err)
		case more:
			return result(watched{true, st.Version, st.State}, fmt.Sprintf("session %s is at version %d", args.Session, st.Version))
		}
		select {
		case <-time.After(lookEvery):
		case <-over.C:
			return result(watched{Version: seen}, fmt.Sprintf("session %s is still at version %d", args.Session, seen))
		case <-ctx.Done():
			return nil, tool.AsError(context.Cause(ctx))
		}
	}
}

// gone gives the end of a call as the reason why a store did not answer, where it was the reason.
func gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return tool.AsError(context.Cause(ctx))
	}
	return err
}

// seen is the version after which a watch begins.
func (r *Runner) seen(ctx context.Context, args arguments) (int64, error) {
	if args.After != nil {
		return *args.After, nil
	}
	st, err := r.sessions.Get(ctx, args.Caller, args.Session)
	return st.Version, err
}

func (r *Runner) patch(ctx context.Context, args arguments) (*tool.Result, error) {
	v, err := strictjson.Decode(args.Patch)
	patch, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, tool.Errorf(tool.CodeInvalidInput, "a patch is a JSON object, not %s", strictjson.KindOf(args.Patch))
	}
	seen := int64(-1)
	if args.IfVersion != nil {
		if seen = *args.IfVersion; seen < 0 {
			return nil, tool.Errorf(tool.CodeInvalidInput, "if_version cannot be negative")
		}
	}
	version, err := r.sessions.PatchAt(ctx, args.Caller, args.Session, seen, []map[string]any{patch})
	if tool.CodeOf(err) == tool.CodeQuotaExceeded {
		err = tool.Errorf(tool.CodeQuotaExceeded, "the state of session %q was not changed: %s", args.Session, tool.AsError(err).Message)
	}
	return changed(args, version, err)
}

// changed says which version a change has led to.
func changed(args arguments, version int64, err error) (*tool.Result, error) {
	if err != nil {
		return nil, err
	}
	return result(map[string]any{"version": version}, fmt.Sprintf("session %s is at version %d", args.Session, version))
}

func result(output any, summary string) (*tool.Result, error) {
	b, err := strictjson.Marshal(output)
	if err != nil {
		return nil, err
	}
	return &tool.Result{OK: true, Output: b, Summary: summary}, nil
}
