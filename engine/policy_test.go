package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/audit"
	"toolpost/engine/policy"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func rules(t testing.TB, text string) *policy.Policy {
	t.Helper()
	var o policy.Options
	kit.OK(t, config.DecodeYAML("policy.yaml", []byte(text), &o))
	return kit.Must(policy.New(o, policy.Env{Dir: "/w"}))(t)
}

func under(p *policy.Policy) engine.Options {
	return engine.Options{Policy: func() *policy.Policy { return p }}
}

// A touching source reads the file that its argument path names.
type touching struct {
	*fake
	asked []tool.Call
}

func (s *touching) Touches(c *tool.Call) (tool.Touches, error) {
	s.asked = append(s.asked, *c)
	var args struct{ Path string }
	if err := strictjson.Unmarshal(c.Args, &args); err != nil {
		return tool.Touches{}, err
	}
	return tool.Touches{Reads: []string{"/w/" + args.Path}}, nil
}

func by(id string, c tool.Call) *tool.Call {
	c.Caller = tool.Principal{ID: id, Door: "http"}
	return &c
}

// records is an audit log that keeps its last record.
type records struct{ last tool.Record }

func (l *records) Begin(context.Context, *tool.Record) error              { return nil }
func (l *records) Append(_ context.Context, r *tool.Record, _ bool) error { l.last = *r; return nil }
func (l *records) Later(r *tool.Record, _ func(*tool.Record, error))      { l.last = *r }

func TestDeniedToolIsHidden(t *testing.T) {
	src := source(echo, "open", "closed")
	src.specs[1].Aliases = []string{"shut"}
	o, log := under(rules(t, "rules: [{name: d, effect: deny, callers: [guest, boss], tools: closed}]")), &records{}
	o.Audit = audit.New(audit.Options{Log: log})
	e := start(t, o, bind("one", src))
	unknown := "no tool named \"NAME\""
	for _, name := range []string{"closed", "one.closed", "shut", "nosuch"} {
		_, called := e.Invoke(t.Context(), by("guest", tool.Call{Tool: name}), tool.Discard)
		_, looked := e.Lookup(t.Context(), tool.Principal{ID: "guest"}, name)
		for _, err := range []error{called, looked} {
			if tool.CodeOf(err) != tool.CodeNotFound || strings.ReplaceAll(tool.AsError(err).Message, name, "NAME") != unknown {
				t.Errorf("%s: %v", name, err)
			}
		}
		want := tool.Record{Asked: name, Outcome: tool.OutcomeError, Code: tool.CodeNotFound}
		if told := log.last.AsTold(); told.Asked != name || told.Tool+told.Rule+told.Decision+told.Source != "" || told.Outcome != want.Outcome {
			t.Errorf("%s: guest would be shown %+v", name, told)
		}
		if name != "nosuch" {
			want = tool.Record{Tool: "closed", Source: "one", Decision: "deny", Rule: "d", Outcome: tool.OutcomeRefused, Code: tool.CodeNotFound}
			if want.Asked = name; name == "closed" {
				want.Asked = ""
			}
		}
		if got := log.last; got.Tool != want.Tool || got.Source != want.Source || got.Asked != want.Asked || got.Decision != want.Decision ||
			got.Rule != want.Rule || got.Outcome != want.Outcome || got.Code != want.Code || got.DryRun {
			t.Errorf("%s is recorded as %+v", name, got)
		}
	}
	boss := by("boss", tool.Call{Tool: "shut"})
	boss.Caller.Operates = true
	kit.Refused(t, kit.Err(e.Invoke(t.Context(), boss, tool.Discard)), tool.CodeAccessDenied, `rule "d" denies it`, "an operator is told")
	for who, want := range map[string]string{"guest": "open", "owner": "closed open"} {
		var names []string
		for s := range e.Specs(t.Context(), tool.Principal{ID: who}) {
			names = append(names, s.Name)
		}
		kit.Equal(t, strings.Join(names, " "), want, "%s sees", who)
	}
	kit.Check(t, kit.Err(e.Invoke(t.Context(), by("owner", tool.Call{Tool: "shut"}), tool.Discard)))
}

// Nor does the reason why it is unavailable reveal it.
func TestDeniedBrokenToolIsHidden(t *testing.T) {
	src := source(echo, "closed")
	src.broken = map[string]error{"closed": errors.New("its secret path is gone")}
	e := start(t, under(rules(t, "rules: [{name: d, effect: deny, tools: closed}]")),
		bind("one", src), engine.Binding{Name: "dead", Protocol: "p", Err: errors.New("dead")})
	kit.Refused(t, kit.Err(e.Invoke(t.Context(), by("x", tool.Call{Tool: "closed"}), tool.Discard)), tool.CodeNotFound, "")
	said := func(name string) string {
		_, err := e.Invoke(t.Context(), by("x", tool.Call{Tool: name}), tool.Discard)
		return strings.ReplaceAll(tool.AsError(err).Message, name, "NAME")
	}
	kit.Equal(t, said("closed"), said("nosuch"), "a hidden tool and one that may be of a dead source")
	for s := range e.Specs(t.Context(), tool.Principal{ID: "x"}) {
		kit.Equal(t, s.Source, "dead", s)
	}
}

func TestRunnerJudgesTheCallUnderItsOwnName(t *testing.T) {
	var got []tool.Call
	src := &touching{fake: source(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		got = append(got, *c)
		return echo(ctx, c, out)
	}, "read")}
	src.specs[0].Aliases = []string{"file.read"}
	e := start(t, under(rules(t, "rules: [{name: d, effect: deny, paths: secret}]")), bind("zero", source(echo, "read")), bind("one", src))
	const args = `{ "Path" : "a\u002fb" }`
	kit.Must(e.Invoke(t.Context(), by("x", tool.Call{Tool: "one.read", Args: json.RawMessage(args)}), tool.Discard))(t)
	for _, c := range []tool.Call{src.asked[0], got[0]} {
		if c.Tool != "read" || c.Spec.Name != "read" || string(c.Args) != args || c.Caller.ID != "x" {
			t.Errorf("%+v", c)
		}
	}
	if got[0].Scope == nil || got[0].Scope.Path("/w/secret/x", false) == nil {
		t.Error("the runner has no scope")
	}
	_, err := e.Invoke(t.Context(), by("x", tool.Call{Tool: "one.read", Args: json.RawMessage(`{"Path":"secret/x"}`)}), tool.Discard)
	if tool.CodeOf(err) != tool.CodeAccessDenied || !strings.HasPrefix(tool.AsError(err).Message, "secret/x is not allowed") || len(got) != 1 {
		t.Error(err, len(got))
	}
}

func TestADryRunReachesNothingBehindThePolicy(t *testing.T) {
	for name, p := range map[string]*policy.Policy{"no policy": nil, "empty": rules(t, ""), "allows": rules(t, "rules: [{name: d, effect: deny, paths: x}]"), "denies": rules(t, "rules: [{name: d, effect: deny, when: 'true'}]")} {
		t.Run(name, func(t *testing.T) {
			o := under(p)
			o.Stages = map[string]engine.Stage{}
			for _, stage := range []string{"idempotency", "quota", "lease", "cache", "session"} {
				o.Stages[stage] = before(func(*tool.Call) { t.Errorf("%s was reached", stage) })
			}
			src := &touching{fake: source(echo, "read")}
			src.specs[0].Output = json.RawMessage(`{"type":"string"}`) // a decision is not a string
			e := start(t, o, bind("one", src))
			r, err := e.Invoke(t.Context(), by("x", tool.Call{Tool: "read", Args: json.RawMessage(`{"Path":"a"}`), Key: "k", DryRun: true}), tool.Discard)
			if err != nil || !r.OK || !strings.HasPrefix(string(r.Output), `{"dry_run":true,`) || !strings.Contains(string(r.Output), `"reads":["/w/a"]`) {
				t.Errorf("%v, %v", r, err)
			}
			kit.Equal(t, strings.Contains(string(r.Output), `"allowed":true`), name != "denies", r.Output)
		})
	}
}

func TestArgumentsAreCheckedBeforePolicySeesThem(t *testing.T) {
	src := &touching{fake: source(echo, "read")}
	src.specs[0].Input = json.RawMessage(`{"type":"object","required":["Path"]}`)
	e := start(t, under(rules(t, "rules: [{name: d, effect: deny, paths: x}]")), bind("one", src))
	for _, args := range []string{`{}`, `{"Path":1,"Path":2}`, `[`, `"x"`} {
		kit.Refused(t, kit.Err(e.Invoke(t.Context(), by("x", tool.Call{Tool: "read", Args: json.RawMessage(args)}), tool.Discard)), tool.CodeInvalidInput, "", args)
	}
	kit.Equal(t, len(src.asked), 0, "seen by policy")
}

func TestExplainFindsToolsThatTheCallerMayNotSee(t *testing.T) {
	e := start(t, under(rules(t, "rules: [{name: d, effect: deny, tools: closed}]")), bind("one", source(echo, "closed")))
	x, err := e.Explain(by("x", tool.Call{Tool: "closed", Args: json.RawMessage(`{}`)}), time.Now())
	if err != nil || x.Allowed || x.Visible || x.Rule != "d" {
		t.Errorf("%+v, %v", x, err)
	}
	kit.Refused(t, kit.Err(e.Explain(by("x", tool.Call{Tool: "nosuch"}), time.Now())), tool.CodeNotFound, "")
	kit.Refused(t, kit.Err(e.Explain(by("x", tool.Call{Tool: "closed", Args: json.RawMessage(`[]`)}), time.Now())), tool.CodeInvalidInput, "")
}

// Tools and policy change together: no call sees the tools of one config under the policy of another.
func TestToolsAndPolicyChangeTogether(t *testing.T) {
	// The first set has a tool that may not be called, the second one a harmless tool of the same name.
	strict, open := rules(t, "rules: [{name: d, effect: deny, when: 'true'}]"), rules(t, "")
	var current atomic.Pointer[policy.Policy]
	current.Store(strict)
	danger := source(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		t.Error("the dangerous tool ran")
		return &tool.Result{OK: true}, nil
	}, "x")
	harmless := source(echo, "x")
	e := engine.New(engine.Options{Policy: current.Load})
	e.Replace(t.Context(), []engine.Binding{bind("danger", danger)})
	defer e.Close(context.Background())
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = e.Invoke(context.Background(), by("x", tool.Call{Tool: "x"}), tool.Discard)
				}
			}
		})
	}
	for range 200 {
		current.Store(open)
		e.Replace(t.Context(), []engine.Binding{bind("harmless", harmless)})
		harmless = source(echo, "x")
		danger = source(danger.run, "x")
		current.Store(strict)
		e.Replace(t.Context(), []engine.Binding{bind("danger", danger)})
	}
	close(stop)
	callers.Wait()
}

// Walls that a caller requests or that a rule adds reach the runner, whatever name the tool was called by.
func TestWallsOfACallReachTheRunner(t *testing.T) {
	var got tool.Guarantees
	see := func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		got = c.Tightened(tool.Guarantees{})
		return &tool.Result{OK: true}, nil
	}
	one, two := source(see, "run"), source(see, "run")
	one.specs[0].Guarantees.NoEnvRead = true
	p := rules(t, "rules: [{name: walls, effect: confine, callers: guest, guarantees: {no_network: true}}]")
	e := start(t, under(p), bind("one", one), bind("two", two))
	asks := tool.Guarantees{NoSubprocess: true, Sandbox: true}
	for _, c := range []struct {
		who, tool string
		asks      tool.Guarantees
		want      string
	}{
		{"owner", "run", tool.Guarantees{}, "no_env_read"},
		{"owner", "run", asks, "no_subprocess no_env_read sandbox"},
		{"guest", "run", tool.Guarantees{}, "no_network no_env_read"},
		{"guest", "one.run", asks, "no_network no_subprocess no_env_read sandbox"},
		{"guest", "two.run", tool.Guarantees{}, "no_network"},
		{"guest", "two.run", asks, "no_network no_subprocess sandbox"},
	} {
		call := by(c.who, tool.Call{Tool: c.tool, Guarantees: c.asks})
		kit.Check(t, kit.Err(e.Invoke(t.Context(), call, tool.Discard)), "%+v", c)
		if held := strings.Join(got.Asked(), " "); held != c.want {
			t.Errorf("%s calls %s and asks for %v: the runner holds %s, want %s", c.who, c.tool, c.asks.Asked(), held, c.want)
		}
	}
}
