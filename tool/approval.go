package tool

import (
	"encoding/json"
	"time"
)

// A Consent is the approval that policy requires before a call may run. If several rules require one, the approver must
// be named by each of them.
type Consent struct {
	Rules   []ConsentRule
	Touches Touches // what the call is going to touch, for the approvers
	// Preview is that of tool.Previewer, for this call; nil if the runner is none.
	Preview func(path string, limit int64) ([]byte, error)
}

// A ConsentRule is the requirement of one rule.
type ConsentRule struct {
	Name      string        `json:"name"`
	About     string        `json:"about,omitempty"` // a digest of what the rule is about: a rule about more has another digest
	Reason    string        `json:"reason,omitempty"`
	Approvers []Glob        `json:"approvers"`
	Self      bool          `json:"self,omitzero"`      // the caller may approve its own call
	Timeout   time.Duration `json:"-"`                  // how long the approvers have to decide
	Remember  []string      `json:"remember,omitempty"` // the ways in which an approval may be remembered
}

// AskApproval is the kind of an Ask that is meant for an approver, and does not ask for anything that the tool wants to
// know.
const AskApproval = "approval"

// AskConnection is the kind of an Ask for accounts that the caller has to connect first. Its needs are links.
const AskConnection = "connection"

// An Awaited describes to a caller the approval that its call waits for.
type Awaited struct {
	Tool      string          `json:"tool"`
	Args      json.RawMessage `json:"arguments,omitzero"` // without secrets
	Approvers []string        `json:"approvers"`          // names and roles
	Until     time.Time       `json:"until"`              // no answer by then is a refusal
	Rules     []string        `json:"rules"`              // the rules that ask for it
	Reason    string          `json:"reason,omitempty"`   // why they ask
	Self      bool            `json:"self,omitzero"`      // the caller may decide it, with the answers that Schema wants
}
