// Package session is the stage that keeps what a call leaves behind: patches of its session's state, and assets.
//
// A tool that reports a failure has ended its call in good order, and its work is done: its patches are kept as on
// success. The patches of a call without a result (a crash, a timeout, a breach of the protocol) are dropped, because
// it is unknown which part of its work was done; the trace in its error reports that. The patches of a call that ends
// with a question are dropped too: it is made again, from the start.
package session

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"toolpost/engine/persist"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A State is a version of a session's document.
type State struct {
	Version int64           `json:"version"` // 0 means unchanged
	Changed time.Time       `json:"changed,omitzero"`
	State   json.RawMessage `json:"state"`
}

// States keeps the state of sessions. Two callers never share a session, whatever names they choose.
type States interface {
	// Patch merges the patches into the session's state, in order and all at once.
	Patch(ctx context.Context, caller, session string, patches []map[string]any) error
	// State returns the session's state document, or {} if the session was never patched.
	State(ctx context.Context, caller, session string) (json.RawMessage, error)
}

// Assets keeps the files that tools made.
type Assets interface {
	// Add copies the asset's file by content and returns the asset with the copy's path, digest and size. From then on
	// the caller may fetch it. The file can be of any type, such as a folder or a device. A file that is
	// itself such a copy is returned unchanged, and the caller gains no access to it.
	Add(ctx context.Context, caller string, a tool.Asset, file *os.File) (tool.Asset, error)
}

// Stage returns an engine.Stage, the same for every tool.
func Stage(states States, assets Assets) func(*tool.Spec) tool.Middleware {
	stage := func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			l := &collector{ctx: ctx, caller: c.Caller.ID, out: out, assets: assets}
			c, err := withState(ctx, c, states)
			if err != nil {
				return nil, err
			}
			r, err := next.Invoke(ctx, c, l)
			switch {
			case c.Session == "" || len(l.patches) == 0:
				return r, err
			case err != nil:
				return nil, withoutPatches(err, len(l.patches))
			case r.Ask != nil:
				return r, nil
			}
			patch := func() error { return states.Patch(ctx, c.Caller.ID, c.Session, l.patches) }
			if err := persist.Write(ctx, c, out, "the state of its session", patch); err != nil {
				return nil, tool.Errorf(tool.CodeOf(err), "%s ran, but the state of session %q was not changed: %w",
					c.Tool, c.Session, err)
			}
			return r, nil
		})
	}
	return func(*tool.Spec) tool.Middleware { return stage }
}

// withoutPatches adds to the trace of an error that its patches were dropped. A client that saw the events would
// otherwise take them for part of the state.
func withoutPatches(err error, dropped int) error {
	e := *tool.AsError(err)
	v, _ := strictjson.Decode(e.Details)
	details, _ := v.(map[string]any)
	details = strictjson.Merge(details, map[string]any{"trace": map[string]any{"patches_dropped": dropped}})
	if b, err := strictjson.Marshal(details); err == nil {
		e.Details = b
	}
	return &e
}

// withState adds the state of the call's session to the call. A door that keeps the state of its peer itself has set it
// already.
func withState(ctx context.Context, c *tool.Call, states States) (*tool.Call, error) {
	if c.Session == "" || c.State != nil {
		return c, nil
	}
	state, err := states.State(ctx, c.Caller.ID, c.Session)
	if err != nil {
		return nil, tool.BeforeRun(tool.Errorf(tool.CodeOf(err), "the state of session %q cannot be read: %w",
			c.Session, err))
	}
	with := *c
	with.State = state
	return &with, nil
}

// A collector reads the events of one call as they pass, one at a time.
type collector struct {
	ctx    context.Context
	caller string
	out    tool.Sink
	assets Assets

	mu      sync.Mutex
	patches []map[string]any
	size    int // bytes of all patches
}

func (l *collector) Emit(ev tool.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	switch ev.Kind {
	case tool.KindStatePatch:
		err = l.patch(ev.Data)
	case tool.KindAsset:
		ev.Data, err = l.register(ev)
	default:
	}
	if err != nil {
		ev = tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: "invalid_" + string(ev.Kind), Message: err.Error()})
	}
	return l.out.Emit(ev)
}

// Limits on the patches of one call. They stay in memory until it ends, and there even an empty patch takes many times
// its two bytes.
const (
	maxPatchBytes = 8 << 20
	maxPatches    = 10_000
)

func (l *collector) patch(data json.RawMessage) error {
	if l.size += len(data); l.size > maxPatchBytes {
		return tool.Errorf(tool.CodeQuotaExceeded,
			"more than %d bytes of state patches in one call; this one is left out", maxPatchBytes)
	}
	if len(l.patches) == maxPatches {
		return tool.Errorf(tool.CodeQuotaExceeded,
			"more than %d state patches in one call; this one is left out: send fewer, each with more in it", maxPatches)
	}
	v, err := strictjson.Decode(data)
	if err != nil {
		return err
	}
	patch, ok := v.(map[string]any)
	if !ok {
		return tool.Errorf(tool.CodeProtocol, "a state patch is a JSON object, not %s", strictjson.KindOf(data))
	}
	l.patches = append(l.patches, patch)
	return nil
}

// register keeps a copy of an asset on this machine. It does not follow a path alone, which is just a claim of a tool or
// of another machine.
func (l *collector) register(ev tool.Event) (json.RawMessage, error) {
	var a tool.Asset
	if err := strictjson.Unmarshal(ev.Data, &a); err != nil {
		return nil, err
	}
	if ev.File == nil {
		return ev.Data, nil
	}
	a, err := l.assets.Add(l.ctx, l.caller, a, ev.File)
	if err != nil {
		return nil, err
	}
	return strictjson.Marshal(a)
}
