package tool

import (
	"encoding/json"
	"time"
)

// A Record is what is kept of one call: who asked for what, what was decided, what came of it. It has no
// values of arguments unless somebody asked for them, and no token ever.
//
// The audit stage makes one for each call and hangs it on the Call; the stages inside note there what they
// decide. Only one of them works on a call at any time.
//
// Its names in JSON, in CSV and in a store are those of audit.Columns: add a field together with its column there; a
// test holds that none is missing.
type Record struct {
	Seq      int64     // its place in the log
	Time     time.Time // when the call began
	Call     string
	Trace    string
	Tool     string // as published; empty: nobody knows a tool of that name
	Asked    string // the name as the caller wrote it, where it is another one
	Source   string
	Protocol string
	Tier     int // how dangerous the tool is
	Door     string
	Caller   string
	Session  string
	Run      string          // which run of an agent it belongs to, as the caller says
	Parent   string          // the call that made it; empty: somebody outside
	Shape    json.RawMessage // the arguments with the kind of each value in its place
	Digest   string          // of the arguments, byte for byte, made with a key
	Args     json.RawMessage // the arguments themselves, where they are to be kept
	Touches  Touches
	Omitted  int    // touches beyond those that are kept
	Decision string // allow, ask or deny; empty: no policy was asked
	Rule     string
	Lease    string // the id of the lease, not its token
	Key      string
	Replay   bool   // an earlier outcome was given again
	Cached   bool   // it was answered from memory, and nothing ran
	DryRun   bool   // it was only judged
	Walls    string // the guarantees that were enforced, with commas
	Outcome  Outcome
	Code     Code
	Reason   string // the finer word of an error; of a call without one, ReasonNulls
	Duration time.Duration
	In       int64
	Out      int64
	Lost     int // how many calls before this one could not be recorded

	// Of a call that had to be approved: the approval, what became of it, and who decided, when and why.
	Approval Approval

	// Begun is set when the call got as far as the tool and the tool may change something.
	Begun bool
	// ReadOnly is set when the tool is known and changes nothing.
	ReadOnly bool
}

// ReasonNulls says of a call that arguments which were null were left out: they are optional, and may not be null.
const ReasonNulls = "nulls_left_out"

// An Outcome is how a call ended, in one word.
type Outcome string

// The outcomes.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeFailed  Outcome = "failed"  // the tool said no
	OutcomeAsked   Outcome = "asked"   // the tool has a question first
	OutcomeRefused Outcome = "refused" // by policy, a lease, a quota, a breaker
	OutcomeError   Outcome = "error"   // there was no outcome: not found, crashed, timed out ...
	OutcomeLost    Outcome = "lost"    // the program ended while the call ran; its outcome is unknown
)

// Level is how grave an outcome is, in the words of a log.
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

// OutcomeOf says how a call ended, with the class and the finer word of the error, if there was one.
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

// An Approval is what a record has of one.
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

// Approved notes what became of the approval that a call needed. A nil Record takes no notes.
func (r *Record) Approved(a Approval) {
	if r != nil {
		r.Approval = a
	}
}
