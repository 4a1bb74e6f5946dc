package main

import (
	"context"

	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// What an operator does is a call of one of the tools that Toolpost itself brings, in this process or on a server: the
// policy decides about it, it is on record, and it is the same from near and from afar.

// openKept opens the tools that Toolpost itself brings. Those of this process need a store: what they are about would
// not outlive it.
func (a *app) openKept(ctx context.Context, o node.Options) (*backend, error) {
	if err := a.needStore(); err != nil {
		return nil, err
	}
	return a.open(ctx, o)
}

// needStore refuses a config without a store. A server knows its own.
func (a *app) needStore() error {
	if a.server.url != "" {
		return nil
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if has, err := node.HasStore(cfg); err != nil || has {
		return err
	}
	return tool.Errorf(tool.CodeInvalidInput, "there is no store, so leases, tokens, jobs, sessions and records last no "+
		"longer than the program that made them; `toolpost init` writes a config, and with one there is a store unless it "+
		"says `store: {url: none}`. A server without a store issues its leases itself, by the tool lease.issue")
}

// kept calls one of the tools that need a store, and opens none of the config's for it.
func kept[T any](ctx context.Context, a *app, name string, args any, does string) (given T, err error) {
	if err := a.needStore(); err != nil {
		return given, err
	}
	return own[T](ctx, a, node.Options{Own: true}, name, args, does)
}

// own opens the tools for one call.
func own[T any](ctx context.Context, a *app, o node.Options, name string, args any, does string) (given T, err error) {
	b, err := a.open(ctx, o)
	if err != nil {
		return given, err
	}
	defer b.close()
	err = a.callOwn(ctx, b, tool.Call{Tool: name, Args: raw(args)}, does, &given)
	return given, err
}

// callOwn calls one of the tools, by its name within their source. What it does is for who is told that it cannot be
// done.
func (a *app) callOwn(ctx context.Context, b *backend, call tool.Call, does string, into any) error {
	call.Tool, call.Caller = "toolpost."+call.Tool, me()
	r, err := b.Invoke(ctx, &call, tool.Discard)
	switch {
	case tool.CodeOf(err) == tool.CodeNotFound:
		return a.missing(ctx, b, call.Tool, does, err)
	case err != nil:
		return err
	}
	return readOutput(call.Tool, r, into)
}

// readOutput reads what a tool gave.
func readOutput(name string, r *tool.Result, into any) error {
	if !r.OK {
		return tool.Errorf(tool.CodeToolError, "%s failed: %s", name, failureOf(r))
	}
	if err := strictjson.Unmarshal(r.Output, into); err != nil {
		return tool.Errorf(tool.CodeProtocol, "what %s gave cannot be read: %w", name, err)
	}
	return nil
}

// missing tells something that is not there from a tool that the policy hides.
func (a *app) missing(ctx context.Context, b *backend, name, does string, err error) error {
	_, hidden := b.Lookup(ctx, me(), name)
	switch {
	case hidden == nil:
		return err
	case a.server.url != "":
		return tool.Errorf(tool.CodeAccessDenied,
			"the server does not let you %s: it would have to let you call the tool %s, and may need a store for it", does, name)
	}
	return tool.Errorf(tool.CodeAccessDenied,
		"the policy does not let %q %s; it would have to allow the tool %s", me().ID, does, name)
}
