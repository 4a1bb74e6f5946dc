package ask_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

var _ ask.Marks = (*store.OutcomeTable)(nil)

// A teller is a tool that asks, and returns the answers.
type teller struct {
	ask  *tool.Ask
	ran  int
	last tool.Call
}

func (t *teller) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	t.ran++
	t.last = *c
	if c.Resume == "" {
		return &tool.Result{OK: true, Ask: t.ask}, nil
	}
	return &tool.Result{OK: true, Output: c.Answers}, nil
}

func nameForm() json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"],"additionalProperties":false}`)
}

// behind puts both stages in front of a tool.
func behind(q *ask.Questions, h tool.Handler) tool.Handler { return q.Answers(nil)(q.Carry(nil)(h)) }

func first() *tool.Call {
	return &tool.Call{ID: "1", Tool: "t", Session: "s", Args: json.RawMessage(`{"a":1,"b":[2]}`), Caller: tool.Principal{ID: "ada"}}
}

// question makes the first call, and returns the second one, with this answer.
func question(t *testing.T, h tool.Handler, answers string) *tool.Call {
	t.Helper()
	r, err := h.Invoke(t.Context(), first(), tool.Discard)
	if err != nil || r.Ask == nil || r.OK || r.Ask.ID == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	c := first()
	c.Resume, c.Answers = r.Ask.ID, json.RawMessage(answers)
	return c
}

func want(t *testing.T, h tool.Handler, c *tool.Call, reason, words string) {
	t.Helper()
	r, err := h.Invoke(t.Context(), c, tool.Discard)
	if e := tool.AsError(err); err == nil || e.Reason != reason || !strings.Contains(e.Message, words) {
		t.Errorf("%+v, %v; want the reason %s, and %q", r, err, reason, words)
	}
}

func TestAnAnswerReachesTheToolWithItsOwnId(t *testing.T) {
	told := &teller{ask: &tool.Ask{ID: "mine", Message: "who?", Schema: nameForm()}}
	h := behind(ask.New(ask.Options{}), told)
	c := question(t, h, `{"name":"Ada"}`)
	if strings.Contains(c.Resume, "mine") || len(c.Resume) > 1000 {
		t.Errorf("the id is %s", c.Resume)
	}
	c.Args = json.RawMessage("{ \"b\": [2],\n \"a\": 1 }") // equal arguments
	r, err := h.Invoke(t.Context(), c, tool.Discard)
	if err != nil || string(r.Output) != `{"name":"Ada"}` || told.last.Resume != "mine" {
		t.Errorf("%+v, %v, with the id %q", r, err, told.last.Resume)
	}
}

func TestAnAnswerToAnotherCallIsRefusedAndNothingRuns(t *testing.T) {
	told := &teller{ask: &tool.Ask{ID: "mine", Schema: nameForm()}}
	h := behind(ask.New(ask.Options{}), told)
	for name, change := range map[string]func(*tool.Call){
		"another caller":  func(c *tool.Call) { c.Caller.ID = "eve" },
		"another session": func(c *tool.Call) { c.Session = "other" },
		"other arguments": func(c *tool.Call) { c.Args = json.RawMessage(`{"a":1,"b":[3]}`) },
		"another tool":    func(c *tool.Call) { c.Tool = "u" },
		"another source's tool": func(c *tool.Call) {
			c.Spec = &tool.Spec{Name: "t", Source: "other"}
		},
		"an id that was made up": func(c *tool.Call) { c.Resume = "mine" },
		"an id that is cut":      func(c *tool.Call) { c.Resume = c.Resume[:len(c.Resume)-4] },
		"an id with more":        func(c *tool.Call) { c.Resume += "AAAA" },
		"no id":                  func(c *tool.Call) { c.Resume = "" },
		"a huge id":              func(c *tool.Call) { c.Resume = strings.Repeat("A", 1<<20) },
		"another program's id": func(c *tool.Call) {
			*c = *question(t, behind(ask.New(ask.Options{}), &teller{ask: told.ask}), `{"name":"Ada"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := question(t, h, `{"name":"Ada"}`)
			ran := told.ran
			change(c)
			want(t, h, c, ask.Unknown, "")
			kit.Equal(t, told.ran, ran, "the tool ran")
		})
	}
}

// For another caller's id the error is the same as for a made-up one.
func TestAnIdTellsNothingToOthers(t *testing.T) {
	h := behind(ask.New(ask.Options{}), &teller{ask: &tool.Ask{ID: "mine", Schema: nameForm()}})
	c := question(t, h, `{"name":"Ada"}`)
	c.Caller.ID = "eve"
	_, err := h.Invoke(t.Context(), c, tool.Discard)
	c.Resume = "made-up"
	if _, other := h.Invoke(t.Context(), c, tool.Discard); err == nil || other == nil || err.Error() != other.Error() {
		t.Errorf("%v, and %v", err, other)
	}
}

func TestEveryChangedByteOfAnIDIsDetected(t *testing.T) {
	told := &teller{ask: &tool.Ask{ID: "mine", Schema: nameForm()}}
	h := behind(ask.New(ask.Options{}), told)
	c := question(t, h, `{"name":"Ada"}`)
	id := c.Resume
	for i := range len(id) {
		other := byte('A')
		if id[i] == other {
			other = 'B'
		}
		c.Resume = id[:i] + string(other) + id[i+1:]
		if r, err := h.Invoke(t.Context(), c, tool.Discard); err == nil || tool.AsError(err).Reason != ask.Unknown {
			t.Fatalf("byte %d: %+v, %v", i, r, err)
		}
	}
	kit.Equal(t, told.ran, 1, "runs of the tool")
}

func TestAQuestionIsAnsweredOnce(t *testing.T) {
	for name, marks := range map[string]ask.Marks{"in memory": nil, "in a store": openStore(t).Outcomes()} {
		t.Run(name, func(t *testing.T) {
			told := &teller{ask: &tool.Ask{ID: "mine", Schema: nameForm()}}
			keys := secret.NewKeyed(func() ([]byte, error) { return []byte("a key that programs share"), nil })
			h := behind(ask.New(ask.Options{Marks: marks, Keys: keys}), told)
			c := question(t, h, `{"name":"Ada"}`)
			// Refused answers do not count as an answer.
			c.Answers = json.RawMessage(`{}`)
			want(t, h, c, ask.Invalid, "name")
			c.Answers = json.RawMessage(`{"name":"Ada"}`)
			kit.Must(h.Invoke(t.Context(), c, tool.Discard))(t)
			ran := told.ran
			want(t, h, c, ask.Answered, "answered already")
			c.ID = "another"
			want(t, h, c, ask.Answered, "answered already")
			if marks != nil { // nor in another process
				other := behind(ask.New(ask.Options{Marks: marks, Keys: keys}), told)
				want(t, other, c, ask.Answered, "answered already")
			}
			kit.Equal(t, told.ran, ran, "the tool ran again")
		})
	}
}

func openStore(t *testing.T) *store.DB {
	t.Helper()
	db := kit.Must(sqlite.Open(filepath.Join(t.TempDir(), "toolpost.db"), store.Options{}))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A job whose process ended while it ran is restarted with its answer; another job does not get it.
func TestAJobThatIsBegunAgainStillHasItsAnswer(t *testing.T) {
	h := behind(ask.New(ask.Options{}), &teller{ask: &tool.Ask{ID: "mine", Schema: nameForm()}})
	c := question(t, h, `{"name":"Ada"}`)
	c.Background = true
	for range 2 {
		kit.Must(h.Invoke(t.Context(), c, tool.Discard))(t)
	}
	c.ID = "2"
	want(t, h, c, ask.Answered, "answered already")
}

func TestAQuestionGrowsOld(t *testing.T) {
	h := behind(ask.New(ask.Options{TTL: time.Nanosecond}), &teller{ask: &tool.Ask{ID: "mine"}})
	want(t, h, question(t, h, `{}`), ask.Expired, "too old")
}

func TestAnswersMustFitTheirQuestions(t *testing.T) {
	several := []tool.Need{
		{Key: "who", Kind: tool.NeedForm, Schema: nameForm()}, {Key: "page", Kind: tool.NeedLink},
		{Key: "says", Kind: tool.NeedModel, Optional: true}, {Key: "where", Kind: tool.NeedRoots, Optional: true},
	}
	for _, c := range []struct {
		ask            tool.Ask
		answers, words string // empty words mean that the answers are accepted
	}{
		{tool.Ask{Schema: nameForm()}, `{"name":"Ada"}`, ""},
		{tool.Ask{Schema: nameForm()}, `{"name":""}`, "/name"},
		{tool.Ask{Schema: nameForm()}, `{"name":"Ada","more":1}`, "more"},
		{tool.Ask{Schema: nameForm()}, `{"name":"Ada","name":"Eve"}`, "duplicate"},
		{tool.Ask{Schema: nameForm()}, `"Ada"`, "object"},
		{tool.Ask{Schema: nameForm()}, `{"name":`, "JSON"},
		{tool.Ask{Schema: nameForm()}, ``, "without answers"},
		{tool.Ask{}, `7`, ""},
		{tool.Ask{}, `7 7`, "JSON"},
		{tool.Ask{Needs: several}, `{"who":{"action":"accept","content":{"name":"Ada"}},"page":{"action":"accept"}}`, ""},
		{tool.Ask{Needs: several}, `{"who":{"action":"decline"},"page":{"action":"cancel"}}`, ""},
		{tool.Ask{Needs: several}, `{"who":{"action":"accept","content":{"name":7}},"page":{"action":"accept"}}`, "/who/content/name"},
		{tool.Ask{Needs: several}, `{"who":{"error":{}},"page":{"action":"accept"}}`, ""},
		{tool.Ask{Needs: several}, `{"who":{"error":{},"action":"accept","content":{"name":7}},"page":{"action":"accept"}}`, "/who/content/name"},
		{tool.Ask{Needs: several}, `{"who":{"action":"accept"},"page":{"action":"accept"}}`, "no content"},
		{tool.Ask{Needs: several}, `{"who":{"action":"sure"},"page":{"action":"accept"}}`, "accept, decline or cancel"},
		{tool.Ask{Needs: several}, `{"page":{"action":"accept"}}`, `"who" is missing`},
		{tool.Ask{Needs: several}, `{"who":7,"page":{"action":"accept"}}`, "who"},
		{tool.Ask{Needs: several}, `[]`, "a member for each"},
		{tool.Ask{Needs: several}, `null`, "a member for each"},
		{tool.Ask{Needs: several[2:]}, `{"says":{"content":{}}}`, "role, content and model"},
		{tool.Ask{Needs: several[2:]}, `{"says":{"role":"assistant","content":{"type":"text","text":"hi"}}}`, "model"},
		{tool.Ask{Needs: several[2:]}, `{"says":{"role":"assistant","model":"m","content":{"type":"text","text":"hi"}},"where":{"roots":[]}}`, ""},
		{tool.Ask{Needs: several[2:]}, `{"where":{}}`, "list of roots"},
		{tool.Ask{Needs: several[2:]}, `{}`, ""},
	} {
		t.Run(c.answers, func(t *testing.T) {
			told := &teller{ask: &c.ask}
			h := behind(ask.New(ask.Options{}), told)
			call := question(t, h, c.answers)
			if c.words != "" {
				want(t, h, call, ask.Invalid, c.words)
				return
			}
			kit.Check(t, kit.Err(h.Invoke(t.Context(), call, tool.Discard)))
		})
	}
}

func TestAToolGetsNoAnswerThatItDidNotAskFor(t *testing.T) {
	told := &teller{ask: &tool.Ask{ID: "mine", Needs: []tool.Need{{Key: "page", Kind: tool.NeedLink}}}}
	h := behind(ask.New(ask.Options{}), told)
	r, err := h.Invoke(t.Context(), question(t, h, `{"more":{"action":"accept"},"page":{"action":"accept"}}`), tool.Discard)
	if err != nil || string(r.Output) != `{"page":{"action":"accept"}}` {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestInvalidQuestionIsAToolError(t *testing.T) {
	for words, a := range map[string]tool.Ask{
		"does not work":   {Schema: json.RawMessage(`{"type":7}`)},
		"empty, or there": {Needs: []tool.Need{{Key: "a", Kind: tool.NeedForm}, {Key: "a", Kind: tool.NeedForm}}},
		"of the kind":     {Needs: []tool.Need{{Key: "a", Kind: "song"}}},
		"the most":        {Needs: make([]tool.Need, 33)},
		"must be an obj":  {Needs: []tool.Need{{Key: "a", Kind: tool.NeedForm, Params: json.RawMessage(`[]`)}}},
		"too large":       {ID: incompressible(60_000)},
	} {
		h := behind(ask.New(ask.Options{}), &teller{ask: &a})
		r, err := h.Invoke(t.Context(), first(), tool.Discard)
		kit.Refused(t, err, tool.CodeProtocol, words, words, r)
	}
}

func incompressible(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x", i*2654435761)
	}
	return b.String()
}

func TestACallThatAsksNothingIsUntouched(t *testing.T) {
	r := &tool.Result{OK: true}
	c := first()
	h := behind(ask.New(ask.Options{}), tool.HandlerFunc(func(_ context.Context, got *tool.Call, _ tool.Sink) (*tool.Result, error) {
		kit.Equal(t, got, c, "the call was copied")
		return r, nil
	}))
	if got, err := h.Invoke(t.Context(), c, tool.Discard); got != r || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
