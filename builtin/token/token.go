// Package token has the tools that issue and revoke the tokens of callers, token.issue and token.revoke. Calling one of
// them passes the engine like any other call, so that who issued what is on record.
package token

import (
	"context"
	"fmt"
	"time"

	"toolpost/builtin/define"
	"toolpost/identity"
	"toolpost/tool"
)

// The names of the tools.
const (
	IssueName  = "token.issue"
	RevokeName = "token.revoke"
)

// Tokens keeps tokens.
type Tokens interface {
	// Issue makes a token with what t grants and notes. A ttl of 0 is for ever.
	Issue(ctx context.Context, t identity.Token, ttl time.Duration) (token string, err error)
	// Revoke ends a token, by its id.
	Revoke(ctx context.Context, id string) error
}

// New makes the tools.
func New(tokens Tokens) *define.Set {
	b := book{tokens}
	return define.NewSet(
		define.New(tool.Spec{Name: IssueName, Description: "Issues a token, with which a caller comes in."}, b.issue),
		define.New(tool.Spec{Name: RevokeName, Description: "Revokes a token: nobody comes in with it any more."}, b.revoke),
	)
}

type book struct{ tokens Tokens }

// allow refuses a call that may not issue or revoke tokens.
func allow(c *define.Call) error {
	switch {
	case !c.Caller.Operator(): // whoever could issue one could be anybody
		return tool.Errorf(tool.CodeAccessDenied, "%q may not issue or revoke tokens: "+
			"only the owner and who runs toolpost on its command line may", c.Caller.ID)
	case c.Key != "": // what is remembered for a key may be written to disk
		return tool.Errorf(tool.CodeInvalidInput, "%s takes no idempotency key: a token is told once and kept by nobody",
			c.Tool)
	}
	return nil
}

type issueArgs struct {
	Caller string         `json:"caller" schema:"required minLength=1" doc:"who will show the token"`
	Roles  []string       `json:"roles" doc:"roles that the token is kept to"`
	Tools  []tool.Pattern `json:"tools" schema:"items.minLength=1" doc:"tools that the token is kept to, with * and ?"`
	TTLms  int64          `json:"ttl_ms" schema:"minimum=0" doc:"how long it is valid; 0: for ever"`
	Note   string         `json:"note" doc:"what it is for"`
}

type issued struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

func (b book) issue(ctx context.Context, c *define.Call, args issueArgs) (issued, error) {
	if err := allow(c); err != nil {
		return issued{}, err
	}
	const tooLong = 1 << 40 // ms; far beyond what the store takes, and what a Duration can still hold
	ttl := time.Duration(max(min(args.TTLms, tooLong), -tooLong)) * time.Millisecond
	grant := identity.Grant{Caller: args.Caller, Roles: args.Roles, Tools: args.Tools}
	token, err := b.tokens.Issue(ctx, identity.Token{Grant: grant, Note: args.Note}, ttl)
	if err != nil {
		return issued{}, err
	}
	id := identity.TokenID(token)
	c.Summary = fmt.Sprintf("a token for %s, %s", args.Caller, id)
	return issued{id, token}, nil
}

type revokeArgs struct {
	ID string `json:"id" schema:"required minLength=1" doc:"the id of the token, never the token itself"`
}

type revoked struct {
	ID string `json:"id"`
}

func (b book) revoke(ctx context.Context, c *define.Call, args revokeArgs) (revoked, error) {
	if err := allow(c); err != nil {
		return revoked{}, err
	}
	c.Summary = "token " + args.ID + " is revoked"
	return revoked(args), b.tokens.Revoke(ctx, args.ID)
}
