// Package lease has the tools that issue leases, lease.issue, and count them, lease.gc. Calling one of them
// passes the engine like any other call, so that who issued what is on record.
package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"toolpost/strictjson"
	"toolpost/tool"
)

// The names of the tools.
const (
	issueName = "lease.issue"
	gcName    = "lease.gc"
)

// Counts tells how many leases can be used now, and what this process has done with leases so far.
type Counts = struct {
	Active   int `json:"active"`
	Issued   int `json:"issued"`
	Consumed int `json:"consumed"`
	Rejected int `json:"rejected"`
}

// Leases keeps leases.
type Leases interface {
	// Issue makes a lease for one call of the tool, or of any with "*", up to the tier. A ttl of 0 leaves
	// it to the store.
	Issue(ctx context.Context, tool string, tier int, ttl time.Duration) (token string, err error)
	// GC removes what is over, and counts.
	GC(ctx context.Context) (Counts, error)
}

// Options of the tools.
type Options struct {
	Leases Leases
	// Issuers are the ids of the callers who may issue. Nil: only who runs this program on its command
	// line or starts it as a child, which both are the caller "local" and come through no network door.
	Issuers []string
	// Resolve gives the name under which the engine knows a tool that this caller may see, and its tier.
	Resolve func(ctx context.Context, caller tool.Principal, name string) (known string, tier int, err error)
}

// A Runner has the two tools.
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
		`"ttl_ms":{"type":"integer","minimum":1000,"maximum":300000,"description":"how long it can be used; default 10000"}}}`
	gcInput = `{"type":"object","additionalProperties":false}`
)

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{
		{Name: issueName, Description: "Issues a lease: the permission for one call of a tool.", Input: json.RawMessage(issueInput)},
		{Name: gcName, Description: "Removes leases that are over and counts the others.", Input: json.RawMessage(gcInput)},
	}, nil
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
	case gcName:
		return r.gc(ctx)
	}
	return nil, tool.Errorf(tool.CodeNotFound, "%q is not a lease tool; there are %s and %s", c.Tool, issueName, gcName)
}

func (r *Runner) issue(ctx context.Context, c *tool.Call) (*tool.Result, error) {
	if !r.mayIssue(c.Caller) {
		return nil, tool.Errorf(tool.CodeAccessDenied, "%q may not issue leases: only who runs toolpost on its command line may, or a program that started it", c.Caller.ID)
	}
	var args struct {
		Tool  string `json:"tool"`
		Tier  *int   `json:"tier"`
		TTLms int64  `json:"ttl_ms"`
	}
	if err := strictjson.UnmarshalClosed(c.Args, &args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", issueName, err)
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
	token, err := r.o.Leases.Issue(ctx, name, tier, ttl)
	if err != nil {
		return nil, err
	}
	return result(map[string]any{"token_id": token, "tool": name, "tier": tier}, fmt.Sprintf("a lease for one call of %s", name))
}

func (r *Runner) mayIssue(p tool.Principal) bool {
	if r.o.Issuers != nil {
		return slices.Contains(r.o.Issuers, p.ID)
	}
	return p.ID == "local" && !slices.Contains([]string{"http", "nats"}, p.Door)
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
