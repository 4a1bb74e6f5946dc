// Package lease has the tools that issue leases, lease.issue, revoke them, lease.revoke, and count them, lease.gc.
// Calling one of them passes the engine like any other call, so that who did what is on record.
package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The names of the tools.
const (
	issueName  = "lease.issue"
	revokeName = "lease.revoke"
	gcName     = "lease.gc"
)

// issuer is the role of callers who may issue leases.
const issuer = "issuer"

// Counts tells how many leases can be used now, and what this process has done with leases so far.
type Counts = struct {
	Active   int `json:"active"`
	Issued   int `json:"issued"`
	Consumed int `json:"consumed"`
	Rejected int `json:"rejected"`
}

// Leases keeps leases.
type Leases interface {
	// Issue makes a lease for one call of the tool, or of any with "*", up to the tier, by the caller, or by
	// whoever has it with "". A ttl of 0 leaves it to the store.
	Issue(ctx context.Context, caller, tool string, tier int, ttl time.Duration) (token string, err error)
	// GC removes what is over, and counts.
	GC(ctx context.Context) (Counts, error)
}

// A Revoker is where leases can be revoked.
type Revoker interface {
	// Revoke makes a lease of the caller useless, or anybody's with "", by its id or its token.
	Revoke(ctx context.Context, caller, id string) error
}

// Options of the tools.
type Options struct {
	Leases Leases // lease.revoke is there where it is a Revoker too
	// Resolve gives a tool that this caller may see, as its Ref is written, and its tier.
	Resolve func(ctx context.Context, caller tool.Principal, name string) (known string, tier int, err error)
}

// A Runner has the tools.
type Runner struct{ o Options }

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// New makes the source.
func New(o Options) *Runner { return &Runner{o} }

const (
	issueInput = `{"type":"object","required":["tool"],"additionalProperties":false,"properties":{` +
		`"tool":{"type":"string","minLength":1,"description":"the tool that may be called once with the lease, or * for any"},` +
		`"tier":{"type":"integer","minimum":0,"maximum":3,"description":"the highest tier that the lease is good for; default: the tier of the tool, 1 for *"},` +
		`"ttl_ms":{"type":"integer","minimum":1000,"maximum":300000,"description":"how long it can be used; default 10000"},` +
		`"caller":{"type":"string","description":"the caller who may use the lease, or empty for whoever has it; default: who asks for it, over a network, else empty"}}}`
	revokeInput = `{"type":"object","additionalProperties":false,"minProperties":1,"maxProperties":1,"properties":{` +
		`"id":{"type":"string","minLength":1,"description":"the id of the lease"},` +
		`"token":{"type":"string","minLength":1,"description":"its token, in place of the id"}}}`
	gcInput = `{"type":"object","additionalProperties":false}`
)

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	specs := []*tool.Spec{
		{Name: issueName, Description: "Issues a lease: the permission for one call of a tool.", Input: json.RawMessage(issueInput)},
		{Name: gcName, Description: "Removes leases that are over and counts the others.", Input: json.RawMessage(gcInput)},
	}
	if _, ok := r.o.Leases.(Revoker); ok {
		specs = append(specs, &tool.Spec{Name: revokeName, Description: "Revokes a lease: nobody can use it any more.", Input: json.RawMessage(revokeInput)})
	}
	return specs, nil
}

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error { return nil }

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(context.Cause(ctx))
	}
	switch c.Tool {
	case issueName:
		return r.issue(ctx, c)
	case revokeName:
		if leases, ok := r.o.Leases.(Revoker); ok {
			return revoke(ctx, c, leases)
		}
	case gcName:
		return r.gc(ctx)
	}
	return nil, tool.Errorf(tool.CodeNotFound, "there is no tool %q about leases", c.Tool)
}

func (r *Runner) issue(ctx context.Context, c *tool.Call) (*tool.Result, error) {
	if err := mayIssue(c.Caller); err != nil {
		return nil, err
	}
	if c.Key != "" { // what is remembered for a key may be written to disk
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s takes no idempotency key: a token is told once and kept by nobody; call again without the key", issueName)
	}
	var args struct {
		Tool   string  `json:"tool"`
		Tier   *int    `json:"tier"`
		TTLms  int64   `json:"ttl_ms"`
		Caller *string `json:"caller"`
	}
	if err := strictjson.UnmarshalClosed(c.Args, &args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", issueName, err)
	}
	whose := own(c.Caller)
	if args.Caller != nil {
		whose = *args.Caller
	}
	name, tier := args.Tool, 1
	if name != "*" {
		var err error
		if name, tier, err = r.o.Resolve(ctx, c.Caller, name); err != nil {
			return nil, err
		}
	}
	if args.Tier != nil {
		tier = *args.Tier
	}
	const tooLong = 1 << 40 // ms; far beyond what the store takes, and what a Duration can still hold
	ttl := time.Duration(max(min(args.TTLms, tooLong), -tooLong)) * time.Millisecond
	token, err := r.o.Leases.Issue(ctx, whose, name, tier, ttl)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"token_id": token, "tool": name, "tier": tier}
	if whose != "" {
		out["caller"] = whose
	}
	return result(out, fmt.Sprintf("a lease for one call of %s", name))
}

// mayIssue refuses who may not issue and revoke leases.
func mayIssue(p tool.Principal) error {
	if p.Operator() || slices.Contains(p.Roles(), issuer) {
		return nil
	}
	return tool.Errorf(tool.CodeAccessDenied, "%q may not issue or revoke leases: only the owner may, who runs toolpost on its "+
		"command line, a program that started it, or a caller with the role %s", p.ID, issuer)
}

// own is whose leases somebody has to do with who names nobody: their own, or anybody's for the operator.
func own(p tool.Principal) string {
	if p.Operator() {
		return ""
	}
	return p.ID
}

func revoke(ctx context.Context, c *tool.Call, leases Revoker) (*tool.Result, error) {
	if err := mayIssue(c.Caller); err != nil {
		return nil, err
	}
	var args struct {
		ID    string `json:"id"`
		Token string `json:"token"` // a name of its own: records leave out what is called so
	}
	if err := strictjson.UnmarshalClosed(c.Args, &args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", revokeName, err)
	}
	if (args.ID == "") == (args.Token == "") {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s needs the id of a lease or its token, one of them", revokeName)
	}
	if err := leases.Revoke(ctx, own(c.Caller), args.ID+args.Token); err != nil {
		return nil, err
	}
	return result(map[string]any{"revoked": true}, "the lease is revoked")
}

func (r *Runner) gc(ctx context.Context) (*tool.Result, error) {
	counts, err := r.o.Leases.GC(ctx)
	if err != nil {
		return nil, err
	}
	return result(counts, fmt.Sprintf("%d leases can be used", counts.Active))
}

func result(output any, summary string) (*tool.Result, error) {
	b, err := strictjson.Marshal(output)
	if err != nil {
		return nil, err
	}
	return &tool.Result{OK: true, Output: b, Summary: summary}, nil
}
