package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/duration"
)

// Ways are the ways in which an approval may be remembered; nil means all.
type Ways = tool.Several[Way, *Way]

// A Way is how an approval is remembered.
type Way string

// ways lists the ways. Package approval defines them.
func ways() []string { return []string{"session", "arguments", "hour", "always"} }

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Way) UnmarshalText(b []byte) error {
	if *w = Way(b); !slices.Contains(ways(), string(b)) {
		return fmt.Errorf("expected %s, got %q", strings.Join(ways(), ", "), b)
	}
	return nil
}

// The limits and defaults of rules that ask.
const (
	approver   = "owner" // the operator of toolpost
	patience   = 15 * time.Minute
	minTimeout = time.Second
	maxTimeout = 30 * 24 * time.Hour
)

// checkAsking refuses the fields of rules that ask in other rules, and senseless times.
func (r *Rule) checkAsking() error {
	asks := r.Approvers != nil || r.Self || r.Timeout != 0 || r.Remember != nil
	switch t := time.Duration(r.Timeout); {
	case r.Effect != Ask && asks:
		return fmt.Errorf("rule %q: approvers, self, timeout and remember belong to `effect: ask`", r.Name)
	case t != 0 && (t < minTimeout || t > maxTimeout):
		return fmt.Errorf("rule %q: timeout is from %s to %s, not %s", cmp.Or(r.Name, string(Ask)), duration.Text(minTimeout),
			duration.Text(maxTimeout), duration.Text(t))
	case r.Approvers != nil && len(r.Approvers) == 0:
		return errors.New("approvers is an empty list, so no one could approve; leave it out for the owner")
	}
	return nil
}

// nameRules names the rules that ask and have no name, by their index: such a rule is often one line.
func (o *Options) nameRules() {
	for i := range o.Rules {
		if r := &o.Rules[i]; r.Name == "" && r.Effect == Ask {
			r.Name = fmt.Sprintf("ask-%d", i+1)
		}
	}
}

// decides reports whether a tool is one of those that approve calls. If these needed approval too, no call could ever be
// approved.
func decides(s *tool.Spec) bool {
	return s.Source == config.OwnSource && strings.HasPrefix(s.Ref().Name, "approvals.")
}

// asAllow returns a rule that asks as one that allows what was approved: it has to match everything that a call touches,
// and an alias is not enough.
func (r *Rule) asAllow() *Rule {
	granted := *r
	granted.Effect = Allow
	return &granted
}

// denying has the words for what a rule does to a matching file.
var denying = map[Effect]string{
	Deny: "denies it", Ask: "asks for an approval, which a call gets that names the file itself",
}

// An Asking is the demand of some rules for an approval, as part of a decision.
type Asking struct {
	Approvers []string `json:"approvers"` // names and roles
	Self      bool     `json:"self,omitzero"`
	TimeoutMS int64    `json:"timeout_ms"`
	Rules     []string `json:"rules"`

	asked []tool.ConsentRule
}

// Asked returns the demands of the rules.
func (a *Asking) Asked() []tool.ConsentRule { return a.asked }

// asked separates the rules that ask about what a call touches from those that do not match it. A nil Asking asks for
// nothing.
func asked(rules []*Rule, t tool.Touches) (a *Asking, silent []*Rule) {
	for _, r := range rules {
		if _, hit := r.denies(t); !hit {
			silent = append(silent, r)
			continue
		}
		if a == nil {
			a = &Asking{Self: true}
		}
		a.add(r.asks())
	}
	return a, silent
}

// about returns a digest of what a rule matches, and of who decides. The name alone does not distinguish a rule from one of the same name in
// a later config, least of all if it is an index.
func (r *Rule) about() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q %v %q", r.Callers, r.Roles, r.Doors, r.Tools, r.Sources, r.Tiers, r.Access)
	for _, g := range r.Paths {
		fmt.Fprintf(h, " path %q", g.text)
	}
	for _, c := range r.Commands {
		fmt.Fprintf(h, " command %q", c.words)
	}
	if w := r.Time; w != nil {
		fmt.Fprintf(h, " time %v %v %v %v", w.Days, w.From, w.To, w.Zone.loc)
	}
	fmt.Fprintf(h, " when %q approvers %q %v", r.When.text, r.Approvers, r.Self)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// asks returns the rule's demand for an approval.
func (r *Rule) asks() tool.ConsentRule {
	approvers, remember := r.Approvers, ways()
	if approvers == nil {
		approvers = tool.Globs{approver}
	}
	if r.Remember != nil {
		remember = []string{}
		for _, w := range r.Remember {
			remember = append(remember, string(w))
		}
	}
	return tool.ConsentRule{
		Name: r.Name, About: r.about(), Reason: r.Reason, Approvers: approvers, Self: r.Self, Remember: remember,
		Timeout: cmp.Or(time.Duration(r.Timeout), patience),
	}
}

// add adds a rule: an approver must be named by each rule, and the shortest time holds.
func (a *Asking) add(r tool.ConsentRule) {
	a.asked = append(a.asked, r)
	a.Rules = append(a.Rules, r.Name)
	for _, g := range r.Approvers {
		if !slices.Contains(a.Approvers, string(g)) {
			a.Approvers = append(a.Approvers, string(g))
		}
	}
	a.Self = a.Self && r.Self
	if t := r.Timeout.Milliseconds(); a.TimeoutMS == 0 || t < a.TimeoutMS {
		a.TimeoutMS = t
	}
}

// of adds the demand to a decision that allows a call.
func (a *Asking) of(d Decision) Decision {
	if a == nil {
		return d
	}
	first := Rule{Name: a.asked[0].Name, Reason: a.asked[0].Reason}
	d.Ask, d.Rule, d.Reason = a, first.Name, first.why("asks for an approval by "+strings.Join(a.Approvers, ", "))
	return d
}

// consent returns what the call carries to the stage that asks.
func (a *Asking) consent(t tool.Touches) *tool.Consent {
	if a == nil {
		return nil
	}
	return &tool.Consent{Rules: a.asked, Touches: t}
}

// Effect returns the decision in one word.
func (d *Decision) Effect() Effect {
	switch {
	case !d.Allowed:
		return Deny
	case d.Ask != nil:
		return Ask
	}
	return Allow
}
