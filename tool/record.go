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
type Record struct {
	Seq      int64           `json:"seq,omitempty"` // its place in the log
	Time     time.Time       `json:"time"`          // when the call began
	Call     string          `json:"call"`
	Trace    string          `json:"trace,omitempty"`
	Tool     string          `json:"tool"`            // as published; empty: nobody knows a tool of that name
	Asked    string          `json:"asked,omitempty"` // the name as the caller wrote it, where it is another one
	Source   string          `json:"source,omitempty"`
	Protocol string          `json:"protocol,omitempty"`
	Tier     int             `json:"tier,omitempty"` // how dangerous the tool is
	Door     string          `json:"door"`
	Caller   string          `json:"caller"`
	Session  string          `json:"session,omitempty"`
	Run      string          `json:"run,omitempty"`  // which run of an agent it belongs to, as the caller says
	Shape    json.RawMessage `json:"shape,omitzero"` // the arguments with the kind of each value in its place
	Digest   string          `json:"digest"`         // of the arguments, byte for byte, made with a key
	Args     json.RawMessage `json:"args,omitzero"`  // the arguments themselves, where they are to be kept
	Touches  Touches         `json:"touches,omitzero"`
	Omitted  int             `json:"omitted,omitempty"`  // touches beyond those that are kept
	Decision string          `json:"decision,omitempty"` // allow or deny; empty: no policy was asked
	Rule     string          `json:"rule,omitempty"`
	Lease    string          `json:"lease,omitempty"` // the id of the lease, not its token
	Key      string          `json:"key,omitempty"`
	Replay   bool            `json:"replay,omitempty"`      // an earlier outcome was given again
	Cached   bool            `json:"cached,omitempty"`      // it was answered from memory, and nothing ran
	DryRun   bool            `json:"dry_run,omitempty"`     // it was only judged
	Walls    string          `json:"enforcement,omitempty"` // the guarantees that were enforced, with commas
	Outcome  Outcome         `json:"outcome"`
	Code     Code            `json:"code,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Duration time.Duration   `json:"-"` // duration_ms in JSON
	In       int64           `json:"bytes_in"`
	Out      int64           `json:"bytes_out"`
	Lost     int             `json:"lost,omitempty"` // how many calls before this one could not be recorded

	// Begun is set when the call got as far as the tool and the tool may change something.
	Begun bool `json:"-"`
}

// An Outcome is how a call ended, in one word.
type Outcome string

// The outcomes.
const (
	OutcomeOK      Outcome = "ok"
	OutcomeFailed  Outcome = "failed"  // the tool said no
	OutcomeAsked   Outcome = "asked"   // the tool has a question first
	OutcomeRefused Outcome = "refused" // by policy, a lease, a quota, a breaker
	OutcomeError   Outcome = "error"   // there was no outcome: not found, crashed, timed out ...
	OutcomeLost    Outcome = "lost"    // the program ended while the call ran; nobody knows what came of it
)

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

// Judged notes what policy decided. A nil Record takes no notes.
func (r *Record) Judged(allowed bool, rule string) {
	if r == nil {
		return
	}
	r.Decision, r.Rule = "deny", rule
	if allowed {
		r.Decision = "allow"
	}
}
