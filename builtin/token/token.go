// Package token has the tools that issue, list and revoke the tokens of callers: token.issue, token.list and token.revoke.
// Their calls pass the engine like any other, so that the record shows who issued what.
package token

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"toolpost/builtin/define"
	"toolpost/identity"
	"toolpost/tool"
)

// Tokens keeps tokens.
type Tokens interface {
	// Issue makes a token with the grants and the note of t. With a ttl of 0 it does not expire.
	Issue(ctx context.Context, t identity.Token, ttl time.Duration) (token string, err error)
	// Revoke ends a token, by its id.
	Revoke(ctx context.Context, id string) error
	// Find returns what is known of a token, by its id.
	Find(ctx context.Context, id string) (identity.Token, error)
	// List returns what is known of tokens, the newest first, or of all with 0.
	List(ctx context.Context, most int) ([]identity.Token, error)
}

// New makes the tools.
func New(tokens Tokens) *define.Set {
	r := registry{tokens}
	return define.NewSet(
		define.New(tool.Spec{Name: "token.issue", Description: "Issues a token, with which a caller comes in."}, r.issue),
		define.New(tool.Spec{Name: "token.revoke", Description: "Revokes a token: no caller can use it any more."}, r.revoke),
		define.New(tool.Spec{
			Name: "token.list", Effects: tool.Effects{Reads: true},
			Description: "Lists what is known of tokens, the newest first. The tokens themselves are nowhere.",
		}, define.ForOperators("list tokens", r.list)),
	)
}

type registry struct{ tokens Tokens }

// allow refuses callers that may not issue or revoke tokens: an issuer of tokens could act as any caller.
func allow(c *define.Call) error { return c.Operating("issue or revoke tokens") }

// IssueArgs are the arguments of token.issue.
type IssueArgs struct {
	Caller string         `json:"caller" schema:"required minLength=1" doc:"caller that will use the token"`
	Roles  []string       `json:"roles" doc:"roles of the token, from the config"`
	Tools  []tool.Pattern `json:"tools" schema:"items.minLength=1" doc:"tools of the token: names, source.tool or patterns with * and ?"`
	TTLms  int64          `json:"ttl_ms" schema:"minimum=0" doc:"how long the token is valid; 0: until it is revoked"`
	Note   string         `json:"note" doc:"what the token is for"`
}

// Issued is the output of token.issue.
type Issued struct {
	Secret string `json:"token"`
	identity.Token
}

func (r registry) issue(ctx context.Context, c *define.Call, args IssueArgs) (Issued, error) {
	if err := cmp.Or(allow(c), c.Told("a token")); err != nil {
		return Issued{}, err
	}
	const tooLong = 1 << 40 // ms; far beyond what the store takes, and what a Duration can still hold
	ttl := time.Duration(max(min(args.TTLms, tooLong), -tooLong)) * time.Millisecond
	grant := identity.Grant{Caller: args.Caller, Roles: args.Roles, Tools: args.Tools}
	token, err := r.tokens.Issue(ctx, identity.Token{Grant: grant, Note: args.Note}, ttl)
	if err != nil {
		return Issued{}, err
	}
	t, err := r.tokens.Find(ctx, identity.TokenID(token))
	c.Summary = fmt.Sprintf("a token for %s, %s", args.Caller, t.ID)
	return Issued{token, t}, err
}

// RevokeArgs are the arguments of token.revoke.
type RevokeArgs struct {
	ID string `json:"id" schema:"required minLength=1" doc:"the id of the token, never the token itself"`
}

func (r registry) revoke(ctx context.Context, c *define.Call, args RevokeArgs) (identity.Token, error) {
	if err := allow(c); err != nil {
		return identity.Token{}, err
	}
	if err := r.tokens.Revoke(ctx, args.ID); err != nil {
		return identity.Token{}, err
	}
	c.Summary = "token " + args.ID + " is revoked"
	return r.tokens.Find(ctx, args.ID)
}

// ListArgs are the arguments of token.list.
type ListArgs struct {
	Limit int `json:"limit" schema:"minimum=0" doc:"maximum number of tokens; 0: all"`
}

// Listed is the output of token.list.
type Listed struct {
	Tokens []identity.Token `json:"tokens"`
}

func (r registry) list(ctx context.Context, _ *define.Call, a ListArgs) (Listed, error) {
	all, err := r.tokens.List(ctx, a.Limit)
	return Listed{all}, err
}
