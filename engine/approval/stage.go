package approval

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// For is an engine.Stage, the same for every tool. It runs right behind policy, which decides what has to be approved,
// and in front of every stage that records or consumes something: a waiting call has not begun.
func (s *Approvals) For(*tool.Spec) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Consent == nil && !IsID(c.Resume) {
				return next.Invoke(ctx, c, out)
			}
			return s.pass(ctx, c, out, next)
		})
	}
}

func (s *Approvals) pass(
	ctx context.Context, c *tool.Call, out tool.Sink, next tool.Handler,
) (*tool.Result, error) {
	p, err := s.permit(ctx, c)
	if err != nil {
		return nil, tool.BeforeRun(err)
	}
	c.Record.Approved(p.entry.noted(p.state))
	switch {
	case p.refusal != nil:
		return nil, tool.BeforeRun(p.refusal)
	case p.state == Waiting:
		return s.ask(ctx, c, &p.entry), nil
	}
	inner := c
	if IsID(c.Resume) { // it is ours: no stage further in has asked
		own := *c
		own.Resume, own.Answers, inner = "", nil, &own
	}
	r, err := next.Invoke(ctx, inner, out)
	switch {
	case err != nil && p.used && tool.NotRun(err):
		s.giveBack(ctx, &p.entry)
	case err == nil && r.Ask != nil && p.entry.ID != "":
		err = s.goesOn(ctx, &p.entry, r.Ask.ID)
	case p.used || c.Resume != "" && p.entry.State == Used:
		s.ran(ctx, c, &p.entry, r, err)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// A permit is the stage's answer to a call.
type permit struct {
	entry   Entry
	state   string // of the approval: Waiting asks, Approved lets the call through
	refusal error
	used    bool // the approval was used up for this call
}

// permit returns the approval of a call, or begins one.
func (s *Approvals) permit(ctx context.Context, c *tool.Call) (permit, error) {
	d, err := s.digests(c)
	if err != nil {
		return permit{}, err
	}
	granted, err := s.remembered(ctx, c, d)
	if err != nil {
		return permit{}, err
	}
	switch {
	case IsID(c.Resume):
		return s.resume(ctx, c, d, granted)
	case granted != nil && (granted.ID != "" || !s.ready(ctx, d)):
		return permit{entry: *granted, state: Approved}, nil
	}
	return s.pickUp(ctx, c, d)
}

// ready reports whether an approval of this very call waits to be used.
func (s *Approvals) ready(ctx context.Context, d digests) bool {
	e, ok, err := s.o.Store.Open(ctx, d.key)
	return err == nil && ok && e.At(s.o.Now()) == Approved
}

// pickUp returns the permit of a call without the id of an approval, or begins an approval.
func (s *Approvals) pickUp(ctx context.Context, c *tool.Call, d digests) (permit, error) {
	key := d.key
	if c.Resume != "" { // a question that the tool asked in an approved call
		key = question(c.Resume)
	}
	e, ok, err := s.o.Store.Open(ctx, key)
	switch {
	case err != nil:
		return permit{}, err
	case !ok || !e.boundTo(c, d) || !e.decided(c.Consent):
		return s.begin(ctx, c, d)
	case c.Resume != "": // it has begun, so it may have changed what it touches
		return permit{entry: e, state: Approved}, nil
	case !e.saw(d):
		return s.begin(ctx, c, d)
	}
	p, err := s.use(ctx, c, e.ID, nil)
	if err != nil && tool.AsError(err).Reason == Unknown || p.state == Expired { // or another call was faster
		return s.begin(ctx, c, d)
	}
	return p, err
}

// resume returns the decision about the call that an id was issued for.
func (s *Approvals) resume(ctx context.Context, c *tool.Call, d digests, granted *Entry) (permit, error) {
	e, err := s.o.Store.Find(ctx, c.Resume)
	switch { // what it is bound to never changes
	case tool.CodeOf(err) == tool.CodeNotFound || err == nil && !e.boundTo(c, d):
		return permit{}, unknown(c)
	case err != nil:
		return permit{}, err
	case !e.decided(c.Consent) || c.Consent != nil && !e.saw(d): // other rules ask, or it would touch something else
		return s.begin(ctx, c, d)
	case len(c.Answers) > 0 && e.At(s.o.Now()) == Waiting:
		if err := s.answer(ctx, c, &e); err != nil {
			return permit{}, err
		}
	}
	return s.use(ctx, c, e.ID, granted)
}

// use uses up an approval, if possible. That is decided inside the change: of several calls exactly one runs.
func (s *Approvals) use(ctx context.Context, c *tool.Call, id string, granted *Entry) (p permit, err error) {
	e, err := s.o.Store.Change(ctx, id, func(e *Entry) error {
		p = permit{} // another attempt
		now := s.o.Now()
		if e.At(now) == Waiting && granted != nil { // an approval that was remembered meanwhile decides this one too
			e.decide(granted.By, granted.Reason, ForCall, true, now)
		}
		switch p.state = e.At(now); p.state {
		case Approved:
			e.State, e.Used, e.Again, p.used = Used, now, "", true
			e.UsedBy = job(c)
		case Used:
			if e.UsedBy == "" || e.UsedBy != job(c) {
				return unknown(c)
			}
			p.state = Approved // a restarted job
		case Denied:
			e.Again, p.refusal = "", denied(c, e)
		case Expired:
			e.State, e.Again, p.refusal = Expired, "", expired(c, e)
		}
		return nil
	})
	if err != nil {
		return permit{}, err
	}
	if p.used {
		s.decided.Tell()
	}
	p.entry = e
	return p, nil
}

// begin stores a new approval, which then waits for a decision, or returns the one that waits already.
func (s *Approvals) begin(ctx context.Context, c *tool.Call, d digests) (permit, error) {
	if c.Consent == nil { // policy no longer asks
		return permit{}, unknown(c)
	}
	e, err := s.o.Store.Add(ctx, s.entry(c, d), Bounds{perCaller, most})
	if err != nil {
		return permit{}, err
	}
	s.decided.Tell() // also for clients that watch for waiting calls
	return permit{entry: e, state: Waiting}, nil
}

// The limits of what is kept of a call.
const (
	maxArgs    = 64 << 10
	maxTouches = 256
	maxText    = 1000
)

// entry returns a new approval for a call.
func (s *Approvals) entry(c *tool.Call, d digests) Entry {
	now := s.o.Now().UTC().Truncate(time.Microsecond)
	patience := shortest(c.Consent.Rules)
	e := Entry{
		Approval: Approval{
			ID: idPrefix + strings.ToLower(rand.Text())[:20], State: Waiting, Tool: c.Tool,
			Origin: Origin{Caller: c.Caller.ID, Door: c.Caller.Door, Session: c.Session, Run: c.Run, Process: c.Caller.Process},
			Call:   c.ID, Parent: c.Parent, Args: s.o.Redact(c.Args), Guarantees: c.Tightened(tool.Guarantees{}),
			Rules: c.Consent.Rules, Asked: now, Until: now.Add(patience),
		},
		Ref: refOf(c).String(), Bound: d.bound, Input: d.input, Key: d.key, Again: d.key, Seen: d.seen, Patience: patience.Microseconds(),
		Definition: c.Definition(),
	}
	e.Touches, e.More = some(c.Consent.Touches)
	e.Changes = s.changes(c)
	if c.Spec != nil {
		e.Tool, e.Source, e.Tier, e.Effects = c.Spec.Name, c.Spec.Source, c.Spec.Tier, c.Spec.Effects.Words()
		e.Walls = c.Spec.Walls
	}
	e.Job = job(c)
	if len(e.Args) > maxArgs || e.Args == nil && len(c.Args) > 0 {
		e.Args, e.Omitted = nil, len(c.Args)
	}
	return e
}

// some cuts what a call touches to a length that people can read, and returns how much it left out. A command can be as
// long as the arguments of the call, so it has the same limit.
func some(t tool.Touches) (shown tool.Touches, more int) {
	left := maxArgs
	shown = tool.Touches{
		Commands: within(t.Commands, &left, func(argv []string) int { return len(strings.Join(argv, " ")) }),
		Writes:   within(t.Writes, &left, func(path string) int { return len(path) }),
		Reads:    within(t.Reads, &left, func(path string) int { return len(path) }),
	}
	return shown, count(t) - count(shown)
}

func count(t tool.Touches) int { return len(t.Commands) + len(t.Writes) + len(t.Reads) }

// within returns the first elements of all that there is room for.
func within[T any](all []T, left *int, size func(T) int) []T {
	for i, one := range all {
		if *left -= size(one); *left < 0 || i == maxTouches {
			return all[:i]
		}
	}
	return all
}

func shortest(rules []tool.ConsentRule) time.Duration {
	d := rules[0].Timeout
	for _, r := range rules {
		d = min(d, r.Timeout)
	}
	return d
}

// giveBack restores an approval if its call was refused further in before it had an effect. If that fails the approval
// is lost, and its caller asks again.
func (s *Approvals) giveBack(ctx context.Context, was *Entry) {
	_, err := s.o.Store.Change(context.WithoutCancel(ctx), was.ID, func(e *Entry) error {
		if e.State == Used && e.Used.Equal(was.Used) {
			e.State, e.Used, e.UsedBy = Approved, time.Time{}, ""
			e.Again = e.Key
		}
		return nil
	})
	if err != nil {
		s.o.Log.Warn("an approval was used by a call that was refused, and cannot be given back", "approval", was.ID,
			"error", tool.AsError(err).Message)
	}
}

// ran records the outcome of an approved call, for its approvers. If that fails, the audit log still has it.
func (s *Approvals) ran(ctx context.Context, c *tool.Call, of *Entry, r *tool.Result, err error) {
	outcome, code, _ := tool.OutcomeOf(r, err)
	took := r.Elapsed(c.Start())
	_, err = s.o.Store.Change(context.WithoutCancel(ctx), of.ID, func(e *Entry) error {
		e.Ran = &Ran{c.ID, outcome, code, took.Milliseconds()}
		return nil
	})
	if err != nil {
		s.o.Log.Warn("the outcome of an approved call cannot be kept", "approval", of.ID, "error", tool.AsError(err).Message)
	}
	s.decided.Tell()
}

// goesOn records that an approved call has a question of its tool: with the answer the call continues, and is not a
// second one.
func (s *Approvals) goesOn(ctx context.Context, was *Entry, id string) error {
	_, err := s.o.Store.Change(context.WithoutCancel(ctx), was.ID, func(e *Entry) error {
		e.Again = question(id)
		return nil
	})
	return err
}

// ask returns the result of a waiting call.
func (s *Approvals) ask(ctx context.Context, c *tool.Call, e *Entry) *tool.Result {
	a := &tool.Ask{
		ID: e.ID, Kind: tool.AskApproval,
		Awaits: &tool.Awaited{
			Tool: e.Tool, Args: e.Args, Approvers: e.approvers(), Until: e.Until, Rules: e.ruleNames(),
			Reason: e.Rules[0].Reason, Self: s.mayAnswer(ctx, c, e) == nil,
		},
	}
	a.Message = fmt.Sprintf("%s has to be approved by %s, until %s", e.Tool, strings.Join(a.Awaits.Approvers, ", "),
		e.Until.UTC().Format(time.RFC3339))
	if why := e.Rules[0].Reason; why != "" {
		a.Message += ": " + why
	}
	if a.Awaits.Self {
		a.Schema = answerSchema(s.shownTo(c.Caller, *e).Ways)
	} else {
		a.Message += fmt.Sprintf(". Tell your user: `toolpost approve %s`, or the console, decides. Make the same call again to "+
			"learn what was decided", e.ID)
	}
	return &tool.Result{Ask: a, Trace: tool.Trace{Tool: e.Tool, Source: e.Source}}
}

// answerSchema returns the schema for the answer of a caller that may approve its own call, in one of these ways.
func answerSchema(of []string) json.RawMessage {
	ways, _ := strictjson.Marshal(of) // strings
	return json.RawMessage(`{"type":"object","properties":{` +
		`"approve":{"type":"boolean","title":"Approve","description":"run it; false: refuse it"},` +
		`"reason":{"type":"string","title":"Reason","description":"why, for the record","maxLength":1000},` +
		`"for":{"type":"string","title":"For","description":"how long the approval holds","default":"call","enum":` +
		string(ways) + `}},"required":["approve"]}`)
}

// mayAnswer returns why the caller of a call cannot decide about it with its answers, or nil if it can.
func (s *Approvals) mayAnswer(ctx context.Context, c *tool.Call, e *Entry) error {
	if !e.sees(c.Caller) { // the caller knows of its own call
		return tool.Errorf(tool.CodeAccessDenied, "%q is not an approver of its own call of %s; the approvers are %s",
			c.Caller.ID, c.Tool, strings.Join(e.approvers(), ", ")).Because(NoRight)
	}
	if err := e.may(c.Caller, true); err != nil {
		return err
	}
	if s.o.Decider == nil || s.o.Decider.May(ctx, c.Caller) != nil {
		return tool.Errorf(tool.CodeAccessDenied, "%q has no right to approvals.decide with these credentials, so it cannot "+
			"approve its own call of %s; another caller can: `toolpost approve %s`", c.Caller.ID, c.Tool, e.ID).Because(NoRight)
	}
	return nil
}

// answer decides about a call by the answers of its own caller. It calls the tool that decides, with the same rights,
// policy, limits and record as any other call. If another decision came first, that one counts.
func (s *Approvals) answer(ctx context.Context, c *tool.Call, e *Entry) error {
	if err := s.mayAnswer(ctx, c, e); err != nil {
		return err
	}
	var said struct {
		ID      string `json:"id"`
		Approve *bool  `json:"approve"`
		Reason  string `json:"reason,omitzero"`
		For     string `json:"for,omitzero"`
	}
	if err := strictjson.UnmarshalClosed(c.Answers, &said); err != nil || said.Approve == nil || said.ID != "" {
		return tool.Errorf(tool.CodeInvalidInput,
			`the answers for %s must be such as {"approve": true, "reason": "...", "for": "call"}`,
			c.Tool).Because("invalid_answers")
	}
	said.ID = e.ID
	args, err := strictjson.Marshal(said)
	if err == nil {
		err = s.o.Decider.Decide(ctx, c, args)
	}
	if tool.CodeOf(err) == tool.CodeConflict {
		return nil
	}
	return err
}

// digests identify a call. seen is that of what approvers see the call touch: the same arguments may name another file
// by the time the call is made again. It is empty if policy does not ask.
type digests struct{ bound, input, seen, key string }

func (s *Approvals) digests(c *tool.Call) (d digests, err error) {
	args, err := strictjson.Decode(c.Args)
	if len(c.Args) == 0 {
		args, err = map[string]any{}, nil
	}
	if err != nil {
		return d, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %v", c.Tool, err)
	}
	plain, err := strictjson.Marshal(args) // canonical: equal arguments have equal bytes
	if err != nil {
		return d, err
	}
	walls, err := strictjson.Marshal(c.Tightened(tool.Guarantees{}))
	if err != nil {
		return d, err
	}
	ref := refOf(c)
	input, err := s.o.Digests.Sum("approved arguments", plain)
	bound, err2 := s.o.Digests.Sum("approved call", []byte(c.Caller.ID), []byte(ref.Source), []byte(ref.Name),
		[]byte(c.Session), plain, walls, []byte(toolOf(c)+c.Definition()))
	d = digests{bound: hex.EncodeToString(bound[:]), input: hex.EncodeToString(input[:])}
	if c.Consent != nil {
		touches, _ := strictjson.Marshal(c.Consent.Touches) // marshals: only strings
		seen, err := s.o.Digests.Sum("approved touches", touches)
		err2 = errors.Join(err2, err)
		d.seen = hex.EncodeToString(seen[:])
	}
	d.key = digest(d.bound + " " + job(c) + " " + rules(c.Consent) + " " + d.seen)
	return d, errors.Join(err, err2)
}

// toolOf returns what approvers see of the tool. If it has become more dangerous since, or has other walls, it is no
// longer what they approved.
func toolOf(c *tool.Call) string {
	if c.Spec == nil {
		return describe(&Approval{})
	}
	return describe(&Approval{Tier: c.Spec.Tier, Effects: c.Spec.Effects.Words(), Walls: c.Spec.Walls})
}

// Definition returns the digest of the definition for whose call an approval is, or "" if its tool has only one.
func (s *Approvals) Definition(ctx context.Context, id string) string {
	e, _ := s.o.Store.Find(ctx, id) // without it the call is refused
	return e.Definition
}

func describe(a *Approval) string { return fmt.Sprintf("%d %q %q", a.Tier, a.Effects, a.Walls) }

// job returns the job whose call it is, or "". A job has its own approval, which no other call can use. The calls that a
// job makes are not the job: they have other ids when it is restarted, and still pick up theirs.
func job(c *tool.Call) string {
	if c.Background && c.Parent == "" {
		return c.ID
	}
	return ""
}

// rules encodes the rules that ask for an approval, as far as covers compares them.
func rules(of *tool.Consent) string {
	if of == nil {
		return ""
	}
	var all []any
	for _, r := range of.Rules {
		all = append(all, r.Name, r.About, r.Approvers, r.Self)
	}
	b, _ := strictjson.Marshal(all) // marshals: only strings
	return string(b)
}

func refOf(c *tool.Call) tool.Ref {
	if c.Spec != nil { // whatever alias the caller used
		return c.Spec.Ref()
	}
	return tool.Ref{Name: c.Tool}
}

// question returns the key for a question that a tool asked in an approved call.
func question(id string) string { return "question " + digest(id) }

// boundTo reports whether an approval is for this call. The approval of a job is for the job alone.
func (e *Entry) boundTo(c *tool.Call, d digests) bool {
	return e.Bound == d.bound && e.Caller == c.Caller.ID && e.Job == job(c)
}

// saw reports whether its approvers saw the call touch what it would touch now. Approvals of earlier versions do not say.
func (e *Entry) saw(d digests) bool { return e.Seen == "" || e.Seen == d.seen }

// decided reports whether the rules that ask now are among those whose approvers have decided. A rule with other
// approvers than before, or about other calls, is another rule.
func (e *Entry) decided(now *tool.Consent) bool {
	return now == nil || !slices.ContainsFunc(now.Rules, func(r tool.ConsentRule) bool {
		return !slices.ContainsFunc(e.Rules, func(had tool.ConsentRule) bool {
			return had.Name == r.Name && had.About == r.About && had.Self == r.Self && slices.Equal(had.Approvers, r.Approvers)
		})
	})
}

// remembered returns an earlier approval that covers a call, as long as the rules let it be remembered.
func (s *Approvals) remembered(ctx context.Context, c *tool.Call, d digests) (*Entry, error) {
	if c.Consent == nil {
		return nil, nil
	}
	if e := s.stands(c); e != nil {
		return e, nil
	}
	list, err := s.o.Store.List(ctx, Filter{Remembered: true, Caller: c.Caller.ID, Ref: refOf(c).String()})
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].grants(c, d, s.o.Now()) {
			return &list[i], nil
		}
	}
	return nil, nil
}

// grants reports whether a remembered approval covers a call: of the same caller and tool, behind no fewer walls than
// the approver saw.
func (e *Entry) grants(c *tool.Call, d digests, now time.Time) bool {
	barred := slices.ContainsFunc(c.Consent.Rules, func(r tool.ConsentRule) bool {
		return !slices.Contains(r.Remember, e.For)
	})
	if barred || !e.Remembered() || e.Caller != c.Caller.ID || e.Claimed || e.Ref != refOf(c).String() || !e.decided(c.Consent) ||
		describe(&e.Approval) != toolOf(c) || e.Definition != c.Definition() || !c.Tightened(tool.Guarantees{}).Covers(e.Guarantees) {
		return false
	}
	switch e.For {
	case ForSession:
		return c.Session == e.Session && (c.Session != "" || c.Caller.Process != "" && c.Caller.Process == e.Process)
	case ForArguments:
		return e.Input == d.input && e.saw(d)
	case ForHour:
		return now.Before(e.Lasts)
	}
	return false
}

// unknown returns the refusal of an id that was not issued for a call. It is the same for the id of another caller's
// call, of a call that has run, and for a made-up id.
func unknown(c *tool.Call) error {
	return tool.Errorf(tool.CodeInvalidInput, "%s has not asked you a question of this id in a call with these "+
		"arguments and this session; repeat them as they were, or call again without answers", c.Tool).Because(Unknown)
}

func denied(c *tool.Call, e *Entry) error {
	why := ""
	if e.Reason != "" {
		why = ": " + e.Reason
	}
	return refusal(e, WasDenied, "%s was not run: %q denied it%s", c.Tool, e.By, why)
}

func expired(c *tool.Call, e *Entry) error {
	if e.By != "" {
		return refusal(e, TooLate, "%s was not run: it was approved by %q, and not made again in time; call it again "+
			"to ask anew", c.Tool, e.By)
	}
	return refusal(e, TooLate, "%s was not run: it was not approved in time; call it again to ask again", c.Tool)
}

func refusal(e *Entry, reason, format string, args ...any) error {
	err := tool.Errorf(tool.CodeAccessDenied, format, args...).Because(reason)
	err.Details, _ = strictjson.Marshal(struct { // marshals: strings and times
		ID      string    `json:"approval"`
		By      string    `json:"by,omitempty"`
		Decided time.Time `json:"decided,omitzero"`
		Reason  string    `json:"reason,omitempty"`
	}{e.ID, e.By, e.Decided, e.Reason})
	return err
}
