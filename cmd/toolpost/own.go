package main

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/flags"
	"toolpost/engine/approval"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An own is one of Toolpost's own tools. Operators act by calling them, in this process or on a server. So the policy
// decides, the call is recorded, and a local command and a remote one do the same.
type own struct {
	name  string // within their source
	does  string // completes the error "you may not …"
	needs needs
}

// needs are what a tool needs in this process. A server knows its own.
type needs int

const (
	sources   needs = 1 << iota // the tools of the config
	store                       // a store: the tool's data would not outlive this process otherwise
	inSession                   // not of this process: a record of the call names the session, if it is the caller's own
	watched                     // its events are shown: it takes long
)

// open opens the tool, in this process or on a server.
func (o own) open(ctx context.Context, a *app) (*backend, error) {
	if err := a.locate(ctx); err != nil {
		return nil, err
	}
	if o.needs&store != 0 {
		if err := a.needStore(); err != nil {
			return nil, err
		}
	}
	return a.open(ctx, node.Options{Own: o.needs&sources == 0})
}

// needStore refuses a config without a store.
func (a *app) needStore() error {
	if a.server.url != "" {
		return nil
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if has, err := storage.HasStore(cfg); err != nil || has {
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

// ask opens the tools for one call.
func ask[T any](ctx context.Context, a *app, o own, args any) (given T, err error) {
	b, err := o.open(ctx, a)
	if err != nil {
		return given, err
	}
	defer b.close()
	return use[T](ctx, a, b, o, tool.Call{Args: raw(args)}, tool.Discard)
}

// use calls a tool that is open, and sends its events to out.
func use[T any](ctx context.Context, a *app, b *backend, o own, call tool.Call, out tool.Sink) (given T, err error) {
	call.Tool, call.Caller = "toolpost."+o.name, me()
	r, err := b.Invoke(ctx, &call, out)
	switch code := tool.CodeOf(err); {
	case code == tool.CodeNotFound, code == tool.CodeAccessDenied: // an operator is told of a tool that policy hides
		return given, a.missing(ctx, b, call.Tool, o.does, err)
	case err != nil && tool.AsError(err).Reason == approval.OwnCall && !a.away():
		more := *tool.AsError(err)
		more.Message += ". The owner is another caller than you on this command line: " +
			"with its token and --server URL, you can decide"
		return given, &more
	case err != nil:
		return given, err
	case !r.OK && len(r.Output) == 0: // a plan that failed has a result
		return given, tool.Errorf(tool.CodeToolError, "%s failed: %s", call.Tool, failureOf(r))
	}
	return given, readOutput(call.Tool, r.Output, &given)
}

// readOutput decodes the output of a tool.
func readOutput(name string, output json.RawMessage, into any) error {
	if err := strictjson.Unmarshal(output, into); err != nil {
		return tool.Errorf(tool.CodeProtocol, "what %s gave cannot be read: %w", name, err)
	}
	return nil
}

// missing distinguishes a thing that does not exist from a tool that the policy hides.
func (a *app) missing(ctx context.Context, b *backend, name, does string, err error) error {
	_, hidden := b.Lookup(ctx, me(), name)
	switch {
	case hidden == nil, a.away() && tool.CodeOf(err) == tool.CodeAccessDenied: // the server says why
		return err
	case a.away():
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

// over makes c a command that calls a tool, and shows its output: with --json as it is. The words and flags of c come from
// the tool's arguments A, as given says (see flags.Add). The exit code is 1 if the output is bad.
func over[A, O any](a *app, o own, given string, c *cobra.Command, show func(O), bad ...func(O) bool) *cobra.Command {
	return takes[A](a, given, "print JSON", c, func(ctx context.Context, args map[string]any) error {
		b, err := o.open(ctx, a)
		if err != nil {
			return err
		}
		defer b.close()
		call := tool.Call{Args: raw(args)}
		if o.needs&inSession != 0 && args["caller"] == nil {
			call.Session, _ = args["session"].(string)
		}
		events, done := tool.Discard, func() {}
		if o.needs&watched != 0 {
			shown := newLive(a.err, strings.TrimPrefix(c.CommandPath(), "toolpost "), a.verbose)
			events, done = shown, func() { shown.End() }
		}
		doc, err := use[json.RawMessage](ctx, a, b, o, call, events)
		done()
		if err != nil {
			return err
		}
		return conclude(a, o, doc, show, bad...)
	})
}

// takes makes c a command that runs with the arguments A of a tool, read from its words and flags as given says (see
// flags.Add). Its usage is that of --json.
func takes[A any](
	a *app, given, usage string, c *cobra.Command, run func(ctx context.Context, args map[string]any) error,
) *cobra.Command {
	in := flags.Add[A](c, given)
	if c.Args == nil {
		c.Args = words(in.Least, in.Most)
	}
	c.RunE = func(c *cobra.Command, words []string) error {
		if err := notAFilter(c); err != nil {
			return err
		}
		args, err := in.Read(words)
		if err != nil {
			return err
		}
		return run(c.Context(), args)
	}
	return a.withServer(a.withJSON(usage, c))
}

// notAFilter refuses a status as the state folder: in lists, --state was once the name of --status.
func notAFilter(c *cobra.Command) error {
	status := c.Flags().Lookup("status")
	if status == nil {
		return nil
	}
	word := c.Flag("state").Value.String()
	if slices.Contains(flags.Choices(status), word) {
		return tool.Errorf(tool.CodeInvalidInput, "--state names the folder for Toolpost's data; to filter, use --status %s "+
			"(a folder of this name is ./%[1]s)", word)
	}
	return nil
}

// first makes c call prepare, and run with the words that it returns.
func first(c *cobra.Command, prepare func(c *cobra.Command, words []string) ([]string, error)) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, words []string) error {
		words, err := prepare(c, words)
		if err != nil {
			return err
		}
		return run(c, words)
	}
	return c
}

// conclude shows the output of a tool, or prints it with --json.
func conclude[O any](a *app, o own, doc json.RawMessage, show func(O), bad ...func(O) bool) error {
	var out O
	if err := readOutput(o.name, doc, &out); err != nil {
		return err
	}
	if !a.json {
		show(out)
	} else if err := a.printIndented(doc); err != nil {
		return err
	}
	if len(bad) > 0 && bad[0](out) {
		return exitFailed
	}
	return nil
}
