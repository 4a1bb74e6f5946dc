package main

import (
	"context"
	"os"

	"toolpost/builtin/operate"
	"toolpost/cmd/toolpost/mcpadd"
	"toolpost/tool"
)

// addSource adds a source to the config of a running server, for an operator, as `toolpost mcp add` does for the user of a
// terminal: the source is tried first, and the server notices the change.
func (a *app) addSource(ctx context.Context, args operate.AddArgs) (added operate.Added, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return added, err
	}
	defer null.Close()
	// It is a command of its own, without a terminal: several may run at once, and none writes into the server's log.
	a = &app{in: null, out: newScreen(null), err: newScreen(null), config: a.config, state: a.state, played: a.played, json: true}
	e, err := a.editConfig()
	if err != nil {
		return added, err
	}
	defer e.Close()
	if added.Config = e.Config.Path; args.Tool == "" && args.API == "" {
		return added, a.addServer(ctx, e, args, &added)
	}
	source := mcpadd.Other(&args)
	added.Name, added.Text = args.Name, source.String()
	if err := e.AddOther(args.Name, source); err != nil {
		return added, err
	}
	all, err := a.tryAdded(ctx, e)
	if err == nil {
		err = all[0].err
	}
	if err != nil {
		return added, tool.Errorf(tool.CodeOf(err), "the source cannot be used, so nothing was written: %s", tool.AsError(err).Message)
	}
	if added.Tools = len(all[0].Tools); args.DryRun {
		return added, nil
	}
	return added, e.Write()
}

// addServer adds an MCP server.
func (a *app) addServer(ctx context.Context, e *mcpadd.Edit, args operate.AddArgs, added *operate.Added) error {
	q := mcpAdding{app: a, dry: args.DryRun, Request: mcpadd.Request{
		Name: args.Name, Read: args.Read, Write: args.Write, Network: args.Network,
	}}
	if args.Token != "" {
		q.Headers = []string{"Authorization: Bearer " + args.Token}
	}
	words, program := args.Command, len(args.Command) > 0
	if !program {
		words = []string{args.URL}
	}
	s, err := q.Server(words, program)
	if err != nil {
		return err
	}
	tried, err := q.add(ctx, e, s)
	added.Name, added.Text, added.Tools, added.Notes = s.Name, s.Source().String(), len(tried.Tools), s.Remarks
	return err
}
