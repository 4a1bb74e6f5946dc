// Package approval is the stage that runs a call only after an approval, if policy asks for one. The call ends at once,
// with an Ask of the kind approval; its caller makes it again, unchanged, and gets the decision. Each approval lets one
// call run, unless the approver wants it to be remembered.
//
// An approval is bound to what the approver was shown: the caller, the tool, its arguments, the session and the walls. A
// call without the approval's id that is the same in all of these picks it up too, because not every protocol can carry
// an id. This is safe: it is the call that was approved, and it uses up the approval.
package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/host/secret"
	"toolpost/tool"
)

// The states of an approval.
const (
	Waiting  = "waiting"
	Approved = "approved" // and not used yet, unless it is remembered
	Used     = "used"     // the approved call has begun
	Denied   = "denied"
	Expired  = "expired" // not decided in time, or not used in as much time again
)

// States lists the states.
func States() []string { return []string{Waiting, Approved, Used, Denied, Expired} }

// How long an approval holds: for the call that asked, or, if remembered, for further calls of the tool by its caller.
const (
	ForCall      = "call"
	ForSession   = "session"   // in the same session; without one, in the same run of the agent
	ForArguments = "arguments" // with the same arguments
	ForHour      = "hour"      // for an hour
	ForAlways    = "always"    // as long as the config says so; see Standing
)

// The reasons of refusals.
const (
	Unknown   = "unknown_question" // the id was not issued for this call, or was used: as with any question
	WasDenied = "approval_denied"
	TooLate   = "approval_expired"
	OwnCall   = "own_call"       // a caller cannot approve its own call, unless the rule allows it
	NoRight   = "may_not_decide" // the caller is no approver of its own call, or may not call the tool that decides
)

// An Approval is an approval as approvers see it.
type Approval struct {
	ID      string   `json:"id"`
	State   string   `json:"state"`
	Tool    string   `json:"tool"`
	Source  string   `json:"source"`
	Tier    int      `json:"tier"`
	Effects []string `json:"effects,omitempty"`
	Origin
	Call       string             `json:"call"`
	Parent     string             `json:"parent,omitempty"`
	Job        string             `json:"job,omitempty"`
	Args       json.RawMessage    `json:"arguments,omitzero"`       // without secrets
	Omitted    int                `json:"arguments_bytes,omitzero"` // their length, if they are too long to be shown
	Touches    tool.Touches       `json:"touches,omitzero"`
	Changes    []Change           `json:"changes,omitempty"`     // of files, as far as the arguments tell
	More       int                `json:"touches_more,omitzero"` // further files and commands, if they are too many to be shown
	Walls      string             `json:"walls,omitempty"`       // what the tool is confined to, in words
	Guarantees tool.Guarantees    `json:"guarantees,omitzero"`   // what the call cannot do
	Rules      []tool.ConsentRule `json:"rules"`                 // that ask for it; an approver must be named by each
	Asked      time.Time          `json:"asked"`                 //
	Until      time.Time          `json:"until"`                 // when it expires
	Ruling
	Choices
}

// An Origin says who made a call, and through which door.
type Origin struct {
	Caller  string `json:"caller"`
	Door    string `json:"door"`
	Session string `json:"session,omitempty"`
	Run     string `json:"run,omitempty"`
	Process string `json:"process,omitempty"` // of the agent
}

// A Ruling is what became of an approval; it is empty while the approval waits.
type Ruling struct {
	By        string    `json:"by,omitempty"`         // who decided
	Decided   time.Time `json:"decided,omitzero"`     // when
	Reason    string    `json:"reason,omitempty"`     // why
	For       string    `json:"for,omitempty"`        // call, or how it is remembered
	Lasts     time.Time `json:"lasts,omitzero"`       // set if it is remembered for an hour
	Used      time.Time `json:"used,omitzero"`        //
	Revoked   time.Time `json:"revoked,omitzero"`     // set if it was remembered
	RevokedBy string    `json:"revoked_by,omitempty"` //
	Ran       *Ran      `json:"ran,omitempty"`        // the outcome of the approved call; nil until it has one
}

// Choices are for the approver who sees an approval: how long it may hold, and for an operator the entry of the config, and
// its file, that an approval for ever would write.
type Choices struct {
	Ways   []string `json:"ways,omitempty"`
	Always string   `json:"always,omitempty"`
	Config string   `json:"config,omitempty"`
}

// A Ran is the outcome of an approved call.
type Ran struct {
	Call    string       `json:"call"`
	Outcome tool.Outcome `json:"outcome"`
	Code    tool.Code    `json:"code,omitempty"`
	Millis  int64        `json:"ms"`
}

// An Entry is a stored approval.
type Entry struct {
	Approval
	Ref   string `json:"ref"`           // of the tool
	Bound string `json:"bound"`         // the digest of the call that it is for
	Input string `json:"input"`         // the digest of its arguments
	Seen  string `json:"seen,omitzero"` // the digest of what its approvers see it touch
	// Key is the digest by which a call picks it up without its id: of everything that it is bound to and of the rules
	// that ask, or the job's own. Again is the digest that does so now: the key, until it is used or its caller has the
	// decision; then a question that the tool asked in the approved call; or nothing.
	Key   string `json:"key"`
	Again string `json:"again,omitzero"`
	// UsedBy is the job that has used it, which may be restarted if its process ended.
	UsedBy     string `json:"used_by,omitzero"`
	Claimed    bool   `json:"self_named,omitzero"` // of earlier versions: the agent named itself, so this covers no further calls
	Definition string `json:"definition,omitzero"` // of the tool, as a digest, if nodes of a fleet may have several
	Patience   int64  `json:"patience"`            // in microseconds: how long the approver may take to decide, and then the caller to use it
}

// A Store keeps approvals for the stage.
type Store interface {
	// Add stores an entry durably. If there is already one that the same call can pick up, it returns that one.
	Add(ctx context.Context, e Entry, b Bounds) (Entry, error)
	// Change changes an entry atomically: if several processes try, each sees the result of the one before. change may
	// be called more than once. Its error leaves the entry unchanged. If the entry is missing, the error is not_found.
	Change(ctx context.Context, id string, change func(*Entry) error) (Entry, error)
	// Find returns the entry with an id; Open returns the one that a call can pick up, if any.
	Find(ctx context.Context, id string) (Entry, error)
	Open(ctx context.Context, again string) (e Entry, ok bool, err error)
	// List returns entries, the newest first.
	List(ctx context.Context, f Filter) ([]Entry, error)
}

// A Filter selects entries. An empty field matches all.
type Filter struct {
	State      string // as stored: an expired entry may still be waiting or approved
	Remembered bool   // only those that are remembered and not revoked
	Caller     string
	Ref        string
	Keep       func(*Entry) bool // of those, only these; nil means all
	Most       int               // 0 means all
}

// Bounds limit the waiting approvals, so that no caller floods the approvers.
type Bounds struct{ PerCaller, All int }

// How many calls may wait.
const (
	perCaller = 200
	most      = 5000
)

// A Decider calls the tool that decides about calls, for callers that answer in the call itself.
type Decider interface {
	// May returns why a caller cannot use the tool, or nil if it can.
	May(ctx context.Context, p tool.Principal) error
	// Decide calls the tool for the caller of a call, with the given arguments.
	Decide(ctx context.Context, c *tool.Call, args json.RawMessage) error
}

// Options are the options of the stage. A field that may be zero documents what that means.
type Options struct {
	Store   Store
	Decider Decider // nil means that no caller can answer for its own call
	// Digests binds approvals to calls, with the same key in all processes that share the store; nil means a key that
	// lasts as long as this process.
	Digests *secret.Keyed
	// Redact removes secrets from the arguments that approvers see; nil means that there are none.
	Redact func(json.RawMessage) json.RawMessage
	// Config is the file that Write adds an entry to; empty means that no approval can be for ever.
	Config string
	Write  func(Standing) error
	Log    *slog.Logger     // nil means no log
	Now    func() time.Time // nil means time.Now
}

// Approvals are the approvals of one engine.
type Approvals struct {
	o       Options
	decided tool.Changes // signals changes in this process
	always  atomic.Pointer[[]Standing]
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

// The prefix and length of ids: no other question has an id as short.
const (
	idPrefix = "apr_"
	idLength = len(idPrefix) + 20
)

// IsID reports whether a text has the form of an approval's id. The id of a tool's own question has another form.
func IsID(text string) bool {
	rest, ok := strings.CutPrefix(text, idPrefix)
	return ok && len(text) == idLength && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// At returns the state of an approval at a time: it expires if it was not decided or used for too long.
func (a *Approval) At(now time.Time) string {
	over := a.Over()
	if (a.State == Waiting || a.State == Approved) && !over.IsZero() && !now.Before(over) {
		return Expired
	}
	return a.State
}

// Remembered reports whether an approval also covers further calls. If it is for ever, the config covers them.
func (a *Approval) Remembered() bool {
	return (a.State == Approved || a.State == Used) && a.For != "" && a.For != ForCall && a.For != ForAlways && a.Revoked.IsZero()
}

// Over returns when an approval can no longer be used, and may be deleted a while later; the zero time means never.
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

// noted returns what the record of a call keeps of its approval.
func (a *Approval) noted(state string) tool.Approval {
	if state == Used {
		state = Approved
	}
	return tool.Approval{ID: a.ID, State: state, By: a.By, At: a.Decided, Reason: a.Reason}
}
