package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"toolpost/builtin/operate"
	"toolpost/engine/policy"
	"toolpost/engine/queue"
	"toolpost/engine/quota"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

var operator = tool.Principal{ID: "owner", Door: "http", Operates: true}

// A server notes its requests.
type server struct {
	asked []string
	who   tool.Principal
	about operate.ExplainArgs
	err   error
}

func (s *server) ShowConfig(context.Context) (operate.Config, error) {
	s.asked = append(s.asked, "showConfig")
	return operate.Config{
		Path: "toolpost.yaml", Text: "sources: 7\n",
		Errors:   []operate.Fault{{Message: "expected a list", Line: 1, Column: 10}},
		Problems: []operate.Fault{{About: "source gone", Message: "no such file"}, {About: "secret KEY", Message: "not set"}},
	}, s.err
}

func (s *server) ExplainPolicy(
	_ context.Context, p tool.Principal, a operate.ExplainArgs,
) (operate.Explanation, error) {
	s.asked, s.who, s.about = append(s.asked, "explainPolicy"), p, a
	x := policy.Explanation{Tool: a.Tool, Decision: policy.Decision{Allowed: true}, Rules: []policy.Finding{}}
	return operate.Explanation{Explanation: x, Unlisted: true}, s.err
}

func (s *server) ListCallers(context.Context) (operate.Callers, error) {
	s.asked = append(s.asked, "listCallers")
	return operate.Callers{Roles: []operate.Role{}, Callers: []operate.Caller{{
		Name: "ada", Kind: operate.KindListed, Roles: []string{"dev"}, Tools: tool.Patterns{"read*"}, By: []string{"a token"},
		Tokens: []identity.Token{},
	}}}, s.err
}

func (s *server) ShowUsage(context.Context) (operate.Usage, error) {
	s.asked = append(s.asked, "showUsage")
	return operate.Usage{Quotas: []quota.Usage{}, Queues: []queue.Crowd{}}, s.err
}

func TestOperatorsAreAnswered(t *testing.T) {
	s := &server{}
	set := operate.New(s)
	specs, err := set.Tools(t.Context())
	if err != nil || len(specs) != 4 {
		t.Fatal(specs, err)
	}
	summaries := map[string]string{"showConfig": "1 errors, 2 problems", "listCallers": "1 caller"}
	for _, spec := range specs {
		if !spec.Effects.ReadOnly() {
			t.Errorf("%s may change something: %+v", spec.Name, spec.Effects)
		}
		args := json.RawMessage(`{}`)
		if spec.Name == "explainPolicy" {
			args = json.RawMessage(`{"tool":"deleteFile","arguments":{"path":"a"},"caller":"ada","door":"nats","session":"s"}`)
		}
		r, err := set.Invoke(t.Context(), &tool.Call{Tool: spec.Name, Args: args, Caller: operator}, tool.Discard)
		if err != nil || !r.OK || r.Summary != summaries[spec.Name] {
			t.Errorf("%s: %+v, %v", spec.Name, r, err)
			continue
		}
		if err := fitting(spec.Output, r.Output); err != nil {
			t.Errorf("%s: %v: %s", spec.Name, err, r.Output)
		}
	}
	kit.EqualSlices(t, s.asked, []string{"explainPolicy", "listCallers", "showConfig", "showUsage"}, "asked were")
	want := operate.ExplainArgs{Tool: "deleteFile", Caller: "ada", Door: "nats", Session: "s"}
	args := string(s.about.Args)
	if s.about.Args = nil; s.who.ID != operator.ID || args != `{"path":"a"}` || s.about.Tool != want.Tool ||
		s.about.Caller != want.Caller || s.about.Door != want.Door || s.about.Session != want.Session {
		t.Errorf("%s asked about %+v with %s", s.who.ID, s.about, args)
	}
}

// Other callers learn nothing, and the server is not even asked.
func TestOtherCallersAreRefused(t *testing.T) {
	s := &server{}
	set := operate.New(s)
	specs, _ := set.Tools(t.Context())
	for _, spec := range specs {
		call := tool.Call{Tool: spec.Name, Args: json.RawMessage(`{}`), Caller: tool.Principal{ID: "ada", Door: "http"}}
		r, err := set.Invoke(t.Context(), &call, tool.Discard)
		if tool.CodeOf(err) != tool.CodeAccessDenied || r != nil {
			t.Errorf("%s: %+v, %v", spec.Name, r, err)
		}
	}
	if len(s.asked) > 0 {
		t.Errorf("asked were %v", s.asked)
	}
}

func TestOnlyOperatorsAddASource(t *testing.T) {
	var added []string
	set := operate.Adding(func(_ context.Context, a operate.AddArgs) (operate.Added, error) {
		added = append(added, a.API)
		return operate.Added{Name: "api", Config: "toolpost.yaml", Text: "  - name: api"}, nil
	})
	call := tool.Call{Tool: "addSource", Args: json.RawMessage(`{"document":"api.yaml"}`), Caller: tool.Principal{ID: "ada", Door: "http"}}
	kit.Equal(t, tool.CodeOf(kit.Err(set.Invoke(t.Context(), &call, tool.Discard))), tool.CodeAccessDenied)
	kit.EqualSlices(t, added, nil)
	call.Caller = operator
	kit.Must(set.Invoke(t.Context(), &call, tool.Discard))(t)
	kit.EqualSlices(t, added, []string{"api.yaml"})
	if specs := kit.Must(operate.Adding(nil).Tools(t.Context()))(t); len(specs) > 0 {
		t.Errorf("without a config to change there is %s", specs[0].Name)
	}
}

func TestServerErrorIsPassedOn(t *testing.T) {
	set := operate.New(&server{err: tool.Errorf(tool.CodeUnavailable, "the store is away")})
	specs, _ := set.Tools(t.Context())
	for _, spec := range specs {
		args := json.RawMessage(`{}`)
		if spec.Name == "explainPolicy" {
			args = json.RawMessage(`{"tool":"read"}`)
		}
		r, err := set.Invoke(t.Context(), &tool.Call{Tool: spec.Name, Args: args, Caller: operator}, tool.Discard)
		if tool.CodeOf(err) != tool.CodeUnavailable || r != nil {
			t.Errorf("%s: %+v, %v", spec.Name, r, err)
		}
	}
}

// fitting validates an output against a schema.
func fitting(of, output json.RawMessage) error {
	s, err := schema.Compile(of)
	if err != nil {
		return err
	}
	v, err := strictjson.Decode(output)
	if faults := s.Validate(v); err == nil && faults != nil {
		err = errors.New(schema.Words(faults))
	}
	return err
}
