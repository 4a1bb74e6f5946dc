// Package state has the tools that read and change the state of sessions: state.get, state.watch, state.patch and
// state.reset. A session belongs to a caller. Callers reach only their own sessions; operators reach all. A change is a call
// like any other, so that the record shows who changed what.
package state

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/session"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Sessions keeps the documents of sessions.
type Sessions interface {
	// Get returns the document of a session; an unchanged one is {}.
	Get(ctx context.Context, caller, session string) (session.State, error)
	// At returns an earlier version of it, as far as it is remembered.
	At(ctx context.Context, caller, session string, version int64) (session.State, error)
	// Next returns the version after the one that was seen, as far as it is remembered, or false if there is none yet.
	Next(ctx context.Context, caller, session string, seen int64) (session.State, bool, error)
	// PatchAt merges patches into the document atomically if it is still at the version that was seen, or at any version if
	// seen is negative. Otherwise it fails with code conflict. It returns the new version.
	PatchAt(ctx context.Context, caller, session string, seen int64, patches []map[string]any) (version int64, err error)
	// Reset empties the document and returns the new version.
	Reset(ctx context.Context, caller, session string) (version int64, err error)
}

// New makes the tools. Those that change something do not declare it: they need no lease of a tier, but still count as tools
// that may change something.
func New(sessions Sessions) *define.Set {
	t := tools{sessions}
	return define.NewSet(
		define.New(tool.Spec{
			Name: "state.get", Effects: tool.Effects{Reads: true, Idempotent: true},
			Description: "Returns the state of a session and its version.",
		}, t.get),
		define.New(tool.Spec{
			Name: "state.watch", Effects: tool.Effects{Reads: true},
			Description: "Waits for the next version of a session and gives it; newer is false where none came.",
		}, t.watch),
		define.New(tool.Spec{Name: "state.patch", Description: "Merges a patch into the state of a session."}, t.patch),
		define.New(tool.Spec{Name: "state.reset", Description: "Empties the state of a session."}, t.reset),
	)
}

type tools struct{ sessions Sessions }

// SessionArgs name a session.
type SessionArgs struct {
	Session string `json:"session" schema:"minLength=1" doc:"the session; default: that of the call"`
	Caller  string `json:"caller" schema:"minLength=1" doc:"the caller of the session, for operators; default: you"`
}

// of fills in defaults from the call, and refuses the sessions of others.
func (w *SessionArgs) of(c *define.Call) error {
	w.Session, w.Caller = cmp.Or(w.Session, c.Session), cmp.Or(w.Caller, c.Caller.ID)
	if err := c.Caller.Reaches(w.Caller, "sessions"); err != nil {
		return err
	}
	if w.Session == "" {
		return tool.Errorf(tool.CodeInvalidInput, "%s needs a session; name one", c.Tool)
	}
	return nil
}

// at puts the version of the session into the summary.
func (w *SessionArgs) at(c *define.Call, version int64) {
	c.Summary = fmt.Sprintf("session %s is at version %d", w.Session, version)
}

// GetArgs are the arguments of state.get.
type GetArgs struct {
	SessionArgs
	Version *int64 `json:"version" schema:"minimum=0" doc:"an earlier version, one of the last 100; default: the newest"`
}

// A State is a version of a session, and the caller that owns it.
type State struct {
	Session string `json:"session"`
	Caller  string `json:"caller"`
	session.State
}

func (t tools) get(ctx context.Context, c *define.Call, a GetArgs) (st State, err error) {
	if err := a.of(c); err != nil {
		return st, err
	}
	st.Session, st.Caller = a.Session, a.Caller
	if a.Version != nil {
		st.State, err = t.sessions.At(ctx, a.Caller, a.Session, *a.Version)
	} else {
		st.State, err = t.sessions.Get(ctx, a.Caller, a.Session)
	}
	a.at(c, st.Version)
	return st, err
}

// How long a watch waits by default, at most, and between two looks.
const (
	standardWait = 10 * time.Second
	longestWait  = 20 * time.Second
	lookEvery    = 200 * time.Millisecond
)

type watchArgs struct {
	SessionArgs
	After  *int64 `json:"after" schema:"minimum=0" doc:"the version that was seen; default: the newest"`
	WaitMS *int64 `json:"wait_ms" schema:"minimum=0 maximum=20000" doc:"how long to wait for another; default 10000"`
}

// Watched is the output of state.watch.
type Watched struct {
	Newer   bool            `json:"newer"`
	Version int64           `json:"version"`
	Changed time.Time       `json:"changed,omitzero"` // only if it is newer
	State   json.RawMessage `json:"state,omitzero"`
}

func (t tools) watch(ctx context.Context, c *define.Call, a watchArgs) (Watched, error) {
	if err := a.of(c); err != nil {
		return Watched{}, err
	}
	if a.After == nil {
		st, err := t.sessions.Get(ctx, a.Caller, a.Session)
		if err != nil {
			return Watched{}, gone(ctx, err)
		}
		a.After = &st.Version
	}
	wait := standardWait
	if a.WaitMS != nil {
		wait = time.Duration(min(max(*a.WaitMS, 0), longestWait.Milliseconds())) * time.Millisecond
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		st, more, err := t.sessions.Next(ctx, a.Caller, a.Session, *a.After)
		switch {
		case err != nil:
			return Watched{}, gone(ctx, err)
		case more:
			a.at(c, st.Version)
			return Watched{true, st.Version, st.Changed, st.State}, nil
		}
		select {
		case <-time.After(lookEvery):
		case <-over.C:
			c.Summary = fmt.Sprintf("session %s is still at version %d", a.Session, *a.After)
			return Watched{Version: *a.After}, nil
		case <-ctx.Done():
			return Watched{}, context.Cause(ctx)
		}
	}
}

// gone returns the end of the call as the reason why a store did not answer, if it was.
func gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// PatchArgs are the arguments of state.patch.
type PatchArgs struct {
	SessionArgs
	Patch     json.RawMessage `json:"patch" schema:"required type=object" doc:"what is merged: objects merge key by key at every depth, other values replace the old ones, null removes a key"`
	IfVersion *int64          `json:"if_version" schema:"minimum=0" doc:"merge only if the session is still at this version; default: merge anyway"`
}

// A Change is the version that a change resulted in.
type Change struct {
	Session string `json:"session"`
	Caller  string `json:"caller"`
	Version int64  `json:"version"`
}

func (t tools) patch(ctx context.Context, c *define.Call, a PatchArgs) (Change, error) {
	if err := a.of(c); err != nil {
		return Change{}, err
	}
	v, err := strictjson.Decode(a.Patch)
	patch, ok := v.(map[string]any)
	if err != nil || !ok {
		return Change{}, tool.Errorf(tool.CodeInvalidInput, "a patch is a JSON object, not %s", strictjson.KindOf(a.Patch))
	}
	seen := int64(-1)
	if a.IfVersion != nil {
		if seen = *a.IfVersion; seen < 0 {
			return Change{}, tool.Errorf(tool.CodeInvalidInput, "if_version cannot be negative")
		}
	}
	version, err := t.sessions.PatchAt(ctx, a.Caller, a.Session, seen, []map[string]any{patch})
	if tool.CodeOf(err) == tool.CodeQuotaExceeded {
		err = tool.Errorf(tool.CodeQuotaExceeded, "the state of session %q was not changed: %s",
			a.Session, tool.AsError(err).Message)
	}
	a.at(c, version)
	return Change{a.Session, a.Caller, version}, err
}

func (t tools) reset(ctx context.Context, c *define.Call, a SessionArgs) (Change, error) {
	if err := a.of(c); err != nil {
		return Change{}, err
	}
	version, err := t.sessions.Reset(ctx, a.Caller, a.Session)
	a.at(c, version)
	return Change{a.Session, a.Caller, version}, err
}
