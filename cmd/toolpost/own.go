package main

import (
	"context"

	"github.com/spf13/cobra"

	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// ownTools are the tools that Toolpost itself brings, in this process or on a server. What an operator does is a call of
// one of them: the policy decides about it, it is on record, and it is the same from near and from afar.
type ownTools struct {
	*backend
	server
}

// withOwn opens the tools that Toolpost itself brings. Those of this process need a store: what they are about would
// not outlive it.
func (a *app) withOwn(ctx context.Context, s server, o node.Options, use func(ownTools) error) error {
	if err := a.needStore(s); err != nil {
		return err
	}
	b, err := a.openAt(ctx, s, o)
	if err != nil {
		return err
	}
	defer b.close()
	return use(ownTools{b, s})
}

// needStore refuses a config without a store. A server knows its own.
func (a *app) needStore(s server) error {
	if s.url != "" {
		return nil
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if has, err := node.HasStore(cfg); err != nil || has {
		return err
	}
	return tool.Errorf(tool.CodeInvalidInput, "there is no store, so leases, tokens, jobs, sessions and records last no longer than the program that "+
		"made them; `toolpost init` writes a config, and with one there is a store unless it says `store: {url: none}`. A server "+
		"without a store issues its leases itself, by the tool lease.issue")
}

// callOwn opens the tools, and none of the config's, for one call.
func (a *app) callOwn(ctx context.Context, s server, name string, args any, does string, into any) error {
	return a.withOwn(ctx, s, node.Options{Own: true}, func(o ownTools) error {
		return o.call(ctx, tool.Call{Tool: name, Args: raw(args)}, does, into)
	})
}

// call calls one of the tools, by its name within their source. What it does is for who is told that it cannot be done.
func (o ownTools) call(ctx context.Context, call tool.Call, does string, into any) error {
	call.Tool, call.Caller = "toolpost."+call.Tool, me()
	r, err := o.Invoke(ctx, &call, tool.Discard)
	switch {
	case tool.CodeOf(err) == tool.CodeNotFound:
		return o.missing(ctx, call.Tool, does, err)
	case err != nil:
		return err
	case !r.OK:
		return tool.Errorf(tool.CodeToolError, "%s failed: %s", call.Tool, failureOf(r))
	}
	if err := strictjson.Unmarshal(r.Output, into); err != nil {
		return tool.Errorf(tool.CodeProtocol, "what %s gave cannot be read: %w", call.Tool, err)
	}
	return nil
}

// missing tells something that is not there from a tool that the policy hides.
func (o ownTools) missing(ctx context.Context, name, does string, err error) error {
	_, hidden := o.Lookup(ctx, me(), name)
	switch {
	case hidden == nil:
		return err
	case o.url != "":
		return tool.Errorf(tool.CodeAccessDenied, "the server does not let you %s: it would need a store, and have to let you call the tool %s", does, name)
	}
	return tool.Errorf(tool.CodeAccessDenied, "the policy does not let %q %s; it would have to allow the tool %s", me().ID, does, name)
}

// serverFlags gives the server that the flags of a command name, for completion.
func serverFlags(c *cobra.Command) (s server) {
	s.url, _ = c.Flags().GetString("server")
	s.token, _ = c.Flags().GetString("token")
	return s
}
