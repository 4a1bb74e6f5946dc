package lease_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"toolpost/builtin/lease"
	"toolpost/store"
	"toolpost/tool"
)

var _ lease.Leases = (*store.Leases)(nil)

var (
	local  = tool.Principal{ID: "local", Door: "cli"}
	remote = tool.Principal{ID: "owner", Door: "http"}
)

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

func TestAnIssuedLeaseWorksForTheToolByItsPublishedNameAndTier(t *testing.T) {
	leases := &store.Leases{Dir: t.TempDir()}
	r := lease.New(lease.Options{Leases: leases, Resolve: resolve})
	out, err := call(t, r, local, "lease.issue", `{"tool":"file.delete","ttl_ms":5000}`)
	if err != nil || out["tool"] != "deleteFile" || out["tier"] != 3.0 {
		t.Fatalf("%v, %v", out, err)
	}
	if err := leases.Consume(t.Context(), out["token_id"].(string), "deleteFile", 3); err != nil {
		t.Error(err)
	}
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
	leases := &store.Leases{Dir: t.TempDir()}
	for _, c := range []struct {
		issuers []string
		caller  tool.Principal
		ok      bool
	}{
		{nil, local, true},
		{nil, tool.Principal{ID: "local", Door: "machina"}, true},
		{nil, tool.Principal{ID: "local", Door: "http"}, false},
		{nil, tool.Principal{ID: "local", Door: "nats"}, false},
		{nil, remote, false},
		{nil, tool.Principal{}, false},
		{[]string{"owner"}, remote, true},
		{[]string{"owner"}, local, false},
		{[]string{}, local, false},
	} {
		r := lease.New(lease.Options{Leases: leases, Resolve: resolve, Issuers: c.issuers})
		_, err := call(t, r, c.caller, "lease.issue", `{"tool":"deleteFile"}`)
		if (err == nil) != c.ok || err != nil && tool.CodeOf(err) != tool.CodeAccessDenied {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	r := lease.New(lease.Options{Leases: &store.Leases{Dir: t.TempDir()}, Resolve: resolve})
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
		if _, err := call(t, r, local, "lease.issue", args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := call(t, r, local, "lease.steal", `{}`); tool.CodeOf(err) != tool.CodeNotFound {
		t.Error(err)
	}
}
