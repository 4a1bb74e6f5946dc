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
		Long: "A lease permits one call of a tool, up to a tier, for a limited time. Tools of the tier in\n" +
			"`limits.lease_tier`, and above, need one for each call.",
		Example: "  LEASE=$(toolpost lease issue deleteFile --ttl 1m)\n" +
			"  toolpost call deleteFile path=old.txt --lease $LEASE\n  toolpost lease list",
	}, a.leaseIssueCommand(), leaseListing().list(a), leaseListing().revoke(a))
}

func (a *app) leaseIssueCommand() *cobra.Command {
	var name, caller string
	var tier int
	ttl := lease.DefaultTTL
	c := &cobra.Command{
		Use: "issue NAME", Short: "Issue a lease for a tool and print its token", Args: words(0, 1),
		Long: "Issues a lease and prints its token, once: only a digest of it is kept. The id, which does\n" +
			"not reveal the token, goes to stderr. Issuing is a call of the tool lease.issue: the policy decides about it,\n" +
			"and it is recorded.",
		ValidArgsFunction: a.completeTool,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case name != "" && len(args) > 0:
				return tool.Errorf(tool.CodeInvalidInput, "the tool is named twice: %q and --tool %q", args[0], name)
			case len(args) > 0:
				name = args[0]
			}
			switch {
			case name == "":
				return tool.Errorf(tool.CodeInvalidInput, `a lease needs a tool; name it, or say "*" for any`)
			case tier < 0 || tier > lease.MaxTier:
				return tool.Errorf(tool.CodeInvalidInput, "--tier is from 0 to %d, not %d", lease.MaxTier, tier)
			case ttl < lease.MinTTL || ttl > lease.MaxTTL:
				return tool.Errorf(tool.CodeInvalidInput, "--ttl is from %v to %v, not %v", lease.MinTTL, lease.MaxTTL, ttl)
			}
			want := map[string]any{"tool": name, "ttl_ms": ttl.Milliseconds(), "caller": caller}
			if c.Flags().Changed("tier") { // otherwise the tool's tier applies
				want["tier"] = tier
			}
			return a.issue(c.Context(), name, want)
		},
	}
	f := c.Flags()
	f.StringVar(&name, "tool", "", "same as NAME")
	f.StringVar(&caller, "caller", "", "the caller who may use the lease (default: whoever has it)")
	f.IntVar(&tier, "tier", 0, "the highest tier that the lease is good for (default: that of the tool, 1 for *)")
	durationVar(c, &ttl, "ttl", "how long the lease can be used, from 1s to 5m")
	completeTool := func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return a.completeTool(c, nil, word)
	}
	_ = c.RegisterFlagCompletionFunc("tool", completeTool)
	return a.withServer(a.withJSON("print the token and the lease as JSON", c))
}

// issue issues a lease for a tool.
func (a *app) issue(ctx context.Context, name string, args map[string]any) error {
	var l struct {
		Token string `json:"token"`
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
		return suggest(ctx, b, name, err)
	case err != nil:
		return err
	case a.json:
		return a.printJSON(l)
	}
	fmt.Fprintln(a.out, l.Token)
	told := fmt.Sprintf("lease %s for one call of %s", lease.ID(l.Token), clean(l.Tool))
	if l.Caller != "" {
		told += " by " + clean(l.Caller)
	}
	told += fmt.Sprintf(", up to tier %d", l.Tier)
	if !l.Expires.IsZero() { // a server without a store does not report it
		told += ", until " + when(l.Expires, time.Now())
	}
	fmt.Fprintln(a.err, told)
	return nil
}

func leaseListing() listing[lease.Lease] {
	return listing[lease.Lease]{
		kind: "lease",
		lists: "Lists leases, the newest first: live, used, expired or revoked. A lease is forgotten five minutes after\n" +
			"its end. Tokens are not listed: they are not stored.",
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
