package lease_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/lease"
	terms "toolpost/engine/lease"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

var _ lease.Leases = (*store.Leases)(nil)

var (
	local  = tool.Principal{ID: "local", Door: "cli", Operates: true}
	remote = tool.Principal{ID: "owner", Door: "http"}
	ada    = tool.Principal{ID: "ada", Door: "http", Rights: &tool.Rights{Roles: []string{"issuer"}}}
)

// table keeps leases in a database.
func table(t *testing.T) *store.LeaseTable {
	t.Helper()
	db, err := sqlite.Open(filepath.Join(t.TempDir(), "store.db"), store.Options{Key: func() ([]byte, error) { return make([]byte, 32), nil }})
	kit.OK(t, err)
	t.Cleanup(func() {
		kit.Check(t, db.Close())
	})
	return db.Leases()
}

func resolve(_ context.Context, _ tool.Principal, name string) (string, int, error) {
	switch name {
	case "deleteFile", "file.delete":
		return "deleteFile", 3, nil
	}
	return "", 0, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
}

func call(t *testing.T, r tool.Handler, caller tool.Principal, name, args string) (map[string]any, error) {
	t.Helper()
	result, err := r.Invoke(t.Context(), &tool.Call{Tool: name, Args: json.RawMessage(args), Caller: caller}, tool.Discard)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(result.Output, &out); err != nil || !result.OK {
		t.Fatalf("%s: %+v", name, result)
	}
	return out, nil
}

func TestLeaseIsIssuedForPublishedNameAndTier(t *testing.T) {
	leases := &store.Leases{}
	r := lease.New(lease.Options{Leases: leases, Resolve: resolve})
	out, err := call(t, r, local, "lease.issue", `{"tool":"file.delete","ttl_ms":5000}`)
	if err != nil || out["tool"] != "deleteFile" || out["tier"] != 3.0 {
		t.Fatalf("%v, %v", out, err)
	}
	kit.Check(t, leases.Consume(t.Context(), out["token"].(string), "whoever", "deleteFile", 3))
	if out, err = call(t, r, local, "lease.issue", `{"tool":"*","tier":2}`); err != nil || out["tier"] != 2.0 {
		t.Errorf("%v, %v", out, err)
	}
	if out, err = call(t, r, local, "lease.issue", `{"tool":"*"}`); err != nil || out["tier"] != 1.0 {
		t.Errorf("any tool without a tier: %v, %v", out, err)
	}
	out, err = call(t, r, local, "lease.gc", `{}`)
	if err != nil || out["active"] != 2.0 || out["issued"] != 3.0 || out["consumed"] != 1.0 || out["rejected"] != 0.0 {
		t.Errorf("%v, %v", out, err)
	}
}

func TestIssuingNeedsTheRightToIssue(t *testing.T) {
	leases := table(t)
	for _, c := range []struct {
		caller tool.Principal
		ok     bool
	}{
		{local, true},
		{tool.Principal{ID: "local", Door: "machina", Operates: true}, true},
		{tool.Principal{ID: "owner", Door: "http", Operates: true}, true},
		{tool.Principal{ID: "local", Door: "cli"}, false}, // neither an id nor a door is trusted
		{tool.Principal{ID: "local", Door: "unheard-of"}, false},
		{tool.Principal{ID: "local", Door: "http"}, false},
		{tool.Principal{ID: "local", Door: "nats"}, false},
		{remote, false},
		{tool.Principal{}, false},
		{tool.Principal{ID: "issuer", Door: "http", Rights: &tool.Rights{Roles: []string{"reader"}}}, false},
		{ada, true},
	} {
		r := lease.New(lease.Options{Leases: leases, Resolve: resolve})
		for name, args := range map[string]string{"lease.issue": `{"tool":"deleteFile"}`, "lease.revoke": `{"id":"nosuch"}`} {
			_, err := call(t, r, c.caller, name, args)
			kit.Equal(t, (tool.CodeOf(err) != tool.CodeAccessDenied), c.ok, name, c.caller, err)
		}
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	r := lease.New(lease.Options{Leases: &store.Leases{}, Resolve: resolve})
	for args, want := range map[string]string{
		`{"tool":"nope"}`:                                        "no tool named",
		`{"tool":"*","tier":9}`:                                  "tier",
		`{"tool":"*","ttl_ms":1}`:                                "lasts",
		`{"tool":"*","ttl_ms":9223372036854775807}`:              "lasts",
		`{"tool":"*","ttl_ms":-9223372036854775807}`:             "lasts",
		`{"tool":"*","tool":"*"}`:                                "duplicate",
		`{"tool":7}`:                                             "arguments",
		`{"tool":"*","for":"ever"}`:                              "for",
		`{"tool":"` + strings.Repeat("x", 100) + `","tier":1.5}`: "arguments",
	} {
		kit.Fails(t, kit.Err(call(t, r, local, "lease.issue", args)), want, args)
	}
	for _, name := range []string{"lease.steal", "lease.revoke"} { // a store without a Registry cannot revoke
		kit.Refused(t, kit.Err(call(t, r, local, name, `{}`)), tool.CodeNotFound, "")
	}
}

func TestNetworkLeaseIsBoundToItsCaller(t *testing.T) {
	leases := table(t)
	r := lease.New(lease.Options{Leases: leases, Resolve: resolve})
	for _, c := range []struct {
		by   tool.Principal
		args string
		want string // whose lease it is
	}{
		{local, `{"tool":"deleteFile"}`, ""},
		{local, `{"tool":"deleteFile","caller":"bob"}`, "bob"},
		{ada, `{"tool":"deleteFile"}`, "ada"},
		{ada, `{"tool":"deleteFile","caller":"bob"}`, "bob"},
		{ada, `{"tool":"deleteFile","caller":""}`, ""},
	} {
		out := kit.Must(call(t, r, c.by, "lease.issue", c.args))(t)
		token := out["token"].(string)
		kit.Equal(t, kit.Must(leases.Find(t.Context(), token))(t).Caller, c.want, c.args, c.by.ID)
		if c.want != "" {
			err := leases.Consume(t.Context(), token, "eve", "deleteFile", 3)
			if e := tool.AsError(err); err == nil || e.Reason != "not_found" {
				t.Errorf("another caller: %v", err)
			}
		}
		kit.Check(t, leases.Consume(t.Context(), token, c.want, "deleteFile", 3), "%s by %s", c.args, c.by.ID)
	}
}

func TestALeaseIsRevokedByItsIssuerAndByTheOperator(t *testing.T) {
	leases := table(t)
	r := lease.New(lease.Options{Leases: leases, Resolve: resolve})
	issue := func(caller string) string {
		return kit.Must(leases.Issue(t.Context(), caller, "deleteFile", 3, 0))(t)
	}
	bobs, adas, anybodys := issue("bob"), issue("ada"), issue("")
	for _, token := range []string{bobs, anybodys} {
		kit.Refused(t, kit.Err(call(t, r, ada, "lease.revoke", `{"token":"`+token+`"}`)),
			tool.CodeNotFound, "", "somebody else's")
	}
	if out, err := call(t, r, ada, "lease.revoke", `{"id":"`+terms.ID(adas)+`"}`); err != nil || out["state"] != "revoked" || out["caller"] != "ada" {
		t.Error(out, err)
	}
	kit.Refused(t, kit.Err(call(t, r, ada, "lease.list", `{}`)),
		tool.CodeAccessDenied, "", "the leases of all, for an issuer")
	kit.Equal(t, len(kit.Must(call(t, r, local, "lease.list", `{"limit":2}`))(t)["leases"].([]any)), 2)
	kit.Refused(t, kit.Err(call(t, r, ada, "lease.revoke", `{"id":"`+terms.ID(adas)+`"}`)),
		tool.CodeConflict, "", "again")
	for _, token := range []string{bobs, anybodys} {
		kit.Check(t, kit.Err(call(t, r, local, "lease.revoke", `{"id":"`+terms.ID(token)+`"}`)), "the operator")
	}
	for _, args := range []string{`{}`, `{"id":"x","token":"y"}`, `{"id":7}`, `{"lease":"x"}`} {
		kit.Refused(t, kit.Err(call(t, r, local, "lease.revoke", args)), tool.CodeInvalidInput, "", args)
	}
}

func TestLeaseIssueRefusesKeysAndPlans(t *testing.T) {
	r := lease.New(lease.Options{Leases: &store.Leases{}, Resolve: resolve})
	for want, c := range map[string]tool.Call{"idempotency key": {Key: "k"}, "plan": {Parent: "p"}} {
		c.Tool, c.Args, c.Caller = "lease.issue", json.RawMessage(`{"tool":"*"}`), local
		_, err := r.Invoke(t.Context(), &c, tool.Discard)
		kit.Refused(t, err, tool.CodeInvalidInput, want, want)
	}
}
