package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	leasetools "toolpost/builtin/lease"
	"toolpost/engine/lease"
	"toolpost/tool"
)

func (a *app) leaseCommand() *cobra.Command {
	leases := own{"lease.list", "list leases", store}
	return group(&cobra.Command{
		Use: "lease", Short: "Issue, list and revoke leases",
		Long: "A lease permits one call of a tool, up to a tier, for a limited time. Tools of the tier in\n" +
			"`limits.lease_tier`, and above, need one for each call.",
		Example: "  LEASE=$(toolpost lease issue deleteFile --ttl 1m)\n" +
			"  toolpost call deleteFile path=old.txt --lease $LEASE\n  toolpost lease list",
	}, a.leaseIssueCommand(), over[leasetools.ListArgs](a, leases, "--limit,n:100", &cobra.Command{
		Use: "list", Short: "List leases, newest first",
		Long: "Lists leases, the newest first: live, used, expired or revoked. A lease is forgotten five minutes after\n" +
			"its end. Tokens are not listed: they are not stored.",
	}, func(l leasetools.Listed) {
		columns[lease.Lease]("id tool caller|- tier expires state", nil).print(a, "leases", l.Leases)
	}), asID(lease.ID, over[leasetools.RevokeArgs](a, own{"lease.revoke", "revoke leases", store}, "id", &cobra.Command{
		Use: "revoke ID", Short: "Revoke a lease",
		Long: "Revokes a lease: a call with it is refused from then on, by every program that shares the store.\n" +
			"ID is the id of the lease or its token. Revoking is a call of the tool lease.revoke: the policy decides\n" +
			"about it, and it is on record. Exit code 3: it was used, revoked or over before; 4: there is no such\n" +
			"lease.",
		ValidArgsFunction: a.completeFrom(leases, "id", "tool", "live"),
	}, func(l lease.Lease) {
		fmt.Fprintf(a.out, "%s  %s for %s\n", a.out.green("revoked"), l.ID, clean(l.Tool))
	})))
}

func (a *app) leaseIssueCommand() *cobra.Command {
	issue := own{"lease.issue", "issue leases", store | sources}
	c := over[leasetools.IssueArgs](a, issue, "tool? --tool --caller: --tier --ttl=ttl_ms:10s", &cobra.Command{
		Use: "issue NAME", Short: "Issue a lease for a tool and print its token",
		Long: "Issues a lease and prints its token, once: only a digest of it is kept. The id, which does\n" +
			"not reveal the token, goes to stderr. Issuing is a call of the tool lease.issue: the policy decides about it,\n" +
			"and it is recorded.",
		ValidArgsFunction: a.completeTool,
	}, func(l leasetools.Issued) {
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
	})
	run := c.RunE
	c.RunE = func(c *cobra.Command, words []string) error {
		name, _ := c.Flags().GetString("tool")
		switch {
		case name != "" && len(words) > 0:
			return tool.Errorf(tool.CodeInvalidInput, "the tool is named twice: %q and --tool %q", words[0], name)
		case name == "" && len(words) == 0:
			return tool.Errorf(tool.CodeInvalidInput, `a lease needs a tool; name it, or say "*" for any`)
		}
		err := run(c, words)
		if tool.CodeOf(err) != tool.CodeNotFound {
			return err
		}
		b, none := issue.open(c.Context(), a)
		if none != nil {
			return err
		}
		defer b.close()
		return suggest(c.Context(), b, append(words, name)[0], err)
	}
	_ = c.RegisterFlagCompletionFunc("tool", func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return a.completeTool(c, nil, word)
	})
	return c
}
