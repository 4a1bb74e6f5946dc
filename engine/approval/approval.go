// Package approval is the stage that lets a call of which policy asks so run only when somebody has approved it. The
// call ends at once, with an Ask of the kind approval; its caller makes it again, as it was, and gets what was decided
// meanwhile. Each approval lets one call run, unless whoever gave it wants it to be remembered.
//
// An approval is bound to what the approver was shown: the caller, the tool, its arguments, the session and the walls.
// A call without the approval's id that is the same in all of these picks it up too, since not every protocol can carry
// an id. That is no second way in: it is the call that was approved, and the approval is used up by it.
package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"toolpost/host/secret"
	"toolpost/tool"
)

// The states of an approval.
const (
	Waiting  = "waiting"
	Approved = "approved" // and not used yet, unless it is remembered
	Used     = "used"     // the call that was approved has begun
	Denied   = "denied"
	Expired  = "expired" // nobody decided in time, or nobody used it in as much time again
)

// States lists them.
func States() []string { return []string{Waiting, Approved, Used, Denied, Expired} }

// How long an approval holds: for the call that asked, or, remembered, for further calls of the tool by its caller.
const (
	ForCall      = "call"
	ForSession   = "session"   // in the same session
	ForArguments = "arguments" // with the same arguments
	ForHour      = "hour"      // for an hour
)

// The reasons of refusals.
const (
	Unknown   = "unknown_question" // the id is none that was given out for this call, or was used: as with any question
	WasDenied = "approval_denied"
	TooLate   = "approval_expired"
	OwnCall   = "own_call"       // a caller cannot approve its own call, unless the rule says so
	NoRight   = "may_not_decide" // the caller may approve its own call, and has no right to the tool that decides
)

// An Approval is one as approvers see it.
type Approval struct {
	ID         string             `json:"id"`
	State      string             `json:"state"`
	Tool       string             `json:"tool"`
	Source     string             `json:"source"`
	Tier       int                `json:"tier"`
	Effects    []string           `json:"effects,omitempty"`
	Caller     string             `json:"caller"`
	Door       string             `json:"door"`
	Session    string             `json:"session,omitempty"`
	Run        string             `json:"run,omitempty"`
	Call       string             `json:"call"`
	Parent     string             `json:"parent,omitempty"`
	Job        string             `json:"job,omitempty"`
	Args       json.RawMessage    `json:"arguments,omitzero"`       // without what is secret
	Omitted    int                `json:"arguments_bytes,omitzero"` // their length, where they are too long to be shown
	Touches    tool.Touches       `json:"touches,omitzero"`
	More       int                `json:"touches_more,omitzero"` // further files and commands, where they are too many to be shown
	Walls      string             `json:"walls,omitempty"`       // what the tool is confined to, in words
	Guarantees tool.Guarantees    `json:"guarantees,omitzero"`   // what the call cannot do
	Rules      []tool.ConsentRule `json:"rules"`                 // that ask for it; whoever decides is named by each
	Asked      time.Time          `json:"asked"`                 //
	Until      time.Time          `json:"until"`                 // when it expires
	By         string             `json:"by,omitempty"`          // who decided
	Decided    time.Time          `json:"decided,omitzero"`      // when
	Reason     string             `json:"reason,omitempty"`      // why
	For        string             `json:"for,omitempty"`         // call, or how it is remembered
	Lasts      time.Time          `json:"lasts,omitzero"`        // of one that is remembered for an hour
	Used       time.Time          `json:"used,omitzero"`         //
	Revoked    time.Time          `json:"revoked,omitzero"`      // of one that was remembered
	RevokedBy  string             `json:"revoked_by,omitempty"`  //
}

// An Entry is an approval as it is kept.
type Entry struct {
	Approval
	Ref   string `json:"ref"`   // of the tool
	Bound string `json:"bound"` // the digest of the call that it is good for
	Input string `json:"input"` // the digest of its arguments
	// Key is the digest by which a call picks it up without its id: that of what it is bound to and of the rules that
	// ask, or the job's own. Again is what does so now: the key, until it is used or its caller was told; then a question
	// that the tool asked in the approved call; or nothing.
	Key   string `json:"key"`
	Again string `json:"again,omitzero"`
	// UsedBy is the job that has used it, which may be begun again when its program ended.
	UsedBy   string `json:"used_by,omitzero"`
	Patience int64  `json:"patience"` // in microseconds: how long somebody may take to decide, and then to use it
}

// A Book keeps approvals for the stage.
type Book interface {
	// Add keeps an entry, durably, unless one that can be picked up by the same call is there: then it gives that one.
	Add(ctx context.Context, e Entry, b Bounds) (Entry, error)
	// Change changes an entry at once: of several who try, in whatever program, each sees what the one before has left.
	// change may be called more than once. Its error leaves the entry as it is. Without an entry the error is not_found.
	Change(ctx context.Context, id string, change func(*Entry) error) (Entry, error)
	// Find gives the entry of an id; Open the one that a call can pick up, if there is one.
	Find(ctx context.Context, id string) (Entry, error)
	Open(ctx context.Context, again string) (e Entry, ok bool, err error)
	// List gives entries, the newest first.
	List(ctx context.Context, f Filter) ([]Entry, error)
}

// A Filter says which entries are wanted. A field that is empty matches all.
type Filter struct {
	State      string // as it is kept: one that has expired may still be called waiting or approved
	Remembered bool   // only those that are remembered and not revoked
	Caller     string
	Ref        string
	Keep       func(*Entry) bool // of those, only these; nil: all
	Most       int               // 0: all
}

// Bounds are on what waits, so that nobody floods those who decide.
type Bounds struct{ PerCaller, All int }

// How many calls may wait.
const (
	perCaller = 200
	most      = 5000
)

// A Decider is the tool that decides about calls, for callers that answer in the call itself.
type Decider interface {
	// May says why a caller cannot use the tool; nil: it can.
	May(ctx context.Context, p tool.Principal) error
	// Decide uses it for the caller of a call, with its arguments.
	Decide(ctx context.Context, c *tool.Call, args json.RawMessage) error
}

// Options of the stage. A field that may be left zero says what that means.
type Options struct {
	Book    Book
	Decider Decider // nil: no call is answered by its own caller
	// Digests binds approvals to calls, with the same key in all programs that share the book; nil: with one that ends
	// with this program.
	Digests *secret.Keyed
	// Redact takes what is secret out of the arguments that approvers see; nil: nothing is.
	Redact func(json.RawMessage) json.RawMessage
	Log    *slog.Logger     // nil: silence
	Now    func() time.Time // nil: time.Now
}

// Approvals are those of one engine.
type Approvals struct {
	o       Options
	decided tool.Changes // something was, in this program
}

// New makes the stage.
func New(o Options) *Approvals {
	o.Digests, o.Log = cmp.Or(o.Digests, secret.NewKeyed(nil)), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Redact == nil {
		o.Redact = func(args json.RawMessage) json.RawMessage { return args }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Approvals{o: o}
}

// Ids begin so, and are so long: no other question has an id as short.
const (
	idPrefix = "apr_"
	idLength = len(idPrefix) + 20
)

// IsID reports whether a text has the form of an approval's id, which tells it from the id of a tool's own question.
func IsID(text string) bool {
	rest, ok := strings.CutPrefix(text, idPrefix)
	return ok && len(text) == idLength && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// At is the state of an approval at a time: one that nobody decided or used for too long has expired.
func (a *Approval) At(now time.Time) string {
	over := a.Over()
	if (a.State == Waiting || a.State == Approved) && !over.IsZero() && !now.Before(over) {
		return Expired
	}
	return a.State
}

// Remembered reports whether an approval is for further calls too.
func (a *Approval) Remembered() bool {
	return (a.State == Approved || a.State == Used) && a.For != "" && a.For != ForCall && a.Revoked.IsZero()
}

// Over is when an approval is good for nobody any more, and may be forgotten a while later; never: the zero time.
func (a *Approval) Over() time.Time {
	switch {
	case !a.Remembered():
		return a.Until
	case a.For == ForHour:
		return later(a.Until, a.Lasts)
	}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// noted is what the record of a call has of its approval.
func (a *Approval) noted(state string) tool.Approval {
	if state == Used {
		state = Approved
	}
	return tool.Approval{ID: a.ID, State: state, By: a.By, At: a.Decided, Reason: a.Reason}
}
