package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	leasetools "toolpost/builtin/lease"
	"toolpost/builtin/token"
	"toolpost/cmd/toolpost/format"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine/lease"
	"toolpost/identity"
	"toolpost/node/access"
	"toolpost/tool"
	"toolpost/wire/duration"
)

func (a *app) tokenCommand() *cobra.Command {
	tokens := own{"token.list", "list tokens", store}
	return group(&cobra.Command{
		Use: "token", Short: "Issue, list and revoke tokens of callers, or replace the owner's token",
		Long: "A caller authenticates at a door with a token. The section `callers` of the config says what each caller\n" +
			"may use; a token can be limited to less. A caller may have several tokens.",
		Example: "  toolpost token issue ci --role reader --ttl 24h --note \"nightly build\"\n" +
			"  toolpost token list\n  toolpost token revoke 0f3a5c7e9b1d2f46",
	}, a.tokenIssueCommand(), over[token.ListArgs](a, tokens, "--limit,n:100", &cobra.Command{
		Use: "list", Short: "List tokens, newest first",
		Long: "Lists tokens, the newest first: live, expired or revoked. A token is forgotten 30 days after its end. The\n" +
			"tokens themselves are not shown: they are not stored. Tokens that the config lists by digest are left out.",
	}, func(l token.Listed) {
		columns[identity.Token]("id caller roles|- tools|- issued expires|never state note", nil).print(a, "tokens", l.Tokens)
	}), asID(identity.TokenID, over[token.RevokeArgs](a, revokesTokens, "id", &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token",
		Long: "Revokes a token: every program that shares the store refuses it, within a second. ID is the id of the\n" +
			"token, or the token itself. The command calls the tool token.revoke, and the call is recorded. Exit code\n" +
			"3: already revoked or expired; 4: no such token.",
		ValidArgsFunction: a.completeFrom(tokens, "id", "caller", "live"),
	}, func(t identity.Token) {
		fmt.Fprintf(a.out, "%s  %s for %s\n", a.out.green("revoked"), t.ID, clean(t.Caller))
	})), a.tokenNewOwnerCommand())
}

// The tools that `toolpost connect` calls too.
var (
	issuesTokens  = own{"token.issue", "issue tokens", store}
	revokesTokens = own{"token.revoke", "revoke tokens", store}
)

// asID makes c replace a secret that was typed in place of its id, so that no secret is sent on.
func asID(id func(string) string, c *cobra.Command) *cobra.Command {
	return first(c, func(_ *cobra.Command, words []string) ([]string, error) { return []string{id(words[0])}, nil })
}

func (a *app) tokenNewOwnerCommand() *cobra.Command {
	return a.withJSON("print the token as JSON", &cobra.Command{
		Use: "new-owner", Short: "Replace the owner's token, for example if it is lost",
		Long: "Makes a new token for the owner of this installation and prints it, once. The previous token stops\n" +
			"working. A server on the same state folder accepts the new token within a second. A server that was\n" +
			"started with TOOLPOST_TOKEN keeps that token.",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if err := a.hasOwner(cfg); err != nil {
				return err
			}
			made, err := access.NewOwnerToken(cfg)
			if err != nil {
				return err
			}
			shown, where, err := disclose(cfg, made, isKept(os.Stdout, false)) // a file was chosen for it
			if err != nil {
				return err
			}
			return a.conclude(map[string]string{"token": shown, "file": where}, func() {
				fmt.Fprintln(a.out, cmp.Or(shown, where))
				fmt.Fprintln(a.err, "the owner's token; the one before it is no longer valid, and this one is not shown again")
			}, false)
		},
	})
}

// hasOwner refuses a folder in which no server can have run: a token made there would replace none.
func (a *app) hasOwner(cfg *config.Config) error {
	if !a.unconfigured() {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(cfg.StateDir(), identity.TokenFile)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, nowhere+", and no server has run in it; --config names the server's config")
}

// tokenFile holds the owner's token if it could not be shown.
const tokenFile = "owner-token"

// disclose decides how a person gets the owner's token. It is shown, unless the output is kept: the system's journal
// keeps it for years and shows it to a whole group, and a log is read by others. Then it is put into a file that only the owner can read.
func disclose(cfg *config.Config, token string, kept bool) (shown, file string, err error) {
	path := filepath.Join(cfg.StateDir(), tokenFile)
	if !kept {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // it holds an earlier token
			return "", "", tool.Errorf(tool.CodeUnavailable, "the token that is no longer valid is left: %w", err)
		}
		return token, "", nil
	}
	if err := offlimits.WriteOver(path, token+"\n"); err != nil {
		return "", "", tool.Errorf(tool.CodeUnavailable, "the token cannot be kept for you: %w", err)
	}
	return "", path, nil
}

// isKept reports whether a stream is the one that systemd reads for its journal, or a file, such as a log, if those count.
func isKept(f *os.File, files bool) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	is := info.Sys().(*syscall.Stat_t)
	return files && info.Mode().IsRegular() || os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", is.Dev, is.Ino)
}

func (a *app) tokenIssueCommand() *cobra.Command {
	return first(over[token.IssueArgs](a, issuesTokens, "caller --role=roles --tools --ttl=ttl_ms:30d --note", &cobra.Command{
		Use: "issue CALLER", Short: "Issue a token and print it",
		Long: "Issues a token and prints it, once: only a digest of it is kept. Its id, which does not reveal the token,\n" +
			"goes to stderr. A caller that the config lists has the rights in the config, limited by --role and\n" +
			"--tools; any other caller has the rights that --role and --tools name. The command calls the tool\n" +
			"token.issue: the policy applies, and the call is recorded.",
	}, func(t token.Issued) {
		fmt.Fprintln(a.out, t.Secret)
		fmt.Fprintf(a.err, "token %s for %s, valid until %s; it is not shown again\n",
			t.ID, clean(t.Caller), cmp.Or(format.When(t.Expires, time.Now()), "it is revoked"))
	}), func(c *cobra.Command, words []string) ([]string, error) {
		ttl, _ := duration.Parse(c.Flag("ttl").Value.String())
		if ttl != 0 && (ttl < time.Second || ttl > identity.MaxTokenTTL) {
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"--ttl must be from 1s to %s, or 0 for no end, not %s", duration.Text(identity.MaxTokenTTL), duration.Text(ttl))
		}
		return words, nil
	})
}

func (a *app) leaseCommand() *cobra.Command {
	leases := own{"lease.list", "list leases", store}
	return group(&cobra.Command{
		Use: "lease", Short: "Issue, list and revoke leases",
		Long: "A lease permits one call of a tool, up to a tier (0 safe, 1 writes, 2 system, 3 dangerous), for a\n" +
			"limited time. If `limits.lease_tier` is 1 or more, each call of a tool of that tier or higher needs a\n" +
			"lease; 0, the default, means that no call needs one.",
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
		Long: "Revokes a lease: a call with it is refused from then on, by every program that shares the store. ID is the\n" +
			"id of the lease or its token. The command calls the tool lease.revoke: the policy applies, and the call is\n" +
			"recorded. Exit code 3: already used, revoked or expired; 4: no such lease.",
		ValidArgsFunction: a.completeFrom(leases, "id", "tool", "live"),
	}, func(l lease.Lease) {
		fmt.Fprintf(a.out, "%s  %s for %s\n", a.out.green("revoked"), l.ID, clean(l.Tool))
	})))
}

func (a *app) leaseIssueCommand() *cobra.Command {
	issue := own{"lease.issue", "issue leases", store | sources}
	c := over[leasetools.IssueArgs](a, issue, "tool? --tool --caller: --tier --ttl=ttl_ms:10s", &cobra.Command{
		Use: "issue (NAME | --tool NAME)", Short: "Issue a lease for a tool and print its token",
		Long: "Issues a lease and prints its token, once: only a digest of it is kept. The id, which does not reveal the\n" +
			"token, goes to stderr. The command calls the tool lease.issue: the policy applies, and the call is\n" +
			"recorded.",
		ValidArgsFunction: a.completeTool,
	}, func(l leasetools.Issued) {
		fmt.Fprintln(a.out, l.Token)
		told := fmt.Sprintf("lease %s for one call of %s", lease.ID(l.Token), clean(l.Tool))
		if l.Caller != "" {
			told += " by " + clean(l.Caller)
		}
		told += fmt.Sprintf(", up to tier %d", l.Tier)
		if !l.Expires.IsZero() { // a server without a store does not report it
			told += ", until " + format.When(l.Expires, time.Now())
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
		return a.suggest(c.Context(), b, append(words, name)[0], err)
	}
	_ = c.RegisterFlagCompletionFunc("tool", func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return a.completeTool(c, nil, word)
	})
	return c
}
