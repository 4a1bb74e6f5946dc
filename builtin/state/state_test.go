package state_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/state"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

func fresh(t *testing.T) tool.Runner {
	t.Helper()
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{Key: func() ([]byte, error) { return make([]byte, 32), nil }})
	kit.OK(t, err)
	t.Cleanup(func() {
		kit.Check(t, db.Close())
	})
	return state.New(db.Sessions())
}

var (
	local = tool.Principal{ID: "local", Door: "cli", Operates: true}
	ada   = tool.Principal{ID: "ada", Door: "http"}
	bob   = tool.Principal{ID: "bob", Door: "nats"}
)

// call returns the output of a call, or the code of its error.
func call(t *testing.T, r tool.Handler, by tool.Principal, name, args string) string {
	t.Helper()
	result, err := r.Invoke(t.Context(), &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: by, Session: "own"}, tool.Discard)
	if err != nil {
		return string(tool.CodeOf(err))
	}
	var out struct {
		Version json.Number     `json:"version"`
		State   json.RawMessage `json:"state"`
	}
	if err := json.Unmarshal(result.Output, &out); err != nil || !result.OK {
		t.Fatalf("%s: %+v", name, result)
	}
	return strings.TrimSpace(out.Version.String() + " " + string(out.State))
}

func TestASessionIsReadPatchedAndEmptied(t *testing.T) {
	r := fresh(t)
	for _, c := range []struct{ tool, args, want string }{
		{"state.get", `{"session":"s"}`, `0 {}`},
		{"state.reset", `{"session":"s"}`, `0`},
		{"state.patch", `{"session":"s","patch":{"a":{"b":1.50,"c":"x"}}}`, `1`},
		{"state.patch", `{"session":"s","patch":{"a":{"c":null}},"if_version":1}`, `2`},
		{"state.get", `{"session":"s"}`, `2 {"a":{"b":1.50}}`},
		{"state.patch", `{"session":"s","patch":{"a":1},"if_version":1}`, "conflict"},
		{"state.patch", `{"session":"s","patch":{"a":1},"if_version":0}`, "conflict"},
		{"state.get", `{"session":"s"}`, `2 {"a":{"b":1.50}}`},
		{"state.reset", `{"session":"s"}`, `3`},
		{"state.get", `{"session":"s"}`, `3 {}`},
		{"state.patch", `{"patch":{"mine":true}}`, `1`}, // the session of the call
		{"state.get", `{"session":"own"}`, `1 {"mine":true}`},
	} {
		kit.Equal(t, call(t, r, ada, c.tool, c.args), c.want, c.tool, c.args)
	}
}

func TestWatchReturnsTheNextVersionOrTimesOut(t *testing.T) {
	r := fresh(t)
	kit.Equal(t, call(t, r, ada, "state.watch", `{"session":"s","wait_ms":0}`), `0`, "nobody has changed it")
	done := make(chan string)
	go func() { done <- call(t, r, ada, "state.watch", `{"session":"s","after":0,"wait_ms":20000}`) }()
	kit.Equal(t, call(t, r, ada, "state.patch", `{"session":"s","patch":{"n":1}}`), `1`)
	kit.Equal(t, <-done, `1 {"n":1}`, "it has changed")
	call(t, r, ada, "state.patch", `{"session":"s","patch":{"n":2}}`)
	for args, want := range map[string]string{
		`{"session":"s","after":0}`: `1 {"n":1}`, `{"session":"s","after":1}`: `2 {"n":2}`, `{"session":"s","after":2,"wait_ms":1}`: `2`,
	} {
		kit.Equal(t, call(t, r, ada, "state.watch", args), want, args)
	}
	kit.Equal(t, call(t, r, bob, "state.watch", `{"session":"s","caller":"ada"}`), "access_denied", "another caller")
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, err := r.Invoke(ctx, &tool.Call{Tool: "state.watch", Caller: ada, Session: "s", Args: json.RawMessage(`{}`)}, tool.Discard)
	kit.Refused(t, err, tool.CodeCancelled, "", "who watches has gone")
}

func TestSessionsAreSeparatePerCallerExceptForOperators(t *testing.T) {
	r := fresh(t)
	for _, c := range []struct {
		by               tool.Principal
		tool, args, want string
	}{
		{ada, "state.patch", `{"session":"s","patch":{"who":"ada"}}`, `1`},
		{ada, "state.patch", `{"session":"s","caller":"ada","patch":{"n":2}}`, `2`},
		{bob, "state.get", `{"session":"s"}`, `0 {}`},
		{bob, "state.get", `{"session":"s","caller":"ada"}`, "access_denied"},
		{bob, "state.patch", `{"session":"s","caller":"ada","patch":{"who":"bob"}}`, "access_denied"},
		{bob, "state.reset", `{"session":"s","caller":"ada"}`, "access_denied"},
		{tool.Principal{ID: "local", Door: "http"}, "state.get", `{"session":"s","caller":"ada"}`, "access_denied"},
		{tool.Principal{ID: "local", Door: "nats"}, "state.reset", `{"session":"s","caller":"ada"}`, "access_denied"},
		{local, "state.get", `{"session":"s"}`, `0 {}`},
		{local, "state.get", `{"session":"s","caller":"ada"}`, `2 {"n":2,"who":"ada"}`},
		{local, "state.reset", `{"session":"s","caller":"ada"}`, `3`},
	} {
		kit.Equal(t, call(t, r, c.by, c.tool, c.args), c.want, c.by.ID, c.tool, c.args)
	}
}

func TestBadArgumentsChangeNothing(t *testing.T) {
	r := fresh(t)
	for _, args := range []string{
		`{}`, `{"patch":7}`, `{"patch":[]}`, `{"patch":null}`, `{"patch":{},"patch":{}}`, `{"patch":{},"if_version":-1}`, `{"patch":{},"if_version":"1"}`,
		`{"patch":{},"session":7}`, `{"patch":{},"sesion":"s"}`, `[]`, `{"patch":{}`, `{"patch":{},"session":"a\u0000b"}`,
	} {
		kit.Equal(t, call(t, r, ada, "state.patch", args), string(tool.CodeInvalidInput), args)
	}
	_, err := r.Invoke(t.Context(), &tool.Call{Tool: "state.get", Args: json.RawMessage(`{}`), Caller: ada}, tool.Discard)
	kit.Refused(t, err, tool.CodeInvalidInput, "needs a session", "no session")
	_, err = r.Invoke(t.Context(), &tool.Call{Tool: "state.patch", Caller: ada, Session: "own",
		Args: json.RawMessage(`{"patch":{"big":"` + strings.Repeat("x", store.MaxStateSize) + `"}}`)}, tool.Discard)
	kit.Refused(t, err, tool.CodeQuotaExceeded, `the state of session "own" was not changed`, "too much")
	kit.Equal(t, call(t, r, ada, "state.get", `{}`), `0 {}`, "something was changed")
	kit.Equal(t, call(t, r, ada, "state.steal", `{"session":"s"}`), string(tool.CodeNotFound))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	kit.Refused(t, kit.Err(r.Invoke(ctx, &tool.Call{Tool: "state.reset", Caller: ada, Session: "own"}, tool.Discard)),
		tool.CodeCancelled, "", "cancelled")
}
