package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"toolpost/engine/lease"
	"toolpost/node"
	"toolpost/tool"
)

func (a *app) leaseCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "lease", Short: "Issue, list and revoke leases",
		Long: "A lease is the permission for one call of a tool, up to a tier, for a while. Tools of the tier that\n" +
			"`limits.lease_tier` in the config names, and above, need one for each call.",
		Example: "  LEASE=$(toolpost lease issue --tool deleteFile --ttl 1m)\n" +
			"  toolpost call deleteFile path=old.txt --lease $LEASE\n  toolpost lease list",
	}, a.leaseIssueCommand(), leaseListing().list(a), leaseListing().revoke(a))
}

// A leaseRequest is what the command line of `lease issue` asks for.
type leaseRequest struct {
	tool   string
	caller string // empty: whoever has it
	tier   int
	tiered bool // a tier was asked for; else it is that of the tool
	ttl    time.Duration
}

func (a *app) leaseIssueCommand() *cobra.Command {
	var req leaseRequest
	c := &cobra.Command{
		Use: "issue --tool NAME", Short: "Issue a lease and print its token", Args: words(0, 0),
		Long: "Issues a lease and prints its token, this once: what is kept is a digest of it. The id, which tells nobody\n" +
			"the token, goes to stderr. Issuing is a call of the tool lease.issue: the policy decides about it, and it is on\n" +
			"record.",
		RunE: func(c *cobra.Command, _ []string) error {
			req.tiered = c.Flags().Changed("tier")
			if err := req.check(); err != nil {
				return err
			}
			return a.issue(c.Context(), req)
		},
	}
	a.serverFlags(c)
	f := c.Flags()
	f.StringVar(&req.tool, "tool", "", "the tool that may be called once, or * for any")
	f.StringVar(&req.caller, "caller", "", "the caller who may use the lease (default: whoever has it)")
	f.IntVar(&req.tier, "tier", 0, "the highest tier that the lease is good for (default: that of the tool, 1 for *)")
	f.DurationVar(&req.ttl, "ttl", lease.DefaultTTL, "how long the lease can be used, from 1s to 5m")
	a.jsonFlag(c, "print the token and the lease as JSON")
	completeTool := func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return a.completeTool(c, nil, word)
	}
	_ = c.RegisterFlagCompletionFunc("tool", completeTool)
	return c
}

func (r leaseRequest) check() error {
	switch {
	case r.tool == "":
		return tool.Errorf(tool.CodeInvalidInput, `a lease needs a tool; say --tool NAME, or --tool "*" for any`)
	case r.tier < 0 || r.tier > lease.MaxTier:
		return tool.Errorf(tool.CodeInvalidInput, "--tier is from 0 to %d, not %d", lease.MaxTier, r.tier)
	case r.ttl < lease.MinTTL || r.ttl > lease.MaxTTL:
		return tool.Errorf(tool.CodeInvalidInput, "--ttl is from %v to %v, not %v", lease.MinTTL, lease.MaxTTL, r.ttl)
	}
	return nil
}

func (a *app) issue(ctx context.Context, req leaseRequest) error {
	args := map[string]any{"tool": req.tool, "ttl_ms": req.ttl.Milliseconds(), "caller": req.caller}
	if req.tiered {
		args["tier"] = req.tier
	}
	var l struct {
		Token string `json:"token_id"`
		lease.Lease
	}
	b, err := a.openKept(ctx, node.Options{})
	if err != nil {
		return err
	}
	defer b.close()
	err = a.callOwn(ctx, b, tool.Call{Tool: "lease.issue", Args: raw(args)}, "issue leases", &l)
	switch {
	case tool.CodeOf(err) == tool.CodeNotFound: // the tool that the lease is for
		return suggest(ctx, b, req.tool, err)
	case err != nil:
		return err
	case a.json:
		return a.printJSON(struct {
			Token string `json:"token"`
			lease.Lease
		}(l))
	}
	fmt.Fprintln(a.out, l.Token)
	by, until := "", ""
	if l.Caller != "" {
		by = " by " + clean(l.Caller)
	}
	if !l.Expires.IsZero() { // a server without a store does not say
		until = ", until " + when(l.Expires, time.Now())
	}
	fmt.Fprintf(a.err, "lease %s for one call of %s%s, up to tier %d%s\n",
		lease.ID(l.Token), clean(l.Tool), by, l.Tier, until)
	return nil
}

func leaseListing() listing[lease.Lease] {
	return listing[lease.Lease]{
		kind: "lease",
		lists: "Lists leases, the newest first: live, used, expired or revoked. A lease is forgotten five minutes after\n" +
			"its end. Tokens are not listed: nobody has kept them.",
		revokes: "Makes a lease useless: a call with it is refused from then on, by every program that shares the store.\n" +
			"ID is the id of the lease or its token. Revoking is a call of the tool lease.revoke: the policy decides\n" +
			"about it, and it is on record. Exit code 3: it was used, revoked or over before; 4: there is no such\n" +
			"lease.",
		head: []string{"ID", "TOOL", "CALLER", "TIER", "EXPIRES", "STATE"},
		row: func(l lease.Lease, now time.Time) []string {
			return []string{l.ID, l.Tool, cmp.Or(l.Caller, "-"), strconv.Itoa(l.Tier), when(l.Expires, now), l.State}
		},
		about: func(l lease.Lease) (id, what, state string) { return l.ID, l.Tool, l.State },
		asID:  lease.ID,
	}
}
