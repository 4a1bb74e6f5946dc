package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/engine/policy"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// consent runs a call through the stage, and returns the call as the next stage gets it.
func consent(t *testing.T, text string, s *tool.Spec, c *tool.Call) (*tool.Call, error) {
	t.Helper()
	var inner ran
	_, err := made(t, text).For(s, toucher{}).Stage(&inner).Invoke(t.Context(), c, tool.Discard)
	if err != nil {
		return nil, err
	}
	return inner.calls[0], nil
}

func TestDenyWinsOverAskAndAskOverAllow(t *testing.T) {
	const denied = "-"
	for text, want := range map[string]string{
		`rules: [{effect: ask}]`: "ask-1",
		`rules: [{effect: ask, name: mine}, {name: no, effect: deny}]`:                                denied,
		`{default: deny, rules: [{effect: ask, name: a}]}`:                                            "a",
		`{default: deny, rules: [{effect: allow, name: b}, {effect: ask, name: a}]}`:                  "a",
		`{default: deny, rules: [{effect: ask, name: a, tools: other}]}`:                              denied,
		`rules: [{effect: ask, tools: other}]`:                                                        "",
		`rules: [{effect: ask, tools: file.write, name: a}]`:                                          "a", // an alias is enough to be asked about
		`{default: deny, rules: [{effect: ask, tools: file.write, name: a}]}`:                         denied,
		`rules: [{effect: ask, paths: secret/**, name: a}]`:                                           "",
		`rules: [{effect: ask, paths: public, name: a}]`:                                              "a", // its folder
		`rules: [{effect: ask, paths: public/**, name: a}, {effect: ask, name: b}]`:                   "a b",
		`{default: deny, rules: [{effect: ask, paths: public/**, name: a}]}`:                          "a",
		`{default: deny, rules: [{effect: ask, paths: other/**, name: a}]}`:                           denied,
		`rules: [{effect: ask, when: "args.nothing == 1", name: a}]`:                                  denied, // it cannot be decided
		`rules: [{effect: ask, callers: eve, name: a}]`:                                               "",
		`rules: [{effect: ask, name: a}, {effect: confine, name: c, guarantees: {no_network: true}}]`: "a",
	} {
		c, err := consent(t, text, writeSpec(), call(`{"writes":["public/a"]}`))
		got := denied
		if err == nil {
			got = ""
			if c.Consent != nil {
				var names []string
				for _, r := range c.Consent.Rules {
					names = append(names, r.Name)
				}
				got = strings.Join(names, " ")
				if !slices.Equal(c.Consent.Touches.Writes, []string{"/w/public/a"}) {
					t.Errorf("%s: approvers see %+v", text, c.Consent.Touches)
				}
			}
		}
		kit.Equal(t, got, want, text, err)
	}
}

func TestAskRuleSetsApproversTimeoutAndRemember(t *testing.T) {
	c, err := consent(t, `rules: [{effect: ask}, {effect: ask, name: b, approvers: [ops, ada], self: true, timeout: 1h, remember: [], reason: risky}]`,
		writeSpec(), call(`{}`))
	kit.OK(t, err)
	first, second := c.Consent.Rules[0], c.Consent.Rules[1]
	if !slices.Equal(first.Approvers, []tool.Glob{"owner"}) || first.Self || first.Timeout != 15*time.Minute || len(first.Remember) != 4 {
		t.Errorf("%+v", first)
	}
	if !slices.Equal(second.Approvers, []tool.Glob{"ops", "ada"}) || !second.Self || second.Timeout != time.Hour ||
		len(second.Remember) != 0 || second.Reason != "risky" {
		t.Errorf("%+v", second)
	}
}

// A Consent that a call brings along, perhaps from another call, is dropped.
func TestConsentFromTheCallIsDropped(t *testing.T) {
	brought := call(`{}`)
	brought.Consent = &tool.Consent{Rules: []tool.ConsentRule{{Name: "weak", Approvers: []tool.Glob{"*"}, Self: true}}}
	for text, want := range map[string]int{`{}`: 0, `rules: [{effect: ask, name: a}]`: 1} {
		c, err := consent(t, text, writeSpec(), brought)
		if err != nil || (c.Consent != nil) != (want == 1) || want == 1 && c.Consent.Rules[0].Name != "a" {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
}

// A walk that reaches a file which needs an approval has not asked for one.
func TestUnnamedFileUnderAnAskRuleIsDenied(t *testing.T) {
	text := `rules: [{effect: ask, name: a, paths: secret/**}]`
	c, err := consent(t, text, writeSpec(), call(`{"reads":["."]}`))
	if err != nil || c.Consent != nil || c.Scope == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	kit.Refused(t, c.Scope.Path("/w/secret/x", false), tool.CodeAccessDenied, "names the file itself", "it may be read")
	kit.Check(t, c.Scope.Path("/w/other", false))
	c, err = consent(t, text, writeSpec(), call(`{"reads":["secret/x"]}`))
	if err != nil || c.Consent == nil || c.Scope.Path("/w/secret/x", false) != nil {
		t.Errorf("what is asked about cannot be read once it is approved: %+v, %v", c, err)
	}
}

func TestApprovalToolsNeedNoApproval(t *testing.T) {
	for name, asks := range map[string]bool{"approvals.decide": false, "approvals.list": false, "jobs.start": true} {
		c, err := consent(t, `rules: [{effect: ask, tools: "*"}]`, &tool.Spec{Name: name, Source: "toolpost"}, call(`{}`))
		if err != nil || (c.Consent != nil) != asks {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	c, err := consent(t, `rules: [{effect: ask, tools: "*"}]`, &tool.Spec{Name: "approvals.decide", Source: "evil"}, call(`{}`))
	if err != nil || c.Consent == nil {
		t.Errorf("a tool of that name in another source: %+v, %v", c, err)
	}
}

func TestDryRunAndExplainReportAskRules(t *testing.T) {
	p := made(t, `rules: [{effect: ask, name: a, approvers: ops, paths: public/**}]`)
	c := call(`{"writes":["public/a"]}`)
	c.DryRun, c.Record = true, &tool.Record{}
	r := kit.Must(p.For(writeSpec(), toucher{}).Stage(new(ran)).Invoke(t.Context(), c, tool.Discard))(t)
	var said struct {
		Allowed bool           `json:"allowed"`
		Ask     *policy.Asking `json:"ask"`
	}
	if err := strictjson.Unmarshal(r.Output, &said); err != nil || !said.Allowed || said.Ask == nil ||
		!slices.Equal(said.Ask.Approvers, []string{"ops"}) || said.Ask.TimeoutMS != 900_000 || c.Record.Decision != "ask" {
		t.Errorf("%s, %v, recorded as %s", r.Output, err, c.Record.Decision)
	}
	j := p.For(writeSpec(), toucher{})
	if x := j.Explain(c, sunday()); x.Effect() != policy.Ask || x.Rule != "a" || !x.Rules[0].Matched || x.Rules[0].Effect != policy.Ask {
		t.Errorf("%+v", x)
	}
	c.Args = json.RawMessage(`{"writes":["b"]}`)
	if x := j.Explain(c, sunday()); x.Effect() != policy.Allow || x.Rules[0].Matched {
		t.Errorf("%+v", x)
	}
	c.Args = nil
	if x := j.Explain(c, sunday()); !x.Depends {
		t.Errorf("%+v", x)
	}
}

// A remembered approval holds for the rule that asked, and not for a later rule of the same name.
func TestRulesWithDifferentScopeHaveDifferentIdentity(t *testing.T) {
	seen := map[string]string{}
	for _, more := range []string{
		``, `callers: "*"`, `roles: "*"`, `doors: "*"`, `tools: writeFile`, `tools: "*"`, `sources: "*"`, `tiers: ">= 0"`, `tiers: ">= 1"`,
		`paths: public/**`, `paths: "**"`, `paths: "**", access: write`, `when: "true"`, `when: "1 == 1"`,
		`time: {days: [mon, tue, wed, thu, fri, sat, sun]}`, `time: {zone: UTC}`, `time: {zone: Europe/Berlin}`,
	} {
		c, err := consent(t, `rules: [{effect: ask, `+more+`}]`, writeSpec(), call(`{"writes":["public/a"]}`))
		if err != nil || c.Consent == nil {
			continue // another test covers which rules ask about this call
		}
		about := c.Consent.Rules[0].About
		if twin, there := seen[about]; there || about == "" {
			t.Errorf("%q is about what %q is about", more, twin)
		}
		seen[about] = more
	}
	if len(seen) < 10 {
		t.Errorf("only %d rules were compared", len(seen))
	}
}
