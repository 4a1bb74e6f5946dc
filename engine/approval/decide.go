package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"toolpost/tool"
)

// sees reports whether p may know of an approval. Operators may, so that they can deny one whose approvers do not exist.
func (a *Approval) sees(p tool.Principal) bool { return p.Operator() || a.names(p) }

// names reports whether every rule that asks for the approval names p. An agent has the roles of its person, but is not
// that person: a rule has to name it. One that named itself approves nothing of others, since it could be the caller under
// another name.
func (a *Approval) names(p tool.Principal) bool {
	if strings.HasPrefix(p.ID, tool.AgentPrefix) {
		p.Rights = nil
	}
	if tool.SelfNamed(p.ID) && p.ID != a.Caller {
		return false
	}
	return !slices.ContainsFunc(a.Rules, func(r tool.ConsentRule) bool { return !p.Is(r.Approvers) })
}

// may returns why p cannot approve or deny an approval, or nil if it can. If the rules do not name p, the approval is not
// found; an operator can deny it.
func (a *Approval) may(p tool.Principal, approve bool) error {
	self := !slices.ContainsFunc(a.Rules, func(r tool.ConsentRule) bool { return !r.Self })
	switch {
	case !a.sees(p):
		return missing(a.ID)
	case !a.names(p) && !approve:
	case !a.names(p):
		return tool.Errorf(tool.CodeAccessDenied, "only %s can approve this call of %s; an operator can deny it: "+
			"`toolpost deny %s`", strings.Join(a.approvers(), ", "), a.Tool, a.ID).Because(NoRight)
	case p.ID == a.Caller && !self:
		return tool.Errorf(tool.CodeAccessDenied, "%q made this call of %s, and no caller decides about its own calls: "+
			"decide in the console (`toolpost console`), or let rule %q say `self: true`", p.ID, a.Tool, a.Rules[0].Name).Because(OwnCall)
	}
	return nil
}

func missing(id string) error {
	return tool.Errorf(tool.CodeNotFound,
		"there is no approval %.64q; `toolpost approvals` lists those that wait for you", id)
}

// approvers lists the names and roles in the rules.
func (a *Approval) approvers() (list []string) {
	for _, r := range a.Rules {
		for _, g := range r.Approvers {
			if !slices.Contains(list, string(g)) {
				list = append(list, string(g))
			}
		}
	}
	return list
}

func (a *Approval) ruleNames() (list []string) {
	for _, r := range a.Rules {
		list = append(list, r.Name)
	}
	return list
}

// ways lists how an approval may be remembered: as every rule and the call permit.
func (a *Approval) ways() (list []string) {
	for _, way := range []string{ForSession, ForArguments, ForHour, ForAlways} {
		barred := slices.ContainsFunc(a.Rules, func(r tool.ConsentRule) bool { return !slices.Contains(r.Remember, way) })
		if !barred && (way != ForSession || a.Session != "" || a.Process != "") && (way != ForAlways || !tool.SelfNamed(a.Caller)) {
			list = append(list, way)
		}
	}
	return list
}

// A Decision is an approver's answer about a waiting call.
type Decision struct {
	Approve bool
	Reason  string
	For     string // how long an approval holds; empty means for the call
}

// settle decides an approval if it still waits.
func (e *Entry) settle(by string, d Decision, now time.Time) error {
	switch state := e.At(now); {
	case state == Expired && e.State == Waiting:
		return tool.Errorf(tool.CodeConflict, "this call of %s was not decided in time, and was refused", e.Tool).
			Because(Expired)
	case state != Waiting:
		return tool.Errorf(tool.CodeConflict, "%q has decided about this call of %s already: it is %s", e.By, e.Tool,
			state).Because(state)
	case len(d.Reason) > maxText || !utf8.ValidString(d.Reason):
		return tool.Errorf(tool.CodeInvalidInput, "a reason is text of at most %d bytes", maxText)
	case !d.Approve && d.For != "" && d.For != ForCall:
		return tool.Errorf(tool.CodeInvalidInput, "only an approval is remembered; leave `for` out to deny the call")
	case d.For != "" && d.For != ForCall && !slices.Contains(e.ways(), d.For):
		return e.notRemembered(d.For)
	}
	e.decide(by, d.Reason, d.For, d.Approve, now)
	return nil
}

func (e *Entry) notRemembered(way string) error {
	if way == ForSession && e.Session == "" && e.Process == "" {
		return tool.Errorf(tool.CodeInvalidInput, "the call has no session for which it could be approved")
	}
	return tool.Errorf(tool.CodeInvalidInput, "it cannot be approved for %.40q; possible are %s", way,
		strings.Join(append([]string{ForCall}, e.ways()...), ", "))
}

// decide records a decision. After an approval, the caller has as long to use it as the approver had to decide.
func (e *Entry) decide(by, reason, way string, approve bool, now time.Time) {
	now = now.UTC().Truncate(time.Microsecond)
	e.State, e.By, e.Reason, e.Decided = Denied, by, reason, now
	e.Until = now.Add(time.Duration(e.Patience) * time.Microsecond)
	if !approve {
		return
	}
	e.State, e.For = Approved, way
	if e.For == "" {
		e.For = ForCall
	}
	if e.For == ForHour {
		e.Lasts = now.Add(time.Hour)
	}
}

// Decide decides about a waiting call, once. A principal that its rules do not name learns nothing of it, unless it is an
// operator.
func (s *Approvals) Decide(ctx context.Context, p tool.Principal, id string, d Decision) (Approval, error) {
	e, err := s.change(ctx, id, func(e *Entry) error {
		if err := e.may(p, d.Approve); err != nil {
			return err
		}
		if d.For == ForAlways && (s.o.Config == "" || !p.Operator()) {
			return tool.Errorf(tool.CodeAccessDenied, "an approval for ever is written to the config, by an operator and if there "+
				"is a config; %q can approve the call for an hour", p.ID).Because(NoRight)
		}
		return e.settle(p.ID, d, s.o.Now())
	})
	if err == nil {
		s.decided.Tell()
	}
	if err == nil && d.Approve && d.For == ForAlways {
		if err = s.o.Write(e.standing()); err != nil {
			err = tool.Errorf(tool.CodeOf(err), "this call is approved, and further ones are not: %w", err)
		}
	}
	return s.shownTo(p, e), err
}

// Revoke revokes a remembered approval.
func (s *Approvals) Revoke(ctx context.Context, p tool.Principal, id string) (Approval, error) {
	e, err := s.change(ctx, id, func(e *Entry) error {
		switch {
		case !e.sees(p):
			return missing(id)
		case !e.Remembered():
			return tool.Errorf(tool.CodeConflict, "this approval of %s is not remembered; there is nothing to revoke",
				e.Tool).Because(e.State)
		}
		e.Revoked, e.RevokedBy = s.o.Now().UTC().Truncate(time.Microsecond), p.ID
		if e.State == Approved { // it no longer covers the call that asked either
			e.State, e.Again = Expired, ""
		}
		return nil
	})
	return e.Approval, err
}

// change is that of the store, for ids that come from outside.
func (s *Approvals) change(ctx context.Context, id string, f func(*Entry) error) (Entry, error) {
	if !IsID(id) {
		return Entry{}, missing(id)
	}
	e, err := s.o.Store.Change(ctx, id, f)
	if tool.CodeOf(err) == tool.CodeNotFound {
		err = missing(id)
	}
	return e, err
}

// Show returns an approval to a principal that its rules name, or to an operator.
func (s *Approvals) Show(ctx context.Context, p tool.Principal, id string) (Approval, error) {
	if !IsID(id) {
		return Approval{}, missing(id)
	}
	e, err := s.o.Store.Find(ctx, id)
	if tool.CodeOf(err) == tool.CodeNotFound || err == nil && !e.sees(p) {
		return Approval{}, missing(id)
	}
	return s.shownTo(p, e), err
}

// All selects all approvals in a list, and Remembered those that are remembered.
const (
	All        = "all"
	Remembered = "remembered"
)

// List returns the approvals that p may know of, of a state or All or Remembered ones, the newest first.
func (s *Approvals) List(ctx context.Context, p tool.Principal, state string, most int) ([]Approval, error) {
	now := s.o.Now()
	f := Filter{Remembered: state == Remembered, Most: most, Keep: func(e *Entry) bool {
		over := state == Remembered && e.For == ForHour && !now.Before(e.Lasts)
		return e.sees(p) && !over && (state == All || state == Remembered || e.At(now) == state)
	}}
	if state == Waiting { // the other states also depend on the time
		f.State = Waiting
	}
	entries, err := s.o.Store.List(ctx, f)
	list, left := make([]Approval, 0, len(entries)), maxListed
	for _, e := range entries {
		a := s.shownTo(p, e)
		if left -= a.size(); left < 0 {
			a.shorten()
		}
		list = append(list, a)
	}
	return list, err
}

// Latest returns the newest approvals, for this program itself.
func (s *Approvals) Latest(ctx context.Context, most int) (list []Approval, err error) {
	entries, err := s.o.Store.List(ctx, Filter{Most: most})
	for _, e := range entries {
		e.State = e.At(s.o.Now())
		list = append(list, e.Approval)
	}
	return list, err
}

// maxListed limits the arguments and touches in a list, in bytes; for more, a client asks for a single approval.
// Otherwise a few callers could make lists too long to be delivered.
const maxListed = 1 << 20

// size returns the bytes of an approval's arguments and touches.
func (a *Approval) size() int {
	n := len(a.Args)
	for _, one := range a.Changes {
		n += len(one.Diff)
	}
	for _, path := range slices.Concat(a.Touches.Reads, a.Touches.Writes) {
		n += len(path)
	}
	for _, argv := range a.Touches.Commands {
		n += len(strings.Join(argv, " "))
	}
	return n
}

// shorten drops the arguments and touches, and records how much they were.
func (a *Approval) shorten() {
	a.Omitted, a.Args, a.Changes = max(a.Omitted, len(a.Args)), nil, nil
	a.More, a.Touches = a.More+count(a.Touches), tool.Touches{}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
