package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolpost/engine/session"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
)

var (
	_ session.States = (*store.Sessions)(nil)
	_ session.Assets = &store.Assets{}
)

type failing struct{}

func (failing) Patch(context.Context, string, string, []map[string]any) error {
	return tool.Errorf(tool.CodeQuotaExceeded, "no room")
}

func (failing) State(context.Context, string, string) (json.RawMessage, error) { return nil, nil }

type assets struct{}

func (assets) Add(_ context.Context, _ string, a tool.Asset, _ *os.File) (tool.Asset, error) {
	if a.Path == "/missing" {
		return a, errors.New("/missing: no such file")
	}
	a.Path, a.SHA256, a.Size = "/kept", "abc", 3
	return a, nil
}

func emit(t *testing.T, states session.States, c *tool.Call, r *tool.Result, events ...tool.Event) ([]tool.Event, error) {
	t.Helper()
	var seen []tool.Event
	var mu sync.Mutex
	h := session.Stage(states, assets{})(nil)(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		for _, ev := range events {
			if err := out.Emit(ev); err != nil {
				return nil, err
			}
		}
		return r, nil
	}))
	got, err := h.Invoke(t.Context(), c, tool.SinkFunc(func(ev tool.Event) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, ev)
		return nil
	}))
	if (got == nil) == (err == nil) {
		t.Fatalf("result %v and error %v", got, err)
	}
	return seen, err
}

func patch(doc string) tool.Event {
	return tool.Event{Kind: tool.KindStatePatch, Data: json.RawMessage(doc)}
}

func state(t *testing.T, s *store.Sessions, caller, id string) string {
	t.Helper()
	return string(kit.Must(s.State(t.Context(), caller, id))(t))
}

// contract(narratoria): Example: existing state `{"a": {"b": 1, "c": 2}}` + patch `{"a": {"c": 3, "d": 4}}` → `{"a": {"b": 1, "c": 3, "d": 4}}`
func TestPatchesAreMergedInOrderWhenTheCallSucceeds(t *testing.T) {
	var s store.Sessions
	c := &tool.Call{Tool: "torch", Session: "s", Caller: tool.Principal{ID: "ada"}}
	seen, err := emit(t, &s, c, &tool.Result{OK: true}, patch(`{"a":{"b":1,"c":2}}`), patch(`{"a":{"c":3,"d":4}}`))
	if err != nil || len(seen) != 2 {
		t.Fatalf("%v, %v", seen, err)
	}
	kit.Equal(t, state(t, &s, "ada", "s"), `{"a":{"b":1,"c":3,"d":4}}`)
	kit.Equal(t, state(t, &s, "eve", "s"), `{}`, "another caller sees")
}

func TestTwoCallsOfASessionSeeTheSameState(t *testing.T) {
	var s store.Sessions
	c := &tool.Call{Tool: "torch", Session: "s", Caller: tool.Principal{ID: "ada"}}
	kit.Must(emit(t, &s, c, &tool.Result{OK: true}, patch(`{"lit":true}`)))(t)
	var saw string
	h := session.Stage(&s, assets{})(nil)(tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		saw = string(c.State)
		return &tool.Result{OK: true}, nil
	}))
	if _, err := h.Invoke(t.Context(), c, tool.Discard); err != nil || saw != `{"lit":true}` || c.State != nil {
		t.Errorf("the tool saw %s, %v", saw, err)
	}
}

// contract(narratoria): outside plans the patches of a call that ended with `done` are merged, `ok` or not (section 4.2)
func TestPatchesOfAFailedResultAreKept(t *testing.T) {
	var s store.Sessions
	c := &tool.Call{Tool: "torch", Session: "s"}
	kit.Must(emit(t, &s, c, tool.Failed("", "no"), patch(`{"a":1}`)))(t)
	kit.Equal(t, state(t, &s, "", "s"), `{"a":1}`)
}

// contract(narratoria): a call without an outcome (crash, timeout, protocol error) keeps none, and its trace says so.
func TestCallWithoutOutcomeDropsItsPatches(t *testing.T) {
	for details, want := range map[string]string{
		``:                            `{"trace":{"patches_dropped":2}}`,
		`{"n":1.50}`:                  `{"n":1.50,"trace":{"patches_dropped":2}}`,
		`{"trace":{"exit_code":3}}`:   `{"trace":{"exit_code":3,"patches_dropped":2}}`,
		`{"trace":"of another kind"}`: `{"trace":{"patches_dropped":2}}`,
		`[1]`:                         `{"trace":{"patches_dropped":2}}`,
	} {
		var s store.Sessions
		failed := &tool.Error{Code: tool.CodeCrash, Reason: "r", Message: "m", Details: json.RawMessage(details)}
		h := session.Stage(&s, assets{})(nil)(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
			return nil, errors.Join(out.Emit(patch(`{"a":1}`)), out.Emit(patch(`{"b":1}`)), failed)
		}))
		_, err := h.Invoke(t.Context(), &tool.Call{Tool: "torch", Session: "s"}, tool.Discard)
		e := tool.AsError(err)
		if e.Code != tool.CodeCrash || e.Reason != "r" || e.Message != "m" || string(e.Details) != want {
			t.Errorf("%s: got %+v with %s", details, e, e.Details)
		}
		if got := state(t, &s, "", "s"); got != `{}` || string(failed.Details) != details {
			t.Errorf("the state is %s, the tool's own error has %s", got, failed.Details)
		}
	}
	_, err := session.Stage(failing{}, assets{})(nil)(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		return nil, errors.Join(out.Emit(patch(`{"a":1}`)), tool.Errorf(tool.CodeCrash, "m"))
	})).Invoke(t.Context(), &tool.Call{Tool: "torch"}, tool.Discard)
	if e := tool.AsError(err); len(e.Details) != 0 {
		t.Errorf("where there is no session nothing was dropped: %s", e.Details)
	}
}

func TestAQuestionKeepsNoPatch(t *testing.T) {
	var s store.Sessions
	kit.Must(emit(t, &s, &tool.Call{Session: "s"}, &tool.Result{OK: true, Ask: &tool.Ask{ID: "1"}}, patch(`{"a":1}`)))(t)
	kit.Equal(t, state(t, &s, "", "s"), `{}`)
}

func TestWithoutASessionPatchesOnlyPass(t *testing.T) {
	seen, err := emit(t, failing{}, &tool.Call{Tool: "torch"}, &tool.Result{OK: true}, patch(`{"a":1}`))
	if err != nil || len(seen) != 1 || seen[0].Kind != tool.KindStatePatch {
		t.Errorf("%v, %v", seen, err)
	}
}

func TestUnsavedStateIsAnError(t *testing.T) {
	_, err := emit(t, failing{}, &tool.Call{Tool: "torch", Session: "s"}, &tool.Result{OK: true}, patch(`{"a":1}`))
	kit.Refused(t, err, tool.CodeQuotaExceeded, `torch ran, but the state of session "s" was not changed`)
}

func TestABadPatchOrAssetIsAnErrorEventAndTheCallGoesOn(t *testing.T) {
	seen, err := emit(t, &store.Sessions{}, &tool.Call{Session: "s"}, &tool.Result{OK: true},
		patch(`[1]`), patch(`{"a":1,"a":2}`),
		asset(t, tool.Asset{AssetID: "x", MediaType: "image/png", Path: "/missing"}),
		tool.Event{Kind: tool.KindAsset, Data: json.RawMessage(`{"path":7}`)},
		tool.LogEvent("info", "still here"))
	if err != nil || len(seen) != 5 {
		t.Fatalf("%v, %v", seen, err)
	}
	for i, code := range []string{"invalid_state_patch", "invalid_state_patch", "invalid_asset", "invalid_asset"} {
		if seen[i].Kind != tool.KindError || !strings.Contains(string(seen[i].Data), code) {
			t.Errorf("event %d: %s %s", i, seen[i].Kind, seen[i].Data)
		}
	}
}

// contract(narratoria): Narratoria MUST: Register the asset.
// contract(narratoria): Narratoria MUST: Defer rendering until referenced by UI logic or plan execution.
func TestAnAssetIsRegistered(t *testing.T) {
	seen, _ := emit(t, &store.Sessions{}, &tool.Call{}, &tool.Result{OK: true},
		asset(t, tool.Asset{AssetID: "x", Kind: "image", MediaType: "image/png", Path: "/tmp/x", Metadata: json.RawMessage(`{"w":1.0}`)}))
	want := `{"assetId":"x","kind":"image","mediaType":"image/png","path":"/kept","metadata":{"w":1.0},"sha256":"abc","size":3}`
	kit.Equal(t, string(seen[0].Data), want)
}

// asset returns the event of an asset with a file.
func asset(t *testing.T, a tool.Asset) tool.Event {
	ev := tool.NewEvent(tool.KindAsset, a)
	var err error
	if ev.File, err = os.Open(os.DevNull); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ev.File.Close() })
	return ev
}

// An asset belongs to the caller whose call brought it. A kept copy that is passed on is neither copied again
// nor given to another caller.
func TestAssetBelongsToItsCaller(t *testing.T) {
	kept := &store.Assets{}
	pass := func(caller string, a tool.Asset, file *os.File) tool.Asset {
		t.Helper()
		var seen tool.Asset
		h := session.Stage(&store.Sessions{}, kept)(nil)(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
			ev := tool.NewEvent(tool.KindAsset, a)
			ev.File = file
			return &tool.Result{OK: true}, out.Emit(ev)
		}))
		kit.Must(h.Invoke(t.Context(), &tool.Call{Caller: tool.Principal{ID: caller}}, tool.SinkFunc(func(ev tool.Event) error {
			if ev.Kind != tool.KindAsset || ev.File == nil {
				t.Errorf("%s: %s", ev.Kind, ev.Data)
			}
			return json.Unmarshal(ev.Data, &seen)
		})))(t)
		return seen
	}
	path := filepath.Join(t.TempDir(), "made")
	kit.OK(t, os.WriteFile(path, []byte("content"), 0o600))
	made := kit.Must(os.Open(path))(t)
	defer made.Close()
	brought := pass("ada", tool.Asset{AssetID: "x", Path: path}, made)
	f, a, err := kept.Open(t.Context(), "ada", brought.SHA256)
	kit.OK(t, err)
	defer f.Close()
	if again := pass("eve", a, f); again.SHA256 != brought.SHA256 || again.Path != brought.Path {
		t.Errorf("%+v became %+v", brought, again)
	}
	if f, _, err := kept.Open(t.Context(), "eve", brought.SHA256); f != nil || tool.CodeOf(err) != tool.CodeNotFound {
		t.Errorf("handing it on made it another's: %v", err)
	}
}

// A path may come from another machine, or from a tool that lies about it: no file is opened by its path.
func TestAPathAloneIsNotFollowed(t *testing.T) {
	ev := tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: "x", MediaType: "text/plain", Path: "/etc/passwd"})
	seen, err := emit(t, &store.Sessions{}, &tool.Call{}, &tool.Result{OK: true}, ev)
	if err != nil || len(seen) != 1 || string(seen[0].Data) != string(ev.Data) {
		t.Errorf("%v, %v", seen, err)
	}
}

// counting takes patches and counts them.
type counting struct {
	store.Sessions
	n int
}

func (c *counting) Patch(_ context.Context, _, _ string, patches []map[string]any) error {
	c.n += len(patches)
	return nil
}

// Many small patches take more memory than their bytes.
func TestPatchesOfOneCallAreBoundedInNumber(t *testing.T) {
	const most = 10_000
	small := make([]tool.Event, most+2)
	for i := range small {
		small[i] = patch(`{}`)
	}
	states := &counting{}
	seen, err := emit(t, states, &tool.Call{Session: "s"}, &tool.Result{OK: true}, small...)
	if err != nil || states.n != most {
		t.Fatalf("%d patches, %v", states.n, err)
	}
	for i, ev := range seen {
		kit.MustEqual(t, (ev.Kind == tool.KindError), (i >= most), "event %d: %s %s", i, ev.Kind, ev.Data)
	}
}

func TestPatchesOfOneCallAreBounded(t *testing.T) {
	big := patch(`{"a":"` + strings.Repeat("x", 5<<20) + `"}`)
	seen, err := emit(t, &store.Sessions{}, &tool.Call{}, &tool.Result{OK: true}, big, big)
	if err != nil || seen[0].Kind != tool.KindStatePatch || seen[1].Kind != tool.KindError {
		t.Errorf("%v", err)
	}
}
