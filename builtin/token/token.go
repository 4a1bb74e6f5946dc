// Package token has the tools that issue and revoke the tokens of callers, token.issue and token.revoke. Calling one of
// them passes the engine like any other call, so that who issued what is on record.
package token

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The names of the tools.
const (
	IssueName  = "token.issue"
	RevokeName = "token.revoke"
)

// A Request is for a token.
type Request struct {
	Caller string
	Roles  []string
	Tools  tool.Patterns
	TTL    time.Duration // 0: for ever
	Note   string
}

// Tokens keeps tokens.
type Tokens interface {
	Issue(ctx context.Context, r Request) (token, id string, err error)
	Revoke(ctx context.Context, id string) error
}

// A Runner has the two tools.
type Runner struct{ tokens Tokens }

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// New makes the source.
func New(tokens Tokens) *Runner { return &Runner{tokens} }

const (
	issueInput = `{"type":"object","required":["caller"],"additionalProperties":false,"properties":{` +
		`"caller":{"type":"string","minLength":1,"description":"who will show the token"},` +
		`"roles":{"type":"array","items":{"type":"string"},"description":"roles that the token is kept to"},` +
		`"tools":{"type":"array","items":{"type":"string","minLength":1},"description":"tools that the token is kept to, with * and ?"},` +
		`"ttl_ms":{"type":"integer","minimum":0,"description":"how long it is valid; 0: for ever"},` +
		`"note":{"type":"string","description":"what it is for"}}}`
	revokeInput = `{"type":"object","required":["id"],"additionalProperties":false,"properties":{` +
		`"id":{"type":"string","minLength":1,"description":"the id of the token, never the token itself"}}}`
)

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{
		{Name: IssueName, Description: "Issues a token, with which a caller comes in.", Input: json.RawMessage(issueInput)},
		{Name: RevokeName, Description: "Revokes a token: nobody comes in with it any more.", Input: json.RawMessage(revokeInput)},
	}, nil
}

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error { return nil }

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	switch {
	case ctx.Err() != nil:
		return nil, tool.AsError(context.Cause(ctx))
	case !c.Caller.Operator(): // whoever could issue one could be anybody
		return nil, tool.Errorf(tool.CodeAccessDenied, "%q may not issue or revoke tokens: only the owner and who runs toolpost on its command line may", c.Caller.ID)
	case c.Key != "": // what is remembered for a key may be written to disk
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s takes no idempotency key: a token is told once and kept by nobody", c.Tool)
	}
	switch c.Tool {
	case IssueName:
		return r.issue(ctx, c)
	case RevokeName:
		return r.revoke(ctx, c)
	}
	return nil, tool.Errorf(tool.CodeNotFound, "%q is not a tool about tokens; there are %s and %s", c.Tool, IssueName, RevokeName)
}

func (r *Runner) issue(ctx context.Context, c *tool.Call) (*tool.Result, error) {
	var args struct {
		Caller string         `json:"caller"`
		Roles  []string       `json:"roles"`
		Tools  []tool.Pattern `json:"tools"`
		TTLms  int64          `json:"ttl_ms"`
		Note   string         `json:"note"`
	}
	if err := strictjson.UnmarshalClosed(c.Args, &args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", IssueName, err)
	}
	const tooLong = 1 << 40 // ms; far beyond what the store takes, and what a Duration can still hold
	ttl := time.Duration(max(min(args.TTLms, tooLong), -tooLong)) * time.Millisecond
	token, id, err := r.tokens.Issue(ctx, Request{args.Caller, args.Roles, args.Tools, ttl, args.Note})
	if err != nil {
		return nil, err
	}
	return result(map[string]any{"token": token, "id": id}, fmt.Sprintf("a token for %s, %s", args.Caller, id))
}

func (r *Runner) revoke(ctx context.Context, c *tool.Call) (*tool.Result, error) {
	var args struct {
		ID string `json:"id"`
	}
	if err := strictjson.UnmarshalClosed(c.Args, &args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", RevokeName, err)
	}
	if err := r.tokens.Revoke(ctx, args.ID); err != nil {
		return nil, err
	}
	return result(map[string]any{"id": args.ID}, "token "+args.ID+" is revoked")
}

func result(output any, summary string) (*tool.Result, error) {
	b, err := strictjson.Marshal(output)
	if err != nil {
		return nil, err
	}
	return &tool.Result{OK: true, Output: b, Summary: summary}, nil
}
