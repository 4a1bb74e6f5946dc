package state_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/state"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

func fresh(t *testing.T) tool.Runner {
	t.Helper()
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{Key: func() ([]byte, error) { return make([]byte, 32), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
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
		if got := call(t, r, ada, c.tool, c.args); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.tool, c.args, got, c.want)
		}
	}
}

func TestWatchReturnsTheNextVersionOrTimesOut(t *testing.T) {
	r := fresh(t)
	if got := call(t, r, ada, "state.watch", `{"session":"s","wait_ms":0}`); got != `0` {
		t.Errorf("nobody has changed it: %s", got)
	}
	done := make(chan string)
	go func() { done <- call(t, r, ada, "state.watch", `{"session":"s","after":0,"wait_ms":20000}`) }()
	if got := call(t, r, ada, "state.patch", `{"session":"s","patch":{"n":1}}`); got != `1` {
		t.Error(got)
	}
	if got := <-done; got != `1 {"n":1}` {
		t.Errorf("it has changed: %s", got)
	}
	call(t, r, ada, "state.patch", `{"session":"s","patch":{"n":2}}`)
	for args, want := range map[string]string{
		`{"session":"s","after":0}`: `1 {"n":1}`, `{"session":"s","after":1}`: `2 {"n":2}`, `{"session":"s","after":2,"wait_ms":1}`: `2`,
	} {
		if got := call(t, r, ada, "state.watch", args); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	if got := call(t, r, bob, "state.watch", `{"session":"s","caller":"ada"}`); got != "access_denied" {
		t.Errorf("another caller: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, err := r.Invoke(ctx, &tool.Call{Tool: "state.watch", Caller: ada, Session: "s", Args: json.RawMessage(`{}`)}, tool.Discard)
	if tool.CodeOf(err) != tool.CodeCancelled {
		t.Errorf("who watches has gone: %v", err)
	}
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
		if got := call(t, r, c.by, c.tool, c.args); got != c.want {
			t.Errorf("%s: %s %s: %s, want %s", c.by.ID, c.tool, c.args, got, c.want)
		}
	}
}

func TestBadArgumentsChangeNothing(t *testing.T) {
	r := fresh(t)
	for _, args := range []string{
		`{}`, `{"patch":7}`, `{"patch":[]}`, `{"patch":null}`, `{"patch":{},"patch":{}}`, `{"patch":{},"if_version":-1}`, `{"patch":{},"if_version":"1"}`,
		`{"patch":{},"session":7}`, `{"patch":{},"sesion":"s"}`, `[]`, `{"patch":{}`, `{"patch":{},"session":"a\u0000b"}`,
	} {
		if got := call(t, r, ada, "state.patch", args); got != string(tool.CodeInvalidInput) {
			t.Errorf("%s: %s", args, got)
		}
	}
	_, err := r.Invoke(t.Context(), &tool.Call{Tool: "state.get", Args: json.RawMessage(`{}`), Caller: ada}, tool.Discard)
	if tool.CodeOf(err) != tool.CodeInvalidInput || !strings.Contains(err.Error(), "needs a session") {
		t.Errorf("no session: %v", err)
	}
	_, err = r.Invoke(t.Context(), &tool.Call{Tool: "state.patch", Caller: ada, Session: "own",
		Args: json.RawMessage(`{"patch":{"big":"` + strings.Repeat("x", store.MaxStateSize) + `"}}`)}, tool.Discard)
	if tool.CodeOf(err) != tool.CodeQuotaExceeded || !strings.Contains(err.Error(), `the state of session "own" was not changed`) {
		t.Errorf("too much: %v", err)
	}
	if got := call(t, r, ada, "state.get", `{}`); got != `0 {}` {
		t.Errorf("something was changed: %s", got)
	}
	if got := call(t, r, ada, "state.steal", `{"session":"s"}`); got != string(tool.CodeNotFound) {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Invoke(ctx, &tool.Call{Tool: "state.reset", Caller: ada, Session: "own"}, tool.Discard); tool.CodeOf(err) != tool.CodeCancelled {
		t.Errorf("cancelled: %v", err)
	}
}
