// Package lease has the tools that issue leases, lease.issue, list them, lease.list, revoke them, lease.revoke, and count
// them, lease.gc. Their calls pass the engine like any other, so that the record shows who did what.
package lease

import (
	"context"
	"slices"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/lease"
	"toolpost/tool"
)

// The names of the tools that appear in messages.
const (
	issueName  = "lease.issue"
	revokeName = "lease.revoke"
)

// issuer is the role of callers that may issue leases.
const issuer = "issuer"

// Leases keeps leases.
type Leases interface {
	// Issue makes a lease for one call of the tool, or of any with "*", up to the tier, by the caller, or by any holder with
	// "". With a ttl of 0 the store chooses.
	Issue(ctx context.Context, caller, tool string, tier int, ttl time.Duration) (token string, err error)
	// GC removes ended leases, and counts.
	GC(ctx context.Context) (lease.Counts, error)
}

// A Registry lists and revokes leases.
type Registry interface {
	// Revoke revokes a lease of the caller, or of any caller with "", by its id or its token.
	Revoke(ctx context.Context, caller, id string) error
	// Find returns a lease, by its id or its token.
	Find(ctx context.Context, id string) (lease.Lease, error)
	// List returns leases, the newest first, or all with 0.
	List(ctx context.Context, most int) ([]lease.Lease, error)
}

// Options of the tools.
type Options struct {
	Leases Leases // if it is also a Registry, there are lease.list and lease.revoke
	// Resolve returns the Ref and the tier of a tool that this caller may see.
	Resolve func(ctx context.Context, caller tool.Principal, name string) (known string, tier int, err error)
}

// New makes the tools.
func New(o Options) *define.Set {
	registry, _ := o.Leases.(Registry)
	t := tools{o, registry}
	tools := []define.Tool{
		define.New(tool.Spec{Name: issueName, Description: "Issues a lease: the permission for one call of a tool."}, t.issue),
		define.New(tool.Spec{Name: "lease.gc", Description: "Removes old leases and returns the counts: active, issued, consumed and rejected."}, t.gc),
	}
	if registry != nil {
		tools = append(tools, define.New(tool.Spec{
			Name: revokeName, Description: "Revokes a lease: no call can use it any more.",
		}, t.revoke), define.New(tool.Spec{
			Name: "lease.list", Effects: tool.Effects{Reads: true},
			Description: "Lists the leases of all callers, the newest first. Their tokens are nowhere.",
		}, define.ForOperators("list the leases of all callers", t.list)))
	}
	return define.NewSet(tools...)
}

type tools struct {
	o        Options
	registry Registry // nil if leases end with this program
}

// IssueArgs are the arguments of lease.issue.
type IssueArgs struct {
	Tool   string  `json:"tool" schema:"required minLength=1" doc:"the tool that may be called once with the lease, or * for any"`
	Tier   *int    `json:"tier" schema:"minimum=0 maximum=3" doc:"highest tier of a call with this lease; default: the tool's tier, 1 for *"`
	TTLms  int64   `json:"ttl_ms" schema:"minimum=1000 maximum=300000" doc:"how long the lease can be used; default 10000"`
	Caller *string `json:"caller" doc:"caller that may use the lease; empty: any caller that has the token; default: you, over a network, else empty"`
}

// Issued is the output of lease.issue.
type Issued struct {
	Caller string `json:"caller,omitempty"` // empty if any holder may use it
	Tier   int    `json:"tier"`
	Token  string `json:"token"`
	Tool   string `json:"tool"`
	// Only if there is a Registry.
	ID      string    `json:"id,omitzero"`
	Issued  time.Time `json:"issued,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	State   string    `json:"state,omitzero"`
}

func (t tools) issue(ctx context.Context, c *define.Call, args IssueArgs) (Issued, error) {
	if err := mayIssue(c.Caller); err != nil {
		return Issued{}, err
	}
	if err := c.Told("a lease"); err != nil {
		return Issued{}, err
	}
	out := Issued{Caller: own(c.Caller), Tool: args.Tool, Tier: 1}
	if args.Caller != nil {
		out.Caller = *args.Caller
	}
	var err error
	if out.Tool != "*" {
		if out.Tool, out.Tier, err = t.o.Resolve(ctx, c.Caller, out.Tool); err != nil {
			return out, err
		}
	}
	if args.Tier != nil {
		out.Tier = *args.Tier
	}
	const tooLong = 1 << 40 // ms; far beyond what the store takes, and what a Duration can still hold
	ttl := time.Duration(max(min(args.TTLms, tooLong), -tooLong)) * time.Millisecond
	out.Token, err = t.o.Leases.Issue(ctx, out.Caller, out.Tool, out.Tier, ttl)
	c.Summary = "a lease for one call of " + out.Tool
	if err != nil || t.registry == nil {
		return out, err
	}
	l, err := t.registry.Find(ctx, out.Token)
	out.ID, out.Issued, out.Expires, out.State = l.ID, l.Issued, l.Expires, l.State
	return out, err
}

// mayIssue refuses callers that may not issue and revoke leases.
func mayIssue(p tool.Principal) error {
	if p.Operator() || slices.Contains(p.Roles(), issuer) {
		return nil
	}
	return tool.Errorf(tool.CodeAccessDenied,
		"%q may not issue or revoke leases: only the owner, the user of the command line "+
			"and callers with the role %s may", p.ID, issuer)
}

// own returns the default owner of leases: the caller itself, or "" (any) for an operator.
func own(p tool.Principal) string {
	if p.Operator() {
		return ""
	}
	return p.ID
}

// RevokeArgs are the arguments of lease.revoke.
type RevokeArgs struct {
	_     struct{} `schema:"minProperties=1 maxProperties=1"`
	ID    string   `json:"id" schema:"minLength=1" doc:"the id of the lease"`
	Token string   `json:"token" schema:"minLength=1" doc:"its token, in place of the id"` // records omit values of this name
}

type revoked struct {
	Revoked bool `json:"revoked"`
	lease.Lease
}

func (t tools) revoke(ctx context.Context, c *define.Call, args RevokeArgs) (revoked, error) {
	if err := mayIssue(c.Caller); err != nil {
		return revoked{}, err
	}
	if (args.ID == "") == (args.Token == "") {
		return revoked{}, tool.Errorf(tool.CodeInvalidInput, "%s needs the id of a lease or its token, one of them",
			revokeName)
	}
	if err := t.registry.Revoke(ctx, own(c.Caller), args.ID+args.Token); err != nil {
		return revoked{}, err
	}
	l, err := t.registry.Find(ctx, args.ID+args.Token)
	c.Summary = "the lease is revoked"
	return revoked{true, l}, err
}

// ListArgs are the arguments of lease.list.
type ListArgs struct {
	Limit int `json:"limit" schema:"minimum=0" doc:"maximum number of leases; 0: all"`
}

// Listed is the output of lease.list.
type Listed struct {
	Leases []lease.Lease `json:"leases"`
}

func (t tools) list(ctx context.Context, _ *define.Call, a ListArgs) (Listed, error) {
	all, err := t.registry.List(ctx, a.Limit)
	return Listed{all}, err
}

func (t tools) gc(ctx context.Context, c *define.Call, _ struct{}) (lease.Counts, error) {
	counts, err := t.o.Leases.GC(ctx)
	c.Summary = define.Count(counts.Active, "lease") + " can be used"
	return counts, err
}
