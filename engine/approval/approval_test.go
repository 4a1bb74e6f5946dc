package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/approval"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
)

// A world is the stage in front of a tool that counts its runs.
type world struct {
	*approval.Approvals
	store approval.Store
	h     tool.Handler
	ran   atomic.Int64
	mu    sync.Mutex
	last  tool.Call
	does  func(c *tool.Call) (*tool.Result, error) // nil means success
}

func newWorld() *world {
	w := &world{store: new(store.Approvals)}
	w.restart()
	return w
}

// restart makes another process over the same store.
func (w *world) restart() {
	w.Approvals = approval.New(approval.Options{Store: w.store, Decider: decider{w}, Redact: func(args json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(args), "hunter2", "[redacted]"))
	}})
	w.h = w.For(nil)(tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		w.ran.Add(1)
		w.mu.Lock()
		w.last = *c
		w.mu.Unlock()
		if w.does != nil {
			return w.does(c)
		}
		return &tool.Result{OK: true}, nil
	}))
}

// A decider replaces approvals.decide, which callers may use if their rights allow it.
type decider struct{ w *world }

func (decider) May(_ context.Context, p tool.Principal) error {
	if !p.May(&tool.Spec{Name: "approvals.decide", Source: "toolpost"}) {
		return errors.New("no such tool")
	}
	return nil
}

func (d decider) Decide(ctx context.Context, c *tool.Call, args json.RawMessage) error {
	var a struct {
		ID      string
		Approve bool
		Reason  string
		For     string
	}
	err := json.Unmarshal(args, &a)
	if err == nil {
		_, err = d.w.Approvals.Decide(ctx, c.Caller, a.ID, approval.Decision{Approve: a.Approve, Reason: a.Reason, For: a.For})
	}
	return err
}

func spec() *tool.Spec {
	return &tool.Spec{Name: "deleteFile", Source: "files", Tier: 3, Effects: tool.Effects{Writes: true}, Walls: "no network"}
}

func asks(approvers ...tool.Glob) tool.ConsentRule {
	return tool.ConsentRule{
		Name: "deletes", Approvers: approvers, Timeout: 15 * time.Minute, Remember: []string{"session", "arguments", "hour"},
	}
}

// call returns a call of ada, which bob or the owner may approve.
func call(change ...func(*tool.Call)) *tool.Call {
	c := &tool.Call{
		ID: tool.NewID(), Tool: "deleteFile", Session: "s", Args: json.RawMessage(`{"path":"a","password":"hunter2"}`),
		Caller: tool.Principal{ID: "ada", Door: "http"}, Spec: spec(), Notes: tool.Notes{Record: &tool.Record{}},
		Consent: &tool.Consent{
			Rules: []tool.ConsentRule{asks("owner", "bob")}, Touches: tool.Touches{Writes: []string{"/w/a"}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func resume(id string) func(*tool.Call)  { return func(c *tool.Call) { c.Resume = id } }
func args(text string) func(*tool.Call)  { return func(c *tool.Call) { c.Args = json.RawMessage(text) } }
func caller(id string) func(*tool.Call)  { return func(c *tool.Call) { c.Caller.ID = id } }
func session(id string) func(*tool.Call) { return func(c *tool.Call) { c.Session = id } }
func rules(list ...tool.ConsentRule) func(*tool.Call) {
	return func(c *tool.Call) { c.Consent = &tool.Consent{Rules: list, Touches: c.Consent.Touches} }
}

var (
	bob   = tool.Principal{ID: "bob", Door: "http"}
	owner = tool.Principal{ID: "local", Door: "cli", Operates: true}
	eve   = tool.Principal{ID: "eve", Door: "http", Rights: &tool.Rights{Roles: []string{"guest"}}}
)

// asked makes a call that waits, and returns the id.
func (w *world) asked(t *testing.T, c *tool.Call) string {
	t.Helper()
	r, err := w.h.Invoke(t.Context(), c, tool.Discard)
	if err != nil || r.OK || r.Ask == nil || r.Ask.Kind != tool.AskApproval || !approval.IsID(r.Ask.ID) {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.Ask.ID
}

func (w *world) runs(t *testing.T, c *tool.Call) {
	t.Helper()
	before := w.ran.Load()
	r, err := w.h.Invoke(t.Context(), c, tool.Discard)
	if err != nil || !r.OK || w.ran.Load() != before+1 {
		t.Fatalf("%+v, %v; it ran %d times", r, err, w.ran.Load()-before)
	}
}

func (w *world) refused(t *testing.T, c *tool.Call, reason string) *tool.Error {
	t.Helper()
	before := w.ran.Load()
	r, err := w.h.Invoke(t.Context(), c, tool.Discard)
	if e := tool.AsError(err); err == nil || e.Reason != reason || w.ran.Load() != before {
		t.Fatalf("%+v, %v; want the reason %s", r, err, reason)
	}
	return tool.AsError(err)
}

func (w *world) decide(t *testing.T, p tool.Principal, id string, d approval.Decision) {
	t.Helper()
	kit.Must(w.Decide(t.Context(), p, id, d))(t)
}

func yes(way string) approval.Decision {
	return approval.Decision{Approve: true, Reason: "fine", For: way}
}

func TestACallRunsOnceWhenItIsApproved(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	if again := w.asked(t, call(resume(id))); again != id {
		t.Errorf("it asks as %s, and then as %s", id, again)
	}
	kit.Equal(t, w.asked(t, call()), id, "the same call without the id asks as")
	w.decide(t, bob, id, yes(""))
	c := call(resume(id))
	w.runs(t, c)
	if got := c.Record.Approval; got.ID != id || got.State != "approved" || got.By != "bob" || got.Reason != "fine" || got.At.IsZero() {
		t.Errorf("the record has %+v", got)
	}
	if w.last.Resume != "" || w.last.Answers != nil {
		t.Errorf("the tool got the id %q", w.last.Resume)
	}
	w.refused(t, call(resume(id)), approval.Unknown)
	if another := w.asked(t, call()); another == id {
		t.Error("a used approval is asked for again")
	}
}

func TestACallWithoutTheIdPicksItsApprovalUpOnce(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	w.decide(t, bob, id, yes(""))
	w.runs(t, call(args(`{"password":"hunter2","path":"a"}`))) // equal arguments
	w.refused(t, call(resume(id)), approval.Unknown)
	w.asked(t, call())
}

func TestAnIdIsOfNoUseForAnotherCall(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	w.decide(t, bob, id, yes(""))
	madeUp := "apr_" + strings.Repeat("a", 20)
	plain := w.refused(t, call(resume(madeUp)), approval.Unknown).Error()
	for name, change := range map[string]func(*tool.Call){
		"another caller":  caller("eve"),
		"another session": session("t"),
		"other arguments": args(`{"path":"b"}`),
		"another tool":    func(c *tool.Call) { c.Spec = &tool.Spec{Name: "writeFile", Source: "files"} },
		"another source":  func(c *tool.Call) { c.Spec = &tool.Spec{Name: "deleteFile", Source: "other"} },
		"other walls":     func(c *tool.Call) { c.Guarantees.NoNetwork = true },
		"a job":           func(c *tool.Call) { c.Background = true },
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.refused(t, call(resume(id), change), approval.Unknown).Error(); got != plain {
				t.Errorf("it says %q, and of an id that was made up %q", got, plain)
			}
		})
	}
	w.runs(t, call(resume(id)))
	kit.Equal(t, w.refused(t, call(resume(id)), approval.Unknown).Error(), plain, "of a used id it says")
}

func TestDenialNamesApproverAndReason(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	w.decide(t, bob, id, approval.Decision{Reason: "not on a Friday"})
	for range 2 {
		c := call(resume(id))
		e := w.refused(t, c, approval.WasDenied)
		if e.Code != tool.CodeAccessDenied || !strings.Contains(e.Message, "bob") || !strings.Contains(e.Message, "not on a Friday") ||
			!tool.NotRun(e) || c.Record.Approval.State != "denied" || c.Record.Approval.By != "bob" {
			t.Errorf("%v, with the details %s and the record %+v", e, e.Details, c.Record.Approval)
		}
	}
	if another := w.asked(t, call()); another == id {
		t.Error("a call that is made anew does not ask anew")
	}
}

func TestDenialWithoutIDIsReportedOnce(t *testing.T) {
	w := newWorld()
	w.decide(t, bob, w.asked(t, call()), approval.Decision{})
	w.refused(t, call(), approval.WasDenied)
	w.asked(t, call())
}

func TestOnlyApproversSeeAndDecide(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call(rules(asks("bob", "ops"), asks("bob", "sec*"))))
	ops := tool.Principal{ID: "otto", Rights: &tool.Rights{Roles: []string{"ops"}}}
	both := tool.Principal{ID: "olga", Rights: &tool.Rights{Roles: []string{"ops", "security"}}}
	fake := tool.Principal{ID: "eve", Rights: &tool.Rights{Roles: []string{"owner "}}}
	for _, p := range []tool.Principal{eve, ops, fake, {ID: "ada"}, {}} {
		_, shown := w.Show(t.Context(), p, id)
		_, decided := w.Decide(t.Context(), p, id, yes(""))
		_, revoked := w.Revoke(t.Context(), p, id)
		list, err := w.List(t.Context(), p, approval.All, 100)
		for _, e := range []error{shown, decided, revoked} {
			if tool.CodeOf(e) != tool.CodeNotFound || e.Error() != missing(id) {
				t.Errorf("%s is told %v", p.ID, e)
			}
		}
		if err != nil || len(list) != 0 {
			t.Errorf("%s sees %+v, %v", p.ID, list, err)
		}
	}
	for _, p := range []tool.Principal{bob, both} {
		if list, err := w.List(t.Context(), p, approval.Waiting, 100); err != nil || len(list) != 1 || list[0].ID != id {
			t.Errorf("%s sees %+v, %v", p.ID, list, err)
		}
	}
	w.decide(t, both, id, yes(""))
	_, err := w.Decide(t.Context(), bob, id, approval.Decision{})
	kit.Refused(t, err, tool.CodeConflict, "olga", "the second decision gives")
}

// Otherwise a call whose approvers are misspelt would wait, and no one could see it.
func TestOperatorSeesAndDeniesWhatOthersApprove(t *testing.T) {
	w := newWorld()
	for _, by := range []string{"ada", owner.ID} { // also its own call
		id := w.asked(t, call(rules(asks("onwer")), caller(by)))
		if list, err := w.List(t.Context(), owner, approval.Waiting, 100); err != nil || len(list) != 1 || list[0].ID != id {
			t.Errorf("the operator sees %+v, %v", list, err)
		}
		kit.Check(t, kit.Err(w.Show(t.Context(), owner, id)))
		_, err := w.Decide(t.Context(), owner, id, yes(""))
		kit.Refused(t, err, tool.CodeAccessDenied, "only onwer can approve this call of", "an approval gives")
		w.decide(t, owner, id, approval.Decision{})
	}
}

func missing(id string) string {
	return fmt.Sprintf("not_found: there is no approval %q; `toolpost approvals` lists those that wait for you", id)
}

func TestOwnerIsAnyOperator(t *testing.T) {
	for _, id := range []string{"owner", "local"} {
		w := newWorld()
		w.decide(t, tool.Principal{ID: id, Operates: true}, w.asked(t, call(rules(asks("owner")))), yes(""))
		_, err := w.Decide(t.Context(), tool.Principal{ID: "eve"}, w.asked(t, call(rules(asks("owner")), args(`{}`))), yes(""))
		kit.Refused(t, err, tool.CodeNotFound, "")
	}
}

func TestOwnCallIsApprovedOnlyIfTheRuleAllowsIt(t *testing.T) {
	w := newWorld()
	byBob := caller("bob")
	id := w.asked(t, call(byBob))
	if _, err := w.Decide(t.Context(), bob, id, yes("")); tool.CodeOf(err) != tool.CodeAccessDenied || tool.AsError(err).Reason != approval.OwnCall {
		t.Errorf("%v", err)
	}
	answered := call(byBob, resume(id), func(c *tool.Call) { c.Answers = json.RawMessage(`{"approve":true}`) })
	w.refused(t, answered, approval.OwnCall)
	w.asked(t, call(byBob))

	self := asks("bob")
	self.Self = true
	strict := asks("bob", "owner")
	strict.Name = "strict"
	id = w.asked(t, call(byBob, rules(self, strict))) // each of the rules has to allow it
	if _, err := w.Decide(t.Context(), bob, id, yes("")); tool.AsError(err) == nil || tool.AsError(err).Reason != approval.OwnCall {
		t.Errorf("%v", err)
	}
	w.decide(t, bob, w.asked(t, call(byBob, rules(self))), yes(""))
	w.runs(t, call(byBob, rules(self)))
}

func TestCallerMayApproveInPlaceIfAllowed(t *testing.T) {
	self := asks("ada")
	self.Self = true
	for name, c := range map[string]struct {
		answers, reason string
		code            tool.Code
	}{
		"yes":            {`{"approve":true,"reason":"mine"}`, "", ""},
		"no":             {`{"approve":false,"reason":"mine"}`, approval.WasDenied, tool.CodeAccessDenied},
		"something else": {`{"approve":"yes"}`, "invalid_answers", tool.CodeInvalidInput},
		"too much":       {`{"approve":true,"by":"bob"}`, "invalid_answers", tool.CodeInvalidInput},
		"nothing":        {`{}`, "invalid_answers", tool.CodeInvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			r, err := w.h.Invoke(t.Context(), call(rules(self)), tool.Discard)
			if err != nil || r.Ask == nil || !r.Ask.Awaits.Self || !strings.Contains(string(r.Ask.Schema), `"approve"`) {
				t.Fatalf("%+v, %v", r, err)
			}
			again := call(rules(self), resume(r.Ask.ID), func(x *tool.Call) { x.Answers = json.RawMessage(c.answers) })
			if c.reason == "" {
				w.runs(t, again)
				if again.Record.Approval.By != "ada" || again.Record.Approval.Reason != "mine" {
					t.Errorf("%+v", again.Record.Approval)
				}
				return
			}
			if e := w.refused(t, again, c.reason); e.Code != c.code {
				t.Errorf("%v", e)
			}
		})
	}
	// It is offered what it may decide: only an operator can have an approval for ever written to the config.
	self.Remember = append(self.Remember, approval.ForAlways)
	for operates, want := range map[bool]string{true: `["call","session","arguments","hour","always"]`, false: `["call","session","arguments","hour"]`} {
		h := approval.New(approval.Options{Store: new(store.Approvals), Decider: decider{}, Config: "toolpost.yaml"}).For(nil)(nil)
		r, err := h.Invoke(t.Context(), call(rules(self), func(x *tool.Call) { x.Caller.Operates = operates }), tool.Discard)
		kit.Contains(t, string(kit.Must(r, err)(t).Ask.Schema), `"enum":`+want+`}`)
	}
	// A caller that may not decide is not asked, and its answer counts as an attempt to decide.
	w := newWorld()
	r, err := w.h.Invoke(t.Context(), call(), tool.Discard)
	if err != nil || r.Ask.Schema != nil || r.Ask.Awaits.Self {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = w.h.Invoke(t.Context(), call(resume(r.Ask.ID), func(x *tool.Call) { x.Answers = json.RawMessage(`{"approve":true}`) }),
		tool.Discard); tool.CodeOf(err) != tool.CodeAccessDenied || tool.AsError(err).Reason != approval.NoRight ||
		!strings.Contains(err.Error(), `"ada" is not an approver of its own call of deleteFile; the approvers are owner`) || w.ran.Load() != 0 {
		t.Errorf("%v", err)
	}
}

func TestApprovalShowsTheCallWithoutSecrets(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	a, err := w.Show(t.Context(), owner, id)
	if err != nil || a.Tool != "deleteFile" || a.Caller != "ada" || a.Session != "s" || a.Walls != "no network" || a.Tier != 3 ||
		len(a.Touches.Writes) != 1 || !strings.Contains(string(a.Args), `"path":"a"`) || strings.Contains(string(a.Args), "hunter2") {
		t.Errorf("%+v, %v", a, err)
	}
	long := w.asked(t, call(args(`{"path":"`+strings.Repeat("x", 100_000)+`"}`)))
	if a, err = w.Show(t.Context(), owner, long); err != nil || a.Args != nil || a.Omitted < 100_000 {
		t.Errorf("%d bytes, %d left out, %v", len(a.Args), a.Omitted, err)
	}
}

func TestAnApprovalIsRememberedAsItWasGiven(t *testing.T) {
	other := asks("owner", "bob")
	other.Name = "others"
	forgetful := asks("owner", "bob")
	forgetful.Remember = nil
	newly := asks("owner", "bob", "carl")
	for _, c := range []struct {
		way           string
		pass, refused map[string]func(*tool.Call)
	}{
		{"session", map[string]func(*tool.Call){
			"the same": session("s"), "other arguments": args(`{"path":"b"}`),
			"more walls": func(c *tool.Call) { c.Guarantees.NoNetwork = true },
		}, map[string]func(*tool.Call){
			"another session": session("t"), "no session": session(""),
		}},
		{"arguments", map[string]func(*tool.Call){"the same": session("s"), "another session": session("t")}, map[string]func(*tool.Call){
			"other arguments": args(`{"path":"b"}`),
		}},
		{"hour", map[string]func(*tool.Call){"other arguments in another session": func(c *tool.Call) {
			args(`{"path":"b"}`)(c)
			session("")(c)
		}}, nil},
	} {
		t.Run(c.way, func(t *testing.T) {
			w := newWorld()
			id := w.asked(t, call())
			w.decide(t, bob, id, yes(c.way))
			w.runs(t, call(resume(id)))
			for name, change := range c.pass {
				t.Log(name)
				again := call(change)
				w.runs(t, again)
				if again.Record.Approval.By != "bob" || again.Record.Approval.ID != id {
					t.Errorf("the record has %+v", again.Record.Approval)
				}
			}
			barred := map[string]func(*tool.Call){
				"another caller": caller("eve"), "another tool": func(c *tool.Call) { c.Spec = &tool.Spec{Name: "deleteFile", Source: "other"} },
				"a rule more":          rules(asks("owner", "bob"), other),
				"a rule of others":     rules(newly),
				"a rule that forgets":  rules(forgetful),
				"another rule instead": rules(other),
			}
			for name, change := range c.refused {
				barred[name] = change
			}
			for name, change := range barred {
				t.Log(name)
				w.asked(t, call(change))
			}
			list, err := w.List(t.Context(), owner, approval.Remembered, 100)
			if err != nil || len(list) != 1 || list[0].ID != id || list[0].For != c.way {
				t.Errorf("remembered are %+v, %v", list, err)
			}
			kit.Check(t, kit.Err(w.Revoke(t.Context(), owner, id)))
			w.asked(t, call(args(`{"path":"c"}`)))
			w.asked(t, call())
			kit.Refused(t, kit.Err(w.Revoke(t.Context(), owner, id)), tool.CodeConflict, "", "revoked twice")
		})
	}
}

// Earlier versions named an agent that named itself as they did one whose name was given.
func TestOldApprovalOfASelfNamedAgentCoversNoOther(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call(caller("agent/pen")))
	w.decide(t, bob, id, yes("hour"))
	w.runs(t, call(caller("agent/pen"), session("t")))
	kit.Must(w.store.Change(t.Context(), id, func(e *approval.Entry) error { e.Claimed = true; return nil }))(t)
	w.asked(t, call(caller("agent/pen"), session("t")))
}

// An approver who saw walls has not approved a call without them.
func TestRememberedApprovalRequiresTheSameWalls(t *testing.T) {
	w := newWorld()
	walled := func(c *tool.Call) { c.Guarantees.NoNetwork = true }
	w.decide(t, bob, w.asked(t, call(walled)), yes("hour"))
	w.runs(t, call(walled, args(`{"path":"b"}`)))
	w.asked(t, call(args(`{"path":"b"}`)))
}

func TestApprovalForAnHourExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.decide(t, bob, w.asked(t, call()), yes("hour"))
		time.Sleep(59 * time.Minute)
		w.runs(t, call(args(`{"path":"b"}`)))
		time.Sleep(2 * time.Minute)
		w.asked(t, call(args(`{"path":"b"}`)))
		kit.Equal(t, len(kit.Must(w.List(t.Context(), owner, approval.Remembered, 100))(t)), 0, "remembered are")
	})
}

func TestUnallowedRememberIsRefused(t *testing.T) {
	w := newWorld()
	only := asks("bob")
	only.Remember = []string{"hour"}
	for way, c := range map[string]*tool.Call{
		"session": call(session("")), "arguments": call(rules(only)), "ever": call(),
	} {
		id := w.asked(t, c)
		kit.Refused(t, kit.Err(w.Decide(t.Context(), bob, id, yes(way))), tool.CodeInvalidInput, "", way)
		if _, err := w.Decide(t.Context(), bob, id, approval.Decision{For: "hour"}); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("a denial for an hour: %v", err)
		}
		kit.Equal(t, kit.Must(w.Show(t.Context(), bob, id))(t).State, approval.Waiting)
	}
}

func TestNoAnswerInTimeIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		id := w.asked(t, call())
		time.Sleep(15*time.Minute - time.Second)
		w.asked(t, call(resume(id)))
		time.Sleep(time.Second)
		c := call(resume(id))
		w.refused(t, c, approval.TooLate)
		kit.Equal(t, c.Record.Approval.State, "expired", c.Record.Approval)
		kit.Refused(t, kit.Err(w.Decide(t.Context(), bob, id, yes(""))), tool.CodeConflict, "", "decided late")
		late := w.asked(t, call())
		w.decide(t, bob, late, yes(""))
		time.Sleep(15 * time.Minute)
		w.refused(t, call(resume(late)), approval.TooLate) // approved, but not used in time
		w.asked(t, call())
	})
}

func TestANewRuleHasToBeAskedAboutToo(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	w.decide(t, bob, id, yes(""))
	more := asks("carl")
	more.Name = "more"
	both := rules(asks("owner", "bob"), more)
	if another := w.asked(t, call(resume(id), both)); another == id {
		t.Error("what bob approved is good for carl's rule")
	}
	w.runs(t, call(resume(id), rules(asks("owner", "bob"))))
}

// The same arguments can name another file later: x.txt is the one in the first root that has one.
func TestCallThatTouchesAnotherFileNeedsANewApproval(t *testing.T) {
	touching := func(path string) func(*tool.Call) {
		return func(c *tool.Call) { c.Consent.Touches = tool.Touches{Writes: []string{path}} }
	}
	for _, how := range []string{approval.ForCall, approval.ForArguments} {
		w := newWorld()
		id := w.asked(t, call(touching("/one/x.txt")))
		w.decide(t, bob, id, yes(how))
		other := w.asked(t, call(touching("/two/x.txt"), resume(id)))
		kit.Equal(t, w.asked(t, call(touching("/two/x.txt"))), other, "the approval that it waits for")
		w.runs(t, call(touching("/one/x.txt"), resume(id)))
	}
}

func TestChangedToolNeedsANewApproval(t *testing.T) {
	w := newWorld()
	wider := func(c *tool.Call) { s := *c.Spec; s.Walls, c.Spec = "network", &s }
	worse := func(c *tool.Call) { s := *c.Spec; s.Effects.Destructive, c.Spec = true, &s }
	id := w.asked(t, call())
	w.decide(t, bob, id, yes("hour"))
	w.refused(t, call(resume(id), wider), approval.Unknown)
	w.asked(t, call(wider))
	w.asked(t, call(worse))
	w.runs(t, call(resume(id)))
	w.runs(t, call(args(`{"path":"b"}`)))
}

// The name of a rule proves little: it can be an index.
func TestChangedRuleInvalidatesRememberedApproval(t *testing.T) {
	w := newWorld()
	w.decide(t, bob, w.asked(t, call()), yes("hour"))
	w.runs(t, call(args(`{"path":"b"}`)))
	other := asks("owner", "bob")
	other.About = "more than before"
	w.asked(t, call(args(`{"path":"b"}`), rules(other)))
}

func TestCallRefusedByALaterStageKeepsItsApproval(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	w.decide(t, bob, id, yes(""))
	w.does = func(*tool.Call) (*tool.Result, error) {
		return nil, tool.BeforeRun(tool.Errorf(tool.CodeLeaseRequired, "a lease is needed"))
	}
	for range 2 {
		kit.Refused(t, kit.Err(w.h.Invoke(t.Context(), call(resume(id)), tool.Discard)), tool.CodeLeaseRequired, "")
	}
	w.does = func(*tool.Call) (*tool.Result, error) { return nil, errors.New("it began, and broke") }
	kit.Refused(t, kit.Err(w.h.Invoke(t.Context(), call(), tool.Discard)), tool.CodeInternal, "")
	w.refused(t, call(resume(id)), approval.Unknown)
}

func TestAQuestionOfTheToolGoesOnWithTheApprovedCall(t *testing.T) {
	w := newWorld()
	id := w.asked(t, call())
	w.decide(t, bob, id, yes(""))
	w.does = func(c *tool.Call) (*tool.Result, error) {
		if c.Resume == "" {
			return &tool.Result{Ask: &tool.Ask{ID: "a question, sealed", Message: "sure?"}}, nil
		}
		return &tool.Result{OK: true}, nil
	}
	if r, err := w.h.Invoke(t.Context(), call(resume(id)), tool.Discard); err != nil || r.Ask == nil || r.Ask.Kind != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	w.asked(t, call(resume("another question"))) // of a call that was not approved
	w.asked(t, call(resume("a question, sealed"), caller("eve")))
	w.runs(t, call(resume("a question, sealed")))
}

func TestAJobHasItsOwnApprovalAndMayBeBegunAgain(t *testing.T) {
	w := newWorld()
	job := func(c *tool.Call) { c.Background, c.ID = true, "job-1" }
	id := w.asked(t, call(job))
	if other := w.asked(t, call()); other == id {
		t.Error("another call has the job's approval")
	}
	kit.Equal(t, w.asked(t, call(job)), id, "the job that is begun again asks anew")
	w.decide(t, bob, id, yes(""))
	w.refused(t, call(resume(id)), approval.Unknown)
	w.runs(t, call(job, resume(id)))
	w.runs(t, call(job, resume(id))) // its process ended
	w.refused(t, call(resume(id), func(c *tool.Call) { c.Background, c.ID = true, "job-2" }), approval.Unknown)
}

// Each time the job is started, its calls have other ids.
func TestRestartedJobReusesItsApprovals(t *testing.T) {
	w := newWorld()
	made := func(c *tool.Call) { c.Background, c.Parent = true, "job-1" }
	id := w.asked(t, call(made))
	w.decide(t, bob, id, yes(""))
	w.runs(t, call(made))
	w.asked(t, call(made))
}

// A call that a job makes has another id each time: it is recognised by its content, like any other call.
func TestACallWithinAJobIsApprovedAsAnyOther(t *testing.T) {
	w := newWorld()
	inner := func(c *tool.Call) { c.Background, c.Parent = true, "job-1" }
	id := w.asked(t, call(inner))
	w.decide(t, bob, id, yes(""))
	w.runs(t, call(inner, resume(id)))
	w.refused(t, call(inner, resume(id)), approval.Unknown)
}

// One command can be as long as a request, and 200 calls of one caller may wait.
func TestShownApprovalIsBoundedAndReportsOmissions(t *testing.T) {
	w := newWorld()
	much := func(c *tool.Call) {
		c.Consent.Touches.Commands = [][]string{{"sh", strings.Repeat("x", 50_000)}, {"sh", strings.Repeat("y", 50_000)}}
		for i := range 300 {
			c.Consent.Touches.Writes = append(c.Consent.Touches.Writes, fmt.Sprint("/w/", i))
		}
	}
	long := args(`{"path":"` + strings.Repeat("x", 60_000) + `"}`)
	a, err := w.Show(t.Context(), owner, w.asked(t, call(much, long)))
	shown := len(a.Touches.Commands) + len(a.Touches.Writes)
	if err != nil || len(a.Touches.Commands) != 1 || shown >= 302 || a.More != 303-shown || len(a.Args) < 60_000 {
		t.Errorf("%d shown, %d more, %d bytes of arguments, %v", shown, a.More, len(a.Args), err)
	}
	for i := range 30 {
		w.asked(t, call(much, args(fmt.Sprintf(`{"n":%d,"path":"%s"}`, i, strings.Repeat("x", 60_000)))))
	}
	list, err := w.List(t.Context(), owner, approval.Waiting, 100)
	text, _ := json.Marshal(list)
	last := list[len(list)-1]
	if err != nil || len(list) != 31 || len(text) > 2<<20 || last.Args != nil || last.Omitted < 60_000 || last.More != 303 ||
		list[0].Args == nil {
		t.Errorf("%d approvals in %d bytes, the last with %d more: %v", len(list), len(text), last.More, err)
	}
}

func TestWaitEndsOnDecisionExpiryOrCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		id := w.asked(t, call())
		ended := make(chan error, 1)
		go func() { ended <- w.Wait(t.Context(), id) }()
		synctest.Wait()
		start := time.Now()
		w.decide(t, bob, id, yes(""))
		if err := <-ended; err != nil || time.Since(start) != 0 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		id = w.asked(t, call(args(`{}`)))
		other := approval.New(approval.Options{Store: w.store}) // another process
		go func() { ended <- other.Wait(t.Context(), id) }()
		synctest.Wait()
		w.decide(t, bob, id, approval.Decision{})
		if err := <-ended; err != nil || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		id = w.asked(t, call(args(`{"path":"c"}`)))
		late, end := context.WithTimeout(t.Context(), 20*time.Minute) // without expiry it would wait for ever
		defer end()
		if err := w.Wait(late, id); err != nil || time.Since(start) < 15*time.Minute || time.Since(start) > 16*time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if err := w.Wait(ctx, w.asked(t, call(args(`{"path":"d"}`)))); err == nil || err.Error() != "enough" {
			t.Error(err)
		}
		kit.Refused(t, w.Wait(t.Context(), "apr_"+strings.Repeat("b", 20)), tool.CodeNotFound, "")
	})
}

func TestConcurrentApprovalsRunEachCallOnce(t *testing.T) {
	w := newWorld()
	const calls, tries = 32, 8
	var decided atomic.Int64
	var wg sync.WaitGroup
	for i := range calls {
		mine := args(fmt.Sprintf(`{"path":"%d"}`, i))
		id := w.asked(t, call(mine))
		for n := range tries {
			wg.Go(func() {
				d := yes("")
				d.Approve = i%2 == 0
				if _, err := w.Decide(context.Background(), []tool.Principal{bob, owner}[n%2], id, d); err == nil {
					decided.Add(1)
				}
				_, _ = w.h.Invoke(context.Background(), call(mine, resume(id)), tool.Discard)
			})
		}
	}
	wg.Wait()
	if decided.Load() != calls || w.ran.Load() != calls/2 {
		t.Errorf("%d decisions, %d runs", decided.Load(), w.ran.Load())
	}
}

func TestWaitingApprovalsAreBounded(t *testing.T) {
	w := newWorld()
	for i := range 200 {
		w.asked(t, call(args(fmt.Sprintf(`{"path":"%d"}`, i))))
	}
	w.refused(t, call(), "approvals")
	w.asked(t, call(caller("carl")))
	w.asked(t, call(args(`{"path":"7"}`))) // it waits already
}

func TestIsIDRefusesForeignIDs(t *testing.T) {
	for _, text := range []string{"", "apr_", "apr_abc", "apr_" + strings.Repeat("A", 20), "apr_" + strings.Repeat("a", 21), "APR_" + strings.Repeat("a", 20)} {
		if approval.IsID(text) {
			t.Errorf("%q is taken for an id", text)
		}
	}
}

func TestCallWithoutConsentPassesUnchanged(t *testing.T) {
	w := newWorld()
	c := call(func(c *tool.Call) { c.Consent, c.Resume, c.Answers = nil, "a question", json.RawMessage(`{}`) })
	w.runs(t, c)
	if w.last.Resume != c.Resume || string(w.last.Answers) != `{}` {
		t.Errorf("%+v", w.last)
	}
}
