package tool

import (
	"encoding/json"
	"time"
)

// A Consent is what policy asks for before a call may run: that somebody approves it. Several rules may ask; then
// whoever approves must be somebody whom each of them names.
type Consent struct {
	Rules   []ConsentRule
	Touches Touches // what the call is going to touch, for those who decide
}

// A ConsentRule is what one rule asks for.
type ConsentRule struct {
	Name      string        `json:"name"`
	About     string        `json:"about,omitempty"` // a digest of what the rule is about: one that is about more is another one
	Reason    string        `json:"reason,omitempty"`
	Approvers []Glob        `json:"approvers"`
	Self      bool          `json:"self,omitzero"`      // the caller may be the one who approves
	Timeout   time.Duration `json:"-"`                  // how long somebody may take to decide
	Remember  []string      `json:"remember,omitempty"` // the ways in which an approval may be remembered
}

// AskApproval is the kind of an Ask that is for somebody who approves calls, and not about anything the tool wants to
// know.
const AskApproval = "approval"

// An Awaited is what a caller is told of an approval that its call waits for.
type Awaited struct {
	Tool      string          `json:"tool"`
	Args      json.RawMessage `json:"arguments,omitzero"` // without what is secret
	Approvers []string        `json:"approvers"`          // names and roles
	Until     time.Time       `json:"until"`              // no answer by then is a refusal
	Rules     []string        `json:"rules"`              // that ask for it
	Reason    string          `json:"reason,omitempty"`   // why they do
	Self      bool            `json:"self,omitzero"`      // the caller may decide it, with the answers that Schema wants
}
