package tool

import (
	"cmp"
	"encoding/json"
	"time"
)

// A Record is the audit entry of one call: who asked for what, what was decided, and the outcome. It has no values of
// arguments unless the config asks for them, and never a token.
//
// The audit stage makes one for each call and attaches it to the Call; the stages inside note their decisions in it.
// Only one of them works on a call at any time.
//
// Its names in JSON, in CSV and in a store are those of audit.Columns: add a field together with its column there; a
// test checks that none is missing.
type Record struct {
	Seq      int64     // its position in the log
	Lane     int64     // the chain that it is in
	Number   int64     // its position in that chain; 0 if that is Seq
	Time     time.Time // when the call began
	Call     string
	Trace    string
	Tool     string // as published; empty if no tool has that name
	Asked    string // the name as the caller wrote it, if that is different
	Source   string
	Protocol string
	Tier     int // how dangerous the tool is
	Door     string
	Caller   string
	Session  string
	Run      string          // the run of an agent that it belongs to, according to the caller
	Parent   string          // the call that made it; empty if it came from outside
	Shape    json.RawMessage // the arguments with each value replaced by its kind
	Digest   string          // of the arguments, byte for byte, keyed
	Args     json.RawMessage // the arguments themselves, if they are kept
	Touches  Touches
	Omitted  int    // number of touches that are not kept
	Decision string // allow, ask or deny; empty if policy was not asked
	Rule     string
	Lease    string // the id of the lease, not its token
	Key      string
	Replay   bool   // an earlier outcome was returned again
	Cached   bool   // it was answered from memory, and nothing ran
	DryRun   bool   // it was only judged
	Walls    string // the guarantees that were enforced, separated by commas
	Outcome  Outcome
	Code     Code
	Reason   string // the error's reason, or ReasonNulls for a call without an error
	Duration time.Duration
	In       int64
	Out      int64
	Lost     int    // how many calls before this one could not be recorded
	Kind     string // OperatorCall, LateOutcome, or empty
	Node     string // the name of the node of the fleet that ran it, or refused it; empty without a fleet
	// Receipt is what that node has signed about it, see package wire/receipt; empty if it could change nothing, or ran at its hub.
	Receipt json.RawMessage

	// Connections are the connections of the caller that were used, each with the host that its value was sent to.
	Connections []string

	Definition string // of the tool, by which the call was judged and ran, as a digest; empty unless its calls are shared between several

	// Of a call that had to be approved: the approval, its result, and who decided, when and why.
	Approval Approval

	// Begun is set if the call reached the tool and the tool may change something.
	Begun bool
	// ReadOnly is set if the tool is known and changes nothing.
	ReadOnly bool
}

// OperatorCall is the kind of calls that only look at what Toolpost does; see Spec.Looks. They are recorded, and count in no
// statistics of calls.
const OperatorCall = "operator"

// LateOutcome is the kind of rows that are no calls: each has the outcome of the call Parent, which the row of that call does not
// have, since its node was cut off or its hub had ended.
const LateOutcome = "late"

// ReasonNulls marks a call whose null arguments were left out: they are optional and may not be null.
const ReasonNulls = "nulls_left_out"

// An Outcome is how a call ended, in one word.
type Outcome string

// The outcomes.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeFailed  Outcome = "failed"  // the tool reported a failure
	OutcomeAsked   Outcome = "asked"   // the tool has a question first
	OutcomeRefused Outcome = "refused" // by policy, a lease, a quota, a breaker
	OutcomeError   Outcome = "error"   // there was no result: not found, crashed, timed out ...
	OutcomeLost    Outcome = "lost"    // the program ended while the call ran; its outcome is unknown
)

// Level returns the log level of an outcome.
func (o Outcome) Level() string {
	switch o {
	case OutcomeOK, OutcomeAsked:
		return "info"
	case OutcomeFailed, OutcomeRefused:
		return "warn"
	}
	return "error"
}

// Outcomes lists every outcome.
func Outcomes() []Outcome {
	return []Outcome{OutcomeOK, OutcomeFailed, OutcomeAsked, OutcomeRefused, OutcomeError, OutcomeLost}
}

// OutcomeOf returns how a call ended, with the code and the reason of the error, if there was one.
func OutcomeOf(r *Result, err error) (o Outcome, code Code, reason string) {
	switch {
	case err != nil:
		e := AsError(err)
		switch e.Code {
		case CodeAccessDenied, CodeLeaseRequired, CodeLeaseRejected, CodeQuotaExceeded, CodeBreakerOpen:
			return OutcomeRefused, e.Code, e.Reason
		default:
			return OutcomeError, e.Code, e.Reason
		}
	case r == nil:
		return OutcomeError, CodeInternal, ""
	case r.Ask != nil:
		return OutcomeAsked, "", ""
	case r.OK:
		return OutcomeOK, "", ""
	case r.Failure != nil:
		return OutcomeFailed, r.Failure.Code, r.Failure.Reason
	}
	return OutcomeFailed, CodeToolError, ""
}

// OutcomeOf is the function of this name, except that a call of a tool that is hidden from its caller is refused, not
// unknown. r may be nil.
func (r *Record) OutcomeOf(res *Result, err error) (o Outcome, code Code, reason string) {
	if o, code, reason = OutcomeOf(res, err); r != nil && code == CodeNotFound && r.Decision == "deny" {
		o = OutcomeRefused
	}
	return o, code, reason
}

// Attempted reports whether a call asked for something that its caller may not have, or that is not there for it, as a
// guessed id. Operators want to see such calls, whatever their kind.
func Attempted(o Outcome, code Code) bool { return o == OutcomeRefused || code == CodeNotFound }

// AsTold returns a record as its caller may see it: without what is known of a tool that is hidden from it.
func (r *Record) AsTold() *Record {
	if r.Outcome != OutcomeRefused || r.Code != CodeNotFound {
		return r
	}
	told := *r
	told.Outcome, told.Tool, told.Asked = OutcomeError, "", cmp.Or(r.Asked, r.Tool)
	told.Source, told.Protocol, told.Tier, told.ReadOnly = "", "", 0, false
	told.Decision, told.Rule, told.Walls, told.Args = "", "", "", nil
	return &told
}

// An Approval is the part of a record that describes an approval.
type Approval struct {
	ID     string
	State  string // waiting, approved, denied or expired
	By     string
	At     time.Time
	Reason string
}

// Judged notes what policy decided: allow, ask or deny. A nil Record takes no notes.
func (r *Record) Judged(decision, rule string) {
	if r != nil {
		r.Decision, r.Rule = decision, rule
	}
}

// Approved notes the result of the approval that a call needed. A nil Record takes no notes.
func (r *Record) Approved(a Approval) {
	if r != nil {
		r.Approval = a
	}
}

// Connected notes which connections a call has used. A nil Record takes no notes.
func (r *Record) Connected(uses []string) {
	if r != nil {
		r.Connections = uses
	}
}

// A Watch notes how a call goes through the chain, for observers while it runs or soon after. It is attached to the
// Call, like the Record; the zero value notes nothing.
type Watch struct {
	By    Watcher
	Steps bool // note the time at every stage; else only at those where a call can stay for a long time, which costs next to nothing
}

// A Watcher is notified of what happens to a call inside the chain. It must be safe for concurrent use.
type Watcher interface {
	// Admit is called before the tool is looked up, inside the stages that record refusals; its error refuses the call.
	Admit(*Call) error
	// Found is called when the tool is known.
	Found(*Spec)
	// Learned is called when the call has secrets of its own, which its arguments may have.
	Learned()
	// Sent is called when the call is sent to a node of the fleet, each time that it is.
	Sent(node string)
	// Enter is called when the call enters a stage. It returns the number that Leave takes.
	Enter(stage string) (step int)
	Leave(step int)
}
