package policy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolpost/config"
	"toolpost/engine/policy"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A toucher takes what a call touches from its arguments: reads, writes and commands.
type toucher struct{}

func (toucher) Touches(c *tool.Call) (tool.Touches, error) {
	var t tool.Touches
	if err := strictjson.Unmarshal(c.Args, &t); err != nil {
		return t, tool.Errorf(tool.CodeInvalidInput, "%w", err)
	}
	for _, list := range [][]string{t.Reads, t.Writes} {
		for i, p := range list {
			if !filepath.IsAbs(p) {
				list[i] = filepath.Join("/w", p)
			}
		}
	}
	return t, nil
}

func options(t testing.TB, text string) policy.Options {
	t.Helper()
	var o policy.Options
	kit.OK(t, config.DecodeYAML("policy.yaml", []byte(text), &o), text)
	return o
}

// sunday is the time of the tests: noon of a Sunday.
func sunday() time.Time { return time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC) }

func env() policy.Env { return policy.Env{Dir: "/w", Now: sunday} }

func made(t testing.TB, text string) *policy.Policy {
	t.Helper()
	return kit.Must(policy.New(options(t, text), env()))(t)
}

func writeSpec() *tool.Spec {
	return &tool.Spec{Name: "writeFile", Source: "files", Aliases: []string{"file.write"}, Tier: 1, Effects: tool.Effects{Writes: true}}
}

// A ran is a handler that keeps its calls.
type ran struct{ calls []*tool.Call }

func (r *ran) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	r.calls = append(r.calls, c)
	return &tool.Result{OK: true}, nil
}

func call(args string) *tool.Call {
	return &tool.Call{Tool: "writeFile", Args: json.RawMessage(args), Caller: tool.Principal{ID: "ci-1", Door: "http"}}
}

// judge runs a call through the stage, and returns the refusal, or nil.
func judge(t testing.TB, p *policy.Policy, s *tool.Spec, c *tool.Call) *tool.Error {
	t.Helper()
	var inner ran
	r, err := p.For(s, toucher{}).Stage(&inner).Invoke(t.Context(), c, tool.Discard)
	if (err == nil) != (len(inner.calls) == 1) || (err == nil) != (r != nil) {
		t.Fatalf("%d calls came through, with the error %v", len(inner.calls), err)
	}
	return tool.AsError(err)
}

func TestRulesAndCalls(t *testing.T) {
	const strict = "default: deny\nrules:\n- {name: a, effect: allow, "
	const open = "rules:\n- {name: d, effect: deny, "
	for _, c := range []struct {
		name, rules, args string
		refused           string // a part of the message; empty means allowed
	}{
		{"no rules", "", `{}`, ""},
		{"deny by default", "default: deny", `{}`, "no rule of the policy allows it"},
		{"any", strict + "}", `{"writes":["a"],"commands":[["rm"]]}`, ""},

		{"caller allowed", strict + "callers: ci-*}", `{}`, ""},
		{"caller not allowed", strict + "callers: [owner, nobody]}", `{}`, "no rule"},
		{"caller denied", open + "callers: ci-1, reason: not you}", `{}`, `writeFile is not allowed: not you (rule "d")`},
		{"other caller denied", open + "callers: [owner]}", `{}`, ""},
		{"door denied", open + "doors: [http, nats]}", `{}`, `rule "d" denies it`},
		{"other door denied", open + "doors: [nats]}", `{}`, ""},
		{"tool denied by its name", open + "tools: write*}", `{}`, "rule"},
		{"tool denied by its alias", open + "tools: file.write}", `{}`, "rule"},
		{"tool denied by its source", open + "tools: files.writeFile}", `{}`, "rule"},
		{"tool not allowed by its alias", strict + "tools: file.write}", `{}`, "no rule"},
		{"tool allowed by its source", strict + "tools: files.*}", `{}`, ""},
		{"source denied", open + "sources: [files]}", `{}`, "rule"},
		{"other source denied", open + "sources: [else]}", `{}`, ""},
		{"tier denied", open + "tiers: '>= 1'}", `{}`, "rule"},
		{"higher tier denied", open + "tiers: '> 1'}", `{}`, ""},
		{"tiers listed", open + "tiers: [0, 1]}", `{}`, "rule"},
		{"tier as a number", open + "tiers: 1}", `{}`, "rule"},
		{"tier below", open + "tiers: '<1'}", `{}`, ""},

		{"path denied", open + "paths: secret/**}", `{"reads":["secret/x"]}`, `secret/x is not allowed: rule "d" denies it`},
		{"path denied below a folder", open + "paths: secret}", `{"reads":["a/secret/x/y"]}`, "a/secret/x/y is not allowed"},
		{"one of several paths denied", open + "paths: secret/**}", `{"reads":["a","b"],"writes":["c","secret/x"]}`, "secret/x"},
		{"other path", open + "paths: secret/**}", `{"reads":["open/x"]}`, ""},
		{"write denied, read", open + "paths: src/**, access: write}", `{"reads":["src/x"]}`, ""},
		{"write denied, written", open + "paths: src/**, access: write}", `{"writes":["src/x"]}`, "src/x"},
		{"every write denied", open + "access: write}", `{"writes":["anything"]}`, "anything"},
		{"every write denied, read", open + "access: write}", `{"reads":["anything"]}`, ""},
		{"path allowed", strict + "paths: src/**}", `{"reads":["src/x"]}`, ""},
		{"path not allowed", strict + "paths: src/**}", `{"reads":["src/x","other"]}`, "other is not allowed"},
		{"reading allowed, written", strict + "paths: src/**, access: read}", `{"writes":["src/x"]}`, "src/x"},
		{"a rule about files does not allow a call without any", strict + "paths: '**'}", `{}`, "no rule"},
		{"two rules for two paths", strict + "paths: a/**}\n- {name: b, effect: allow, paths: b/**}", `{"reads":["a/x","b/x"]}`, ""},
		{"what is allowed is denied elsewhere", strict + "paths: a/**}\n- {name: d, effect: deny, paths: '*.key'}", `{"reads":["a/x.key"]}`, `rule "d"`},
		{"the path is named as it was written", open + "paths: secret/**}", `{"writes":["./x/../secret//y"]}`, "./x/../secret//y is not allowed"},
		{"absolute", open + "paths: /etc/**}", `{"reads":["/etc/passwd"]}`, "/etc/passwd is not allowed"},

		{"command denied", open + "commands: rm}", `{"commands":[["rm","-rf","x"]]}`, "Command 'rm' is not allowed by security policy: rule"},
		{"command denied by its path", open + "commands: rm}", `{"commands":[["/bin/rm"]]}`, "Command 'rm'"},
		{"one of several commands denied", open + "commands: git push}", `{"commands":[["ls"],["git","push","-f"]]}`, "Command 'git'"},
		{"other command", open + "commands: git push}", `{"commands":[["git","status"]]}`, ""},
		{"command allowed", strict + "commands: git status}", `{"commands":[["git","status"]],"reads":["."]}`, ""},
		{"command not allowed", strict + "commands: git status}", `{"commands":[["git","status","-x"]]}`, "Command 'git'"},
		{"a rule about commands does not allow a call without any", strict + "commands: '**'}", `{}`, "no rule"},
		{"two rules for two commands", strict + "commands: ls}\n- {name: b, effect: allow, commands: git **}", `{"commands":[["ls"],["git","log"]]}`, ""},
		{"command and path of one rule", strict + "commands: ls, paths: a/**}", `{"commands":[["ls"]],"reads":["a/x"]}`, ""},
		{"command of one rule, path of another", strict + "commands: ls, paths: a/**}\n- {name: b, effect: allow, commands: cat, paths: b/**}", `{"commands":[["cat"]],"reads":["a/x"]}`, "a/x"},
		{"two rules do not add up", strict + "commands: ls}\n- {name: b, effect: allow, paths: a/**, commands: nothing}", `{"commands":[["rm"]],"reads":["a/x"]}`, "Command 'rm'"},
		{"denied command at a denied path", open + "commands: ls, paths: a/**}", `{"commands":[["ls"]],"reads":["a/x"]}`, "a/x is not allowed"},
		{"denied command at another path", open + "commands: ls, paths: a/**}", `{"commands":[["ls"]],"reads":["b/x"]}`, ""},

		{"time", open + "time: {days: [sat, sunday]}}", `{}`, "rule"},
		{"other time", open + "time: {from: '08:00', to: '12:00'}}", `{}`, ""},
		{"condition", open + "when: 'size(writes) > 1'}", `{"writes":["a","b"]}`, "rule"},
		{"condition does not hold", open + "when: 'size(writes) > 1'}", `{"writes":["a"]}`, ""},
		{"condition that cannot be decided", open + "when: 'args.mode == 1'}", `{}`, `the condition of rule "d" cannot be decided: there is no field "mode"`},
		{"condition of an allow that cannot be decided", strict + "when: 'args.mode == 1'}\n- {name: b, effect: allow}", `{}`, `the condition of rule "a" cannot be decided`},
		{"condition allows", strict + "when: 'has(args.x)'}", `{"x":1}`, ""},
		{"all fields together", open + "callers: ci-*, doors: http, tools: writeFile, tiers: 1, paths: a, access: write, when: 'caller == \"ci-1\"'}", `{"writes":["a"]}`, "a is not allowed"},
		{"all fields but one", open + "callers: ci-*, doors: http, tools: writeFile, tiers: 1, paths: a, access: write, when: 'caller == \"ci-2\"'}", `{"writes":["a"]}`, ""},

		{"arguments within the limit", "limits: {arguments: 10}", `{"x":12345}`[:10] + "}", ""},
		{"arguments above the limit", "limits: {arguments: 10}", `{"x":1234567}`, "its arguments are 13 bytes long, and 10 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if c.name == "arguments within the limit" {
				args = `{"x":1234}`
			}
			err := judge(t, made(t, c.rules), writeSpec(), call(args))
			switch {
			case err == nil && c.refused != "":
				t.Error("it was allowed")
			case err != nil && (c.refused == "" || !strings.Contains(err.Message, c.refused) || err.Code != tool.CodeAccessDenied):
				t.Errorf("%s: %s", err.Code, err.Message)
			}
		})
	}
}

func TestWindows(t *testing.T) {
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 11, day, hour, minute, 0, 0, time.UTC) } // the 15th is a Sunday
	for _, c := range []struct {
		window string
		at     time.Time
		want   bool
	}{
		{"{days: [mon, tue, wed, thu, fri], from: '08:00', to: '18:00'}", at(16, 8, 0), true},
		{"{days: [mon, tue, wed, thu, fri], from: '08:00', to: '18:00'}", at(16, 18, 0), false},
		{"{days: [mon, tue, wed, thu, fri], from: '08:00', to: '18:00'}", at(15, 9, 0), false},
		{"{from: '22:00', to: '06:00'}", at(15, 23, 0), true}, {"{from: '22:00', to: '06:00'}", at(15, 5, 59), true}, {"{from: '22:00', to: '06:00'}", at(15, 6, 0), false},
		{"{days: [sun], from: '22:00', to: '06:00'}", at(16, 5, 0), true}, {"{days: [sun], from: '22:00', to: '06:00'}", at(15, 5, 0), false},
		{"{from: '18:00'}", at(15, 23, 59), true}, {"{from: '18:00'}", at(15, 17, 59), false}, {"{to: '06:00'}", at(15, 0, 0), true}, {"{from: '18:00', to: '24:00'}", at(15, 23, 59), true},
		{"{days: [mon], zone: Asia/Tokyo}", at(15, 15, 0), true}, {"{days: [mon], zone: Asia/Tokyo}", at(15, 14, 59), false}, {"{}", at(15, 1, 1), true},
	} {
		e := env()
		e.Now = func() time.Time { return c.at }
		p := kit.Must(policy.New(options(t, "rules: [{name: d, effect: deny, time: "+c.window+"}]"), e))(t)
		kit.Equal(t, judge(t, p, writeSpec(), call(`{}`)) != nil, c.want, c.window, c.at)
	}
}

func TestMistakesAreSaidWithTheirPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"defalt: deny", `policy.yaml:1:1: unknown field "defalt"; did you mean "default"?`},
		{"default: maybe", `policy.yaml:1:10: expected allow or deny, got "maybe"`},
		{"rules:\n- {effect: deny}", "policy.yaml:2:3: a rule has no name"},
		{"rules:\n- {name: x}", `policy.yaml:2:3: rule "x" does not say its effect`},
		{"rules:\n- {name: default, effect: deny}", "cannot be called"},
		{"rules:\n- {name: x, effect: deny, callers: []}", "callers is an empty list"},
		{"rules:\n- {name: x, effect: deny, paths: []}", "paths is an empty list"},
		{"rules:\n- {name: x, effect: deny, paths: ['a/../b']}", `policy.yaml:2:35: "a/../b" is not a pattern`},
		{"rules:\n- {name: x, effect: deny, paths: {a: b}}", "expected a list"},
		{"rules:\n- {name: x, effect: deny, tools: ['']}", "a pattern is empty"},
		{"rules:\n- {name: x, effect: deny, access: execute}", "expected read or write"},
		{"rules:\n- {name: x, effect: deny, tiers: '~2'}", "is not a tier"},
		{"rules:\n- {name: x, effect: deny, tiers: '=> 2'}", "is not a bound"},
		{"rules:\n- {name: x, effect: deny, when: 'calller == 1'}", "policy.yaml:2:33: the condition cannot be read: at 1: undeclared reference to 'calller' (did you mean 'caller'?)"},
		{"rules:\n- {name: x, effect: deny, when: true}", "expected a string"},
		{"rules:\n- {name: x, effect: deny, when: 5}", "it must be true or false, and is of type int"},
		{"rules:\n- {name: x, effect: deny, time: {days: [someday]}}", "is not a day"},
		{"rules:\n- {name: x, effect: deny, time: {days: []}}", "empty list"},
		{"rules:\n- {name: x, effect: deny, time: {from: '25:00'}}", "is not a time of day"},
		{"rules:\n- {name: x, effect: deny, time: {from: '08:00', to: '08:00'}}", "the same minute"},
		{"rules:\n- {name: x, effect: deny, time: {zone: Mars}}", "is not a time zone"},
		{"rules:\n- {name: x, effect: deny, commands: 'git \"a b\"'}", "split at spaces alone"},
		{"rules:\n- {name: x, effect: deny}\n- {name: x, effect: deny}", `two rules are called "x"`},
		{"rules:\n- {name: x, effect: allow}", "allows what is allowed anyway"},
		{"rules:\n- {name: x, effect: deny, approvers: owner}", "belong to `effect: ask`"},
		{"rules:\n- {name: x, effect: deny, self: true}", "belong to `effect: ask`"},
		{"rules:\n- {effect: deny}", "has no name"},
		{"rules:\n- {effect: ask, approvers: []}", "no one could approve"},
		{"rules:\n- {effect: ask, timeout: 1ms}", "timeout is from 1s"},
		{"rules:\n- {effect: ask, remember: ever}", "expected session, arguments, hour"},
		{"rules:\n- {effect: ask}\n- {name: ask-1, effect: deny}", `two rules are called "ask-1"`},
		{"default: ask", "expected allow or deny"},
		{"rules:\n- {effect: ask, timeout: 31d}", `rule "ask": timeout is from 1s to 30d, not 31d`},
		{"limits: {arguments: -1}", "cannot be negative"},
		{"limits: {arguments: many}", "expected a number of bytes"},
	} {
		var o policy.Options
		err := config.DecodeYAML("policy.yaml", []byte(c.text), &o)
		if err == nil || !strings.Contains(tool.AsError(err).Message, c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

func TestRuleWithUnknownDoorOrSourceIsRefused(t *testing.T) {
	e := env()
	e.Doors, e.Sources = []string{"http", "cli"}, []string{"files"}
	for text, want := range map[string]string{
		"doors: [htp]": `there is no door "htp"; did you mean "http"?`, "sources: [elsewhere]": `there is no source "elsewhere"; known are files`,
		"doors: [ht*], sources: [file?]": "",
	} {
		_, err := policy.New(options(t, "rules: [{name: d, effect: deny, "+text+"}]"), e)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestJudgedArgumentsRunUnchanged(t *testing.T) {
	p := made(t, "rules: [{name: d, effect: deny, paths: secret, when: 'has(args.x)'}]")
	var inner ran
	c := call("{ \"writes\" : [\"a\"],\n \"x\":1.50e0, \"y\":\"\\u0061\" }")
	before := string(c.Args)
	kit.Must(p.For(writeSpec(), toucher{}).Stage(&inner).Invoke(t.Context(), c, tool.Discard))(t)
	got := inner.calls[0]
	if &got.Args[0] != &c.Args[0] || len(got.Args) != len(c.Args) || string(got.Args) != before {
		t.Errorf("%s became %s", before, got.Args)
	}
	if c.Scope != nil {
		t.Error("the call was changed")
	}
}

func TestScopeCoversFilesNotNamedInArguments(t *testing.T) {
	for _, c := range []struct {
		rules, args, path string
		write             bool
		want              string
	}{
		{"rules: [{name: d, effect: deny, paths: '*.key'}]", `{"reads":["."]}`, "/w/a/x.key", false, `a/x.key is not allowed: rule "d" denies it`},
		{"rules: [{name: d, effect: deny, paths: '*.key'}]", `{"reads":["."]}`, "/w/a/x.txt", false, ""},
		{"rules: [{name: d, effect: deny, paths: src/**, access: write}]", `{"reads":["."]}`, "/w/src/x", true, "not allowed"},
		{"rules: [{name: d, effect: deny, paths: src/**, access: write}]", `{"reads":["."]}`, "/w/src/x", false, ""},
		{"rules: [{name: d, effect: deny, paths: x, callers: other}]", `{"reads":["."]}`, "/w/x", false, ""},
		{"rules: [{name: d, effect: deny, paths: x, when: 'size(reads) == 1'}]", `{"reads":["a"]}`, "/w/x", false, "not allowed"},
		{"rules: [{name: d, effect: deny, paths: x, commands: cat}]", `{"commands":[["cat"]]}`, "/w/x", false, "not allowed"},
		{"rules: [{name: d, effect: deny, paths: x, commands: cat}]", `{"commands":[["ls"]]}`, "/w/x", false, ""},
		{"default: deny\nrules: [{name: a, effect: allow, paths: src/**}]", `{"reads":["src"]}`, "/w/src/x", false, ""},
		{"default: deny\nrules: [{name: a, effect: allow, paths: src/**}]", `{"reads":["src"]}`, "/elsewhere", false, "no rule of the policy allows it"},
		{"default: deny\nrules: [{name: a, effect: allow, paths: src/**, access: read}]", `{"reads":["src"]}`, "/w/src/x", true, "no rule"},
		{"default: deny\nrules: [{name: a, effect: allow, paths: src/**, commands: ls}, {name: b, effect: allow, paths: doc/**, commands: cat}]", `{"reads":["src"],"commands":[["ls"]]}`, "/w/doc/x", false, "no rule"},
		{"default: deny\nrules: [{name: a, effect: allow}, {name: d, effect: deny, paths: no}]", `{"reads":["src"]}`, "/w/doc/no/x", false, `rule "d"`},
	} {
		var inner ran
		if _, err := made(t, c.rules).For(writeSpec(), toucher{}).Stage(&inner).Invoke(t.Context(), call(c.args), tool.Discard); err != nil {
			t.Errorf("%s: %v", c.rules, err)
			continue
		}
		scope := inner.calls[0].Scope
		if scope == nil {
			t.Errorf("%s: no scope", c.rules)
			continue
		}
		err := scope.Path(c.path, c.write)
		if c.want == "" && err != nil || c.want != "" && (tool.CodeOf(err) != tool.CodeAccessDenied || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s: %v, want %s", c.rules, c.path, err, c.want)
		}
	}
}

func TestWithoutRulesAboutFilesThereIsNoScope(t *testing.T) {
	var inner ran
	p := made(t, "rules: [{name: d, effect: deny, callers: other}]")
	if _, err := p.For(writeSpec(), toucher{}).Stage(&inner).Invoke(t.Context(), call(`{}`), tool.Discard); err != nil || inner.calls[0].Scope != nil {
		t.Error(err, inner.calls)
	}
}

func TestNoCallMayWriteTheConfig(t *testing.T) {
	e := env()
	e.Config = []string{"/w/tool[post].yaml"}
	for _, rules := range []string{"", "default: deny\nrules: [{name: a, effect: allow}]"} {
		p := kit.Must(policy.New(options(t, rules), e))(t)
		if err := judge(t, p, writeSpec(), call(`{"writes":["tool[post].yaml"]}`)); err == nil || !strings.Contains(err.Message, `(rule "config")`) {
			t.Errorf("%s: %v", rules, err)
		}
		for _, args := range []string{`{"writes":["toolp.yaml"]}`, `{"reads":["tool[post].yaml"]}`} {
			if err := judge(t, p, writeSpec(), call(args)); err != nil {
				t.Errorf("%s: %s: %v", rules, args, err)
			}
		}
		var inner ran
		kit.Must(p.For(writeSpec(), toucher{}).Stage(&inner).Invoke(t.Context(), call(`{"writes":["link"]}`), tool.Discard))(t)
		if inner.calls[0].Scope.Path("/w/tool[post].yaml", true) == nil || inner.calls[0].Scope.Path("/w/tool[post].yaml", false) != nil {
			t.Errorf("%s: the scope lets it be written, or not read", rules)
		}
		x := p.For(writeSpec(), toucher{}).Explain(call(`{"writes":["tool[post].yaml"]}`), sunday())
		if x.Allowed || x.Rule != "config" || len(x.Rules) == 0 || !x.Rules[len(x.Rules)-1].Matched {
			t.Errorf("%s: %+v", rules, x)
		}
	}
	quick := kit.Must(policy.New(policy.Options{}, e))(t)
	next := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, nil })
	reads := &tool.Spec{Name: "readFile", Effects: tool.Effects{Reads: true}}
	stage, c := quick.For(reads, toucher{}).Stage(next), call(`{"reads":["a"]}`)
	kit.Equal(t, testing.AllocsPerRun(100, func() { _, _ = stage.Invoke(t.Context(), c, tool.Discard) }),
		0, "a tool that only reads pays for it: allocations")
}

func TestManyMayAskAScopeAtOnce(t *testing.T) {
	var inner ran
	p := made(t, "default: deny\nrules: [{name: a, effect: allow, paths: src/**}, {name: d, effect: deny, paths: '*.key', when: 'true'}]")
	kit.Must(p.For(writeSpec(), toucher{}).Stage(&inner).Invoke(t.Context(), call(`{"reads":["src"]}`), tool.Discard))(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				path := fmt.Sprintf("/w/src/%d/%d", i, n)
				if inner.calls[0].Scope.Path(path, false) != nil || inner.calls[0].Scope.Path(path+".key", true) == nil {
					t.Error(path)
				}
			}
		})
	}
	all.Wait()
}

type failing struct{ err error }

func (f failing) Touches(*tool.Call) (tool.Touches, error) { return tool.Touches{}, f.err }

func TestErrorOfTouchesRefusesTheCall(t *testing.T) {
	p := made(t, "rules: [{name: d, effect: deny, paths: x}]")
	var inner ran
	_, err := p.For(writeSpec(), failing{tool.Errorf(tool.CodeAccessDenied, "../x is not allowed")}).Stage(&inner).Invoke(t.Context(), call(`{}`), tool.Discard)
	if tool.CodeOf(err) != tool.CodeAccessDenied || len(inner.calls) != 0 {
		t.Error(err, inner.calls)
	}
}

func TestACallThatTouchesTooMuchToBeJudgedIsRefused(t *testing.T) {
	p := made(t, "rules: [{name: d, effect: deny, paths: x}]")
	args := `{"reads":["a"` + strings.Repeat(`,"a"`, 5000) + `]}`
	if err := judge(t, p, writeSpec(), call(args)); err == nil || err.Code != tool.CodeInvalidInput {
		t.Error(err)
	}
}

func TestADryRunDecidesAndRunsNothing(t *testing.T) {
	for _, c := range []struct{ rules, args, want string }{
		{"", `{"reads":["a"]}`, `{"dry_run":true,"allowed":true,"rule":"default","reason":"no rule denies it","touches":{"reads":["/w/a"]}}`},
		{"rules: [{name: d, effect: deny, paths: a, reason: no}]", `{"reads":["a"]}`, `{"dry_run":true,"allowed":false,"rule":"d","reason":"no (rule \"d\")","path":"/w/a","touches":{"reads":["/w/a"]}}`},
		{"default: deny", `{}`, `{"dry_run":true,"allowed":false,"rule":"default","reason":"no rule of the policy allows it"}`},
	} {
		var inner ran
		dry := call(c.args)
		dry.DryRun = true
		r, err := made(t, c.rules).For(writeSpec(), toucher{}).Stage(&inner).Invoke(t.Context(), dry, tool.Discard)
		if err != nil || !r.OK || string(r.Output) != c.want || len(inner.calls) != 0 {
			t.Errorf("%s: %v, %v\n%s\n%s", c.rules, err, inner.calls, r.Output, c.want)
		}
	}
	var none *policy.Policy
	var inner ran
	dry := call(`{}`)
	dry.DryRun = true
	if r, err := none.For(writeSpec(), nil).Stage(&inner).Invoke(t.Context(), dry, tool.Discard); err != nil || !strings.Contains(string(r.Output), `"allowed":true`) || len(inner.calls) != 0 {
		t.Errorf("without a policy: %v, %v", r, err)
	}
}

func TestWithoutRulesForAToolAJudgeCostsNothing(t *testing.T) {
	p := made(t, "rules: [{name: d, effect: deny, tools: other}]")
	next := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, nil })
	stage, c := p.For(writeSpec(), toucher{}).Stage(next), call(`{"reads":["a"]}`)
	kit.Equal(t, testing.AllocsPerRun(100, func() { _, _ = stage.Invoke(t.Context(), c, tool.Discard) }),
		0, "allocations")
}

func TestUncallableToolIsHidden(t *testing.T) {
	for _, c := range []struct {
		rules string
		want  bool
	}{
		{"", true}, {"default: deny", false},
		{"rules: [{name: d, effect: deny, tools: writeFile}]", false}, {"rules: [{name: d, effect: deny, callers: ci-*}]", false}, {"rules: [{name: d, effect: deny, callers: owner}]", true},
		{"rules: [{name: d, effect: deny, paths: x}]", true}, {"rules: [{name: d, effect: deny, when: 'true'}]", true}, {"rules: [{name: d, effect: deny, time: {days: [sun]}}]", true}, {"rules: [{name: d, effect: deny, commands: x}]", true},
		{"default: deny\nrules: [{name: a, effect: allow, doors: http, paths: x}]", true}, {"default: deny\nrules: [{name: a, effect: allow, doors: nats}]", false}, {"default: deny\nrules: [{name: a, effect: allow, tools: other}]", false},
	} {
		kit.Equal(t, made(t, c.rules).For(writeSpec(), toucher{}).Hidden(call(`{}`).Caller) == nil, c.want, c.rules)
	}
}

func TestExplainNamesEveryRule(t *testing.T) {
	p := made(t, `
default: deny
rules:
- {name: read, effect: allow, access: read}
- {name: ours, effect: allow, paths: src/**}
- {name: night, effect: deny, time: {from: '20:00', to: '06:00'}}
- {name: cli, effect: deny, doors: cli}
- {name: owner, effect: deny, callers: [owner, admin]}
- {name: other, effect: deny, tools: [deleteFile]}
- {name: far, effect: deny, sources: [far]}
- {name: high, effect: deny, tiers: '>= 2'}
- {name: big, effect: deny, when: 'size(args.writes) > 9'}
- {name: keys, effect: deny, paths: '*.key', reason: keys are secret}
`)
	x := p.For(writeSpec(), toucher{}).Explain(call(`{"writes":["src/a.key"]}`), sunday())
	want := []string{
		"read allow false the call touches something else than its files and commands",
		`ours allow true rule "ours" matches`,
		"night deny false it is not the time",
		`cli deny false door "http" is not one of cli`,
		`owner deny false caller "ci-1" is not one of owner, admin`,
		`other deny false tool "writeFile" is not one of deleteFile`,
		`far deny false source "files" is not one of far`,
		"high deny false tier 1 is not one of its tiers",
		"big deny false its condition does not hold: size(args.writes) > 9",
		`keys deny true keys are secret (rule "keys")`,
	}
	var got []string
	for _, f := range x.Rules {
		got = append(got, fmt.Sprintf("%s %s %v %s", f.Rule, f.Effect, f.Matched, f.Why))
	}
	kit.EqualSlices(t, got, want, strings.Join(got, "\n"), strings.Join(want, "\n"))
	if x.Allowed || x.Rule != "keys" || x.Path != "/w/src/a.key" || !x.Visible || x.Depends || len(x.Touches.Writes) != 1 {
		t.Errorf("%+v", x)
	}
	c := call("")
	c.Args = nil
	if x := p.For(writeSpec(), toucher{}).Explain(c, sunday()); !x.Depends || x.Allowed {
		t.Errorf("without arguments: %+v", x)
	}
	c.Caller.ID = "owner"
	if x := p.For(writeSpec(), toucher{}).Explain(c, sunday()); x.Depends || x.Allowed || x.Visible || x.Rule != "owner" {
		t.Errorf("without arguments, where none matter: %+v", x)
	}
}

func TestJudgedCallsAreRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "judged.jsonl")
	p := made(t, "record: "+file+"\nrules: [{name: d, effect: deny, paths: secret}]")
	stage := p.For(writeSpec(), toucher{}).Stage(&ran{})
	long := `{"x":"` + strings.Repeat("a", policy.MaxRecord) + `"}`
	for _, args := range []string{`{"reads":["a"]}`, `{"reads":["secret"]}`, long} {
		_, _ = stage.Invoke(t.Context(), call(args), tool.Discard)
	}
	dry := call(`{}`)
	dry.DryRun = true
	_, _ = stage.Invoke(t.Context(), dry, tool.Discard)

	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	data := kit.Must(os.ReadFile(file))(t)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	want := []string{
		`{"time":"2026-11-15T12:00:00Z","caller":"ci-1","door":"http","tool":"writeFile","args":{"reads":["a"]},"decision":"allow","rule":"default"}`,
		`{"time":"2026-11-15T12:00:00Z","caller":"ci-1","door":"http","tool":"writeFile","args":{"reads":["secret"]},"decision":"deny","rule":"d"}`,
		`{"time":"2026-11-15T12:00:00Z","caller":"ci-1","door":"http","tool":"writeFile","decision":"allow","rule":"default"}`,
	}
	kit.EqualSlices(t, lines, want, strings.Join(lines, "\n"), strings.Join(want, "\n"))
	for _, line := range lines {
		kit.Equal(t, kit.Must(policy.ParseRecord([]byte(line)))(t).Tool, "writeFile")
	}
	for _, line := range []string{"", "{}", `{"tool":"x","decision":"maybe"}`, "[1]", `{"tool":"x","tool":"y","decision":"allow"}`} {
		kit.Fails(t, kit.Err(policy.ParseRecord([]byte(line))), "", "%s was taken", line)
	}
}

func TestARecordThatCannotBeWrittenDoesNotStopTheCall(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	kit.OK(t, os.WriteFile(file, nil, 0o600))
	if err := judge(t, made(t, "record: "+file+"/under"), writeSpec(), call(`{}`)); err != nil {
		t.Error(err)
	}
}

// ruleTexts generates rules, without their name and effect.
func ruleTexts() *rapid.Generator[string] {
	field := func(name string, values ...string) *rapid.Generator[string] {
		return rapid.Map(rapid.SampledFrom(append(values, "")), func(v string) string {
			if v == "" {
				return ""
			}
			return ", " + name + ": " + v
		})
	}
	fields := []*rapid.Generator[string]{
		field("callers", "ci-*", "owner", "[owner, ci-1]", ""), field("doors", "http", "cli", "", ""), field("tools", "writeFile", "file.write", "read*", "'*'", "", ""),
		field("tiers", "1", "'>= 2'", "", "", ""), field("paths", "a/**", "'*.key'", "[a, b/c]", "/etc/**", "", ""), field("access", "read", "write", "", "", ""),
		field("commands", "git **", "[ls, cat]", "", "", ""), field("time", "{days: [sun]}", "{days: [mon]}", "", "", "", ""),
		field("when", "size(reads) > 0", "has(args.x)", "args.x == 1", "caller == 'owner'", "", "", ""),
	}
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for i, f := range fields {
			b.WriteString(f.Draw(t, fmt.Sprint("field", i)))
		}
		return b.String()
	})
}

func callsOf() *rapid.Generator[*tool.Call] {
	path := rapid.SampledFrom([]string{"a/x", "b/c/d", "k.key", "a/k.key", "/etc/passwd", "z"})
	command := rapid.SampledFrom([][]string{{"git", "log"}, {"ls"}, {"ls", "-l"}, {"rm", "x"}})
	return rapid.Custom(func(t *rapid.T) *tool.Call {
		args := map[string]any{
			"reads": rapid.SliceOfN(path, 0, 2).Draw(t, "reads"), "writes": rapid.SliceOfN(path, 0, 2).Draw(t, "writes"),
			"commands": rapid.SliceOfN(command, 0, 2).Draw(t, "commands"),
		}
		if x := rapid.IntRange(-1, 1).Draw(t, "x"); x >= 0 {
			args["x"] = x
		}
		b, _ := json.Marshal(args)
		c := call(string(b))
		c.Caller.ID = rapid.SampledFrom([]string{"ci-1", "owner", "x"}).Draw(t, "caller")
		c.Caller.Door = rapid.SampledFrom([]string{"http", "cli"}).Draw(t, "door")
		return c
	})
}

// decided returns the decision for a call, and that of its scope about some files.
func decided(t *rapid.T, text string, c *tool.Call) (allowed bool, scope map[string]bool) {
	var o policy.Options
	kit.OK(t, config.DecodeYAML("p", []byte(text), &o), text)
	p, err := policy.New(o, env())
	kit.OK(t, err)
	var inner ran
	j := p.For(writeSpec(), toucher{})
	_, err = j.Stage(&inner).Invoke(context.Background(), c, tool.Discard)
	if err == nil && j.Hidden(c.Caller) != nil {
		t.Fatalf("%s: what %v does not see was allowed", text, c.Caller)
	}
	if x := j.Explain(c, sunday()); x.Allowed != (err == nil) {
		t.Fatalf("%s: explained as %+v, decided as %v", text, x, err)
	}
	if err != nil {
		return false, nil
	}
	scope = map[string]bool{}
	for _, path := range []string{"/w/a/x", "/w/b/c", "/w/q.key", "/etc/x"} {
		for _, write := range []bool{false, true} {
			ok := inner.calls[0].Scope == nil || inner.calls[0].Scope.Path(path, write) == nil
			scope[fmt.Sprint(path, write)] = ok
		}
	}
	return true, scope
}

func policyText(deny bool, rules []string) string {
	text := "rules:\n" + strings.Join(rules, "\n")
	if len(rules) == 0 {
		text = "rules: []"
	}
	if deny {
		text = "default: deny\n" + text
	}
	return text
}

func rulesOf(t *rapid.T, strict bool) []string {
	var rules []string
	for i, body := range rapid.SliceOfN(ruleTexts(), 0, 5).Draw(t, "rules") {
		effect := "deny"
		if strict && rapid.Bool().Draw(t, "allow") {
			effect = "allow"
		}
		rules = append(rules, fmt.Sprintf("- {name: r%d, effect: %s%s}", i, effect, body))
	}
	return rules
}

func TestAddingARuleThatDeniesNeverAllowsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strict := rapid.Bool().Draw(t, "strict")
		rules, c := rulesOf(t, strict), callsOf().Draw(t, "call")
		before, scope := decided(t, policyText(strict, rules), c)
		more := append(rules, "- {name: more, effect: deny"+ruleTexts().Draw(t, "more")+"}")
		after, narrowed := decided(t, policyText(strict, more), c)
		if after && !before {
			t.Fatal("the call is allowed now")
		}
		for path, ok := range narrowed {
			if ok && !scope[path] {
				t.Fatalf("%s is allowed now", path)
			}
		}
	})
}

func TestTheOrderOfRulesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		strict := rapid.Bool().Draw(t, "strict")
		rules, c := rulesOf(t, strict), callsOf().Draw(t, "call")
		allowed, scope := decided(t, policyText(strict, rules), c)
		again, same := decided(t, policyText(strict, rapid.Permutation(rules).Draw(t, "order")), c)
		if allowed != again || fmt.Sprint(scope) != fmt.Sprint(same) {
			t.Fatalf("%v %v, then %v %v", allowed, scope, again, same)
		}
	})
}

func TestAllowNeverOverridesDeny(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		denying := "- {name: deny, effect: deny" + ruleTexts().Draw(t, "deny") + "}"
		c := callsOf().Draw(t, "call")
		open, scope := decided(t, policyText(false, []string{denying}), c)
		strict, narrowed := decided(t, policyText(true, []string{"- {name: all, effect: allow}", denying, "- {name: some, effect: allow" + ruleTexts().Draw(t, "allow") + "}"}), c)
		if strict && !open {
			t.Fatal("what is denied is allowed")
		}
		for path, ok := range narrowed {
			if ok && !scope[path] {
				t.Fatalf("%s is denied and allowed", path)
			}
		}
	})
}

// FuzzPolicy parses any policy and judges any call with it.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte("default: deny\nrules:\n- {name: a, effect: allow, paths: [src/**, '*.{go,md}'], access: read, when: 'size(reads) < 3'}"), []byte(`{"reads":["src/x"]}`), "/w/src/x")
	f.Add([]byte("rules:\n- {name: d, effect: deny, commands: [git push **], tiers: '>= 1', time: {days: [sun], from: '22:00', to: '06:00'}}"), []byte(`{"commands":[["git","push"]]}`), "/x")
	f.Add([]byte("limits: {arguments: 3}\nrules: [{name: d, effect: deny, callers: c*, doors: [http], tools: file.*, sources: files}]"), []byte(`{}`), "")
	f.Fuzz(func(t *testing.T, text, args []byte, path string) {
		var o policy.Options
		if config.DecodeYAML("p", text, &o) != nil || strictjson.CheckObject(args) != nil {
			return
		}
		o.Record = ""
		p, err := policy.New(o, env())
		if err != nil {
			return
		}
		var inner ran
		j := p.For(writeSpec(), toucher{})
		c := call(string(args))
		_, err = j.Stage(&inner).Invoke(t.Context(), c, tool.Discard)
		if x := j.Explain(c, sunday()); x.Allowed != (err == nil) || x.Allowed && !x.Visible {
			t.Fatalf("explained as %+v, decided as %v", x, err)
		}
		if err == nil && inner.calls[0].Scope != nil {
			_ = inner.calls[0].Scope.Path(path, false)
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	for name, text := range map[string]string{
		"idle":      "",
		"caller":    "rules: [{name: d, effect: deny, callers: other}]",
		"paths":     "rules: [{name: d, effect: deny, paths: ['secret/**', '*.key']}]",
		"condition": "rules: [{name: d, effect: deny, when: 'size(args.reads) > 3'}]",
	} {
		b.Run(name, func(b *testing.B) {
			next := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, nil })
			stage, c := made(b, text).For(writeSpec(), toucher{}).Stage(next), call(`{"reads":["/w/src/a.go"]}`)
			b.ReportAllocs()
			for b.Loop() {
				kit.Must(stage.Invoke(b.Context(), c, tool.Discard))(b)
			}
		})
	}
}

func BenchmarkScope(b *testing.B) {
	var inner ran
	p := made(b, "rules: [{name: d, effect: deny, paths: ['secret/**', '*.key', 'node_modules']}]")
	kit.Must(p.For(writeSpec(), toucher{}).Stage(&inner).Invoke(b.Context(), call(`{}`), tool.Discard))(b)
	b.ReportAllocs()
	for b.Loop() {
		if inner.calls[0].Scope.Path("/w/src/deep/er/file.go", false) != nil {
			b.Fatal()
		}
	}
}

// A rule that confines adds walls around the calls that it matches, and leaves all others alone.
func TestConfine(t *testing.T) {
	p := made(t, `rules: [{name: no-net, effect: confine, guarantees: {no_network: true}, doors: http},
		{name: no-net-either, effect: confine, guarantees: {no_subprocess: true}, when: size(args.content) > 3},
		{name: asks, effect: confine, guarantees: {secrets_allowed: []}, sources: other}]`)
	for name, c := range map[string]struct {
		door, args string
		want       []string
	}{
		"no rule speaks of it": {"cli", `{"content":"x"}`, []string{"no_env_read"}},
		"one does":             {"http", `{"content":"x"}`, []string{"no_network", "no_env_read"}},
		"two do":               {"http", `{"content":"xxxx"}`, []string{"no_network", "no_subprocess", "no_env_read"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := writeSpec()
			spec.Guarantees.NoEnvRead = true
			before := *spec
			var inner ran
			one := call(c.args)
			one.Spec, one.Caller.Door = spec, c.door
			kit.Must(p.For(spec, toucher{}).Stage(&inner).Invoke(t.Context(), one, tool.Discard))(t)
			kit.EqualSlices(t, inner.calls[0].Tightened(tool.Guarantees{}).Asked(), c.want)
			kit.DeepEqual(t, *spec, before, "the tool's own spec was changed")
		})
	}
	var inner ran
	one := call(`{}`)
	one.Spec = writeSpec()
	if _, err := p.For(writeSpec(), toucher{}).Stage(&inner).Invoke(t.Context(), one, tool.Discard); err == nil || len(inner.calls) > 0 {
		t.Errorf("a condition that cannot be decided let the call pass: %v", err)
	}
	for _, bad := range []string{
		`[{name: a, effect: confine}]`, `[{name: a, effect: deny, guarantees: {no_network: true}}]`, `[{name: a, effect: confine, guarantees: {no_network: true}, paths: x}]`,
		`[{name: a, effect: confine, guarantees: {no_internet: true}}]`,
	} {
		var o policy.Options
		kit.Fails(t, config.DecodeYAML("policy.yaml", []byte("rules: "+bad), &o), "", "%s is taken", bad)
	}
}
