package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/identity"
	"toolpost/tool"
)

// defaultTokenTTL is how long a token is valid where nobody says otherwise.
const defaultTokenTTL = 720 * time.Hour

func (a *app) tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "token", Short: "Issue, list and revoke the tokens of callers",
		Long: "A token is what a caller shows at a door. The section `callers` of the config says what each caller may use; a token\n" +
			"can be kept to less. A caller may have several at once.",
		Example: "  toolpost token issue ci --role reader --ttl 24h --note \"nightly build\"\n  toolpost token list\n  toolpost token revoke 0f3a5c7e9b1d2f46",
	}
	onlyCommands(c)
	c.AddCommand(a.tokenIssueCommand(), tokenListing().command(a), a.tokenRevokeCommand())
	return c
}

// A tokenRequest is what the command line of `token issue` asks for.
type tokenRequest struct {
	server
	caller string
	roles  []string
	tools  []string
	ttl    time.Duration
	note   string
}

func (a *app) tokenIssueCommand() *cobra.Command {
	var req tokenRequest
	c := &cobra.Command{
		Use: "issue CALLER", Short: "Issue a token and print it", Args: words(1, 1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Issues a token and prints it, this once: what is kept is a digest of it. Its id, which tells nobody the token, goes\n" +
			"to stderr. A caller whom the config lists has what the config says, and with --role or --tools only what is within\n" +
			"that; any other has what --role and --tools say. Issuing is a call of the tool token.issue: the policy decides\n" +
			"about it, and it is on record.",
	}
	req.flags(c)
	f := c.Flags()
	f.StringArrayVar(&req.roles, "role", nil, "a role of the config that the token is kept to; may be given again")
	f.StringArrayVar(&req.tools, "tools", nil, "a tool, source.tool or a pattern with * and ? that the token is kept to; may be given again")
	f.DurationVar(&req.ttl, "ttl", defaultTokenTTL, "how long the token is valid; 0: until it is revoked")
	f.StringVar(&req.note, "note", "", "what the token is for")
	a.jsonFlag(c, "print the token and what is known of it as JSON")
	c.RunE = work(func(c *cobra.Command, args []string) error {
		req.caller = args[0]
		if req.ttl != 0 && (req.ttl < time.Second || req.ttl > identity.MaxTokenTTL) {
			return tool.Errorf(tool.CodeInvalidInput, "--ttl is from 1s to %v, or 0 for ever, not %v", identity.MaxTokenTTL, req.ttl)
		}
		return a.issueToken(c.Context(), req)
	})
	return c
}

func (a *app) issueToken(ctx context.Context, req tokenRequest) error {
	args := map[string]any{"caller": req.caller, "ttl_ms": req.ttl.Milliseconds(), "note": req.note}
	if len(req.roles) > 0 {
		args["roles"] = req.roles
	}
	if len(req.tools) > 0 {
		args["tools"] = req.tools
	}
	var t struct {
		Secret string `json:"token"`
		identity.Token
	}
	err := a.callOwn(ctx, req.server, "token.issue", args, "issue tokens", &t)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(t)
	}
	fmt.Fprintln(a.out, t.Secret)
	fmt.Fprintf(a.err, "token %s for %s, valid until %s; it is shown this once\n",
		t.ID, clean(t.Caller), until(t.Token, time.Now()))
	return nil
}

// until tells when a token ends.
func until(t identity.Token, now time.Time) string {
	if t.Expires.IsZero() {
		return "it is revoked"
	}
	return when(t.Expires, now)
}

func tokenListing() listing[identity.Token] {
	return listing[identity.Token]{
		what: "tokens",
		long: "Lists tokens, the newest first: live, expired or revoked. One is forgotten 30 days after its end. The tokens\n" +
			"themselves are not listed: nobody has kept them. Those that the config lists by their digests are not here.",
		tool: "token.list",
		head: []string{"ID", "CALLER", "ROLES", "TOOLS", "ISSUED", "EXPIRES", "STATE", "NOTE"},
		row: func(t identity.Token, now time.Time) []string {
			ends := "never"
			if !t.Expires.IsZero() {
				ends = when(t.Expires, now)
			}
			return []string{
				t.ID, clean(t.Caller), cmp.Or(clean(strings.Join(t.Roles, ", ")), "-"), cmp.Or(clean(t.Tools.String()), "-"),
				when(t.Issued, now), ends, t.State, clean(t.Note),
			}
		},
		live: func(t identity.Token) (id, about string, ok bool) { return t.ID, t.Caller, t.State == "live" },
	}
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	var s server
	c := &cobra.Command{
		Use: "revoke ID", Short: "Make a token useless", Args: words(1, 1), ValidArgsFunction: tokenListing().complete(a),
		Long: "Makes a token useless: every program that shares the store refuses it, within a second. ID is the id of the token,\n" +
			"or the token itself. Revoking is a call of the tool token.revoke, and it is on record. Exit code 3: it was revoked\n" +
			"or over before; 4: there is no such token.",
	}
	s.flags(c)
	a.jsonFlag(c, "print what is known of the token as JSON")
	c.RunE = work(func(c *cobra.Command, args []string) error { return a.revokeToken(c.Context(), s, args[0]) })
	return c
}

// revokeToken calls the tool with the id: what is recorded of the call has no token.
func (a *app) revokeToken(ctx context.Context, s server, id string) error {
	var t identity.Token
	err := a.callOwn(ctx, s, "token.revoke", map[string]any{"id": identity.TokenID(id)}, "revoke tokens", &t)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(t)
	}
	fmt.Fprintf(a.out, "%s  %s for %s\n", a.out.green("revoked"), t.ID, clean(t.Caller))
	return nil
}
