package trust_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"toolpost/builtin/trust"
	"toolpost/engine/pin"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A desk holds back the test's tools, and notes which are approved.
type desk struct {
	held     []*pin.Held
	approved []string
	by       string
}

func (d *desk) Held() []*pin.Held { return d.held }
func (d *desk) Approve(_ context.Context, by string, held []*pin.Held) error {
	d.by = by
	for _, h := range held {
		d.approved = append(d.approved, h.Now.Source+"."+h.Now.Name)
	}
	return nil
}

func (d *desk) Forget(context.Context, string) ([]pin.Pin, error) { return nil, nil }
func (d *desk) Pinned(source string) bool                         { return source == "a" || source == "b" }
func (d *desk) Lasting() bool                                     { return true }

func heldBack(t *testing.T, source, name string) *pin.Held {
	t.Helper()
	was := kit.Must(pin.Of(source, &tool.Spec{Name: name, Description: "Says it."}))(t)
	now, err := pin.Of(source, &tool.Spec{Name: name, Description: "Says\u202e it.", Effects: tool.Effects{Destructive: true}})
	kit.OK(t, err)
	return &pin.Held{Was: was, Now: now, Why: tool.Errorf(tool.CodeUnavailable, "changed").Because(pin.ReasonChanged)}
}

func TestApproveSelectsExactlyTheNamedTools(t *testing.T) {
	one, two := heldBack(t, "a", "echo"), heldBack(t, "b", "echo")
	odd, mail, away := heldBack(t, "a", "o\u200bdd"), heldBack(t, "a", "me@0123456789abcdef"), heldBack(t, "b", "away")
	away.Now.Digest = ""
	digest := one.Now.Digest
	for words, want := range map[string]string{
		`["a.echo"]`: "a.echo", `["b.echo","a.echo"]`: "a.echo b.echo", `["echo"]`: "conflict", `["nobody"]`: "not_found",
		`["a.echo@` + digest[:16] + `"]`: "a.echo", `["a.echo@` + digest + `"]`: "a.echo", `["a.echo@ffffffffffffffff"]`: "conflict",
		`["a.echo@` + digest[:15] + `"]`: "not_found", `["o\\u200bdd"]`: "a.o\u200bdd", `["me@0123456789abcdef"]`: "not_found",
		`["me@0123456789abcdef@` + mail.Now.Digest[:16] + `"]`: "a.me@0123456789abcdef",
		`["a.echo","nobody"]`: "not_found", `["away"]`: "unavailable", `[]`: "invalid_input",
	} {
		// One of them is named like another that was reviewed.
		d := &desk{held: []*pin.Held{heldBack(t, "a", "echo@"+digest), heldBack(t, "a", "echo@"+digest[:16]), one, two, odd, mail, away}}
		args := json.RawMessage(`{"tools":` + words + `}`)
		_, err := trust.New(d).Invoke(t.Context(), &tool.Call{Tool: trust.Approve, Args: args, Caller: tool.Principal{ID: "ada", Operates: true}}, tool.Discard)
		got := strings.Join(d.approved, " ")
		if err != nil {
			got += string(tool.CodeOf(err))
		}
		if got != want || err == nil && d.by != "ada" {
			t.Errorf("%s approves %s, want %s (%v)", words, got, want, err)
		}
	}
	for source, want := range map[string]int{"a": 3, "c": 0} {
		d := &desk{held: []*pin.Held{one, two, odd, mail}}
		_, err := trust.New(d).Invoke(t.Context(), &tool.Call{
			Tool: trust.Approve, Args: json.RawMessage(`{"source":"` + source + `"}`), Caller: tool.Principal{ID: "ada", Operates: true},
		}, tool.Discard)
		if len(d.approved) != want || (err != nil) != (want == 0) {
			t.Errorf("%s: %v, %v", source, d.approved, err)
		}
	}
}

func TestAReviewShowsWhatChangedAndHidesNothing(t *testing.T) {
	d := &desk{held: []*pin.Held{heldBack(t, "a", "ec\u200bho")}}
	r, err := trust.New(d).Invoke(t.Context(), &tool.Call{Tool: trust.Review, Caller: tool.Principal{ID: "ada", Operates: true}}, tool.Discard)
	kit.OK(t, err)
	var got trust.Reviewed
	if err := json.Unmarshal(r.Output, &got); err != nil || tool.Hides(string(r.Output)) || len(got.Held) != 1 || got.Held[0].Tool != `a.ec\u200bho` {
		t.Fatalf("%s, %v", r.Output, err)
	}
	want := []trust.Change{{"description", "Says it.", `Says\u202e it.`}, {"effects", "", "destructive"}, {"tier", "1", "3"}}
	if c := got.Held[0].Changes; len(c) != 3 || c[0] != want[0] || c[1] != want[1] || c[2] != want[2] {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{trust.Review, trust.Approve} {
		call := &tool.Call{Tool: name, Args: json.RawMessage(`{"tools":["a.echo"]}`), Caller: tool.Principal{ID: "eve"}}
		if _, err := trust.New(d).Invoke(t.Context(), call, tool.Discard); tool.CodeOf(err) != tool.CodeAccessDenied || len(d.approved) > 0 {
			t.Errorf("%s by somebody who is no operator: %v", name, err)
		}
	}
}
