package main

import (
	"context"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Operators act by calling Toolpost's own tools, in this process or on a server. So the policy decides, the call is
// recorded, and a local command and a remote one do the same.

// openKept opens Toolpost's own tools. In this process they need a store: their data would not outlive it otherwise.
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
	if cfg.Path == "" && a.played == nil {
		return tool.Errorf(tool.CodeInvalidInput, nowhere+", and so no store; `toolpost init` writes one, and --config "+
			"names another")
	}
	return tool.Errorf(tool.CodeInvalidInput, "there is no store, as `store: {url: none}` says, so leases, tokens, jobs, "+
		"sessions and records last no longer than the program that made them. A server without a store issues its leases "+
		"itself, by the tool lease.issue")
}

// kept calls one of the tools that need a store, without opening the config's tools.
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

// callOwn calls one of the tools, by its name within their source; does completes the error "you may not …".
func (a *app) callOwn(ctx context.Context, b *backend, call tool.Call, does string, into any) error {
	return a.callOwnTo(ctx, b, call, tool.Discard, does, into)
}

// callOwnTo is callOwn with a sink for the events.
func (a *app) callOwnTo(ctx context.Context, b *backend, call tool.Call, out tool.Sink, does string, into any) error {
	call.Tool, call.Caller = "toolpost."+call.Tool, me()
	r, err := b.Invoke(ctx, &call, out)
	switch code := tool.CodeOf(err); {
	case code == tool.CodeNotFound, code == tool.CodeAccessDenied: // an operator is told of a tool that policy hides
		return a.missing(ctx, b, call.Tool, does, err)
	case err != nil:
		return err
	}
	return readOutput(call.Tool, r, into)
}

// readOutput decodes the output of a tool.
func readOutput(name string, r *tool.Result, into any) error {
	if !r.OK {
		return tool.Errorf(tool.CodeToolError, "%s failed: %s", name, failureOf(r))
	}
	if err := strictjson.Unmarshal(r.Output, into); err != nil {
		return tool.Errorf(tool.CodeProtocol, "what %s gave cannot be read: %w", name, err)
	}
	return nil
}

// missing distinguishes a thing that does not exist from a tool that the policy hides.
func (a *app) missing(ctx context.Context, b *backend, name, does string, err error) error {
	_, hidden := b.Lookup(ctx, me(), name)
	switch {
	case hidden == nil, a.server.url != "" && tool.CodeOf(err) == tool.CodeAccessDenied: // the server says why
		return err
	case a.server.url != "":
		return tool.Errorf(tool.CodeAccessDenied,
			"the server does not let you %s: your caller may not call the tool %s there, or the server has no store for it; "+
				"its owner can say which",
			does, name)
	}
	who := "the policy does not let"
	if cfg, err := a.load(); err == nil && reflect.ValueOf(cfg.Section("policy")).IsZero() {
		who = "`callers:` in the config does not let" // nothing else hides a tool
	}
	return tool.Errorf(tool.CodeAccessDenied, "%s %q %s; it would have to allow the tool %s", who, me().ID, does, name)
}

// A listing is a kind of thing that is issued and revoked, with its commands list and revoke.
type listing[T any] struct {
	kind    string // in the singular; the names of the tools for it begin with it
	lists   string // what the command that lists them does
	revokes string // likewise for the command that revokes one
	head    []string
	row     func(one T, now time.Time) []string
	about   func(one T) (id, what, state string)
	asID    func(id string) string // returns the id of a secret that was typed in its place, so that no secret is sent on
}

// list makes the command that lists them.
func (l listing[T]) list(a *app) *cobra.Command {
	var most int
	c := &cobra.Command{
		Use: "list", Short: "List " + l.kind + "s, newest first", Long: l.lists,
		RunE: func(c *cobra.Command, _ []string) error {
			if most < 0 {
				return tool.Errorf(tool.CodeInvalidInput, "a limit cannot be negative")
			}
			all, err := l.read(c.Context(), a, most)
			if err != nil {
				return err
			}
			return list(a, l.kind+"s", all, l.head, func(one T) []string { return l.row(one, time.Now()) })
		},
	}
	c.Flags().IntVarP(&most, "limit", "n", 100, "list at most this many; 0: all")
	return a.withServer(a.withJSON("print JSON", c))
}

func (l listing[T]) read(ctx context.Context, a *app, most int) ([]T, error) {
	out, err := kept[map[string][]T](ctx, a, l.kind+".list", map[string]int{"limit": most}, "list "+l.kind+"s")
	return out[l.kind+"s"], err
}

// revoke makes the command that revokes one; it completes the ids of live ones.
func (l listing[T]) revoke(a *app) *cobra.Command {
	return a.withServer(a.withJSON("print what is known of the "+l.kind+" as JSON", &cobra.Command{
		Use: "revoke ID", Short: "Revoke a " + l.kind, Long: l.revokes, Args: words(1, 1),
		ValidArgsFunction: completeIDs(func(ctx context.Context) ([]T, error) { return l.read(ctx, a, 100) },
			func(one T) (string, string, bool) {
				id, what, state := l.about(one)
				return id, what, state == "live"
			}),
		RunE: func(c *cobra.Command, args []string) error {
			which := map[string]string{"id": l.asID(args[0])}
			one, err := kept[T](c.Context(), a, l.kind+".revoke", which, "revoke "+l.kind+"s")
			if err != nil {
				return err
			}
			id, what, _ := l.about(one)
			return a.tell(one, "%s  %s for %s", a.out.green("revoked"), id, clean(what))
		},
	}))
}
