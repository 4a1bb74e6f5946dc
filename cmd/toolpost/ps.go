package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/health"
	calls "toolpost/engine/running"
	"toolpost/node"
)

func (a *app) psCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "ps", Short: "List the calls that are running, and cancel them",
		Long: "Lists the calls that are running, oldest first: who called what, through which door and since when, and the\n" +
			"last event of each. With --server it lists those of a server. Operators see the calls of everybody, others\n" +
			"their own.",
		Example: "  toolpost ps --server http://127.0.0.1:8700\n  toolpost ps cancel 6f1c --server http://127.0.0.1:8700",
		RunE: func(c *cobra.Command, _ []string) error {
			a.alone()
			all, err := a.calls(c.Context())
			if err != nil {
				return err
			}
			head := []string{"CALL", "CALLER", "DOOR", "TOOL", "SINCE", "LAST"}
			return list(a, "calls", all, head, func(c calls.Call) []string {
				name := c.Tool
				if c.DryRun {
					name += " (dry run)"
				}
				return []string{c.ID, c.Caller, c.Door, name, when(c.Since, time.Now()), heard(c.Last)}
			})
		},
	}
	c.AddCommand(a.psCancelCommand())
	return a.withServer(a.withJSON("print JSON", c))
}

// calls returns the running calls.
func (a *app) calls(ctx context.Context) ([]calls.Call, error) {
	all, err := own[map[string][]calls.Call](ctx, a, node.Options{}, "listCalls", struct{}{}, "see calls")
	return all["calls"], err
}

// heard describes the last sign of life of a call in a few words.
func heard(s *calls.Sign) string {
	if s == nil {
		return "-"
	}
	return share(s.Progress, s.Total, short(clean(s.Message), 60))
}

func (a *app) psCancelCommand() *cobra.Command {
	var caller string
	c := &cobra.Command{
		Use: "cancel CALL", Short: "Cancel a running call", Args: words(1, 1),
		ValidArgsFunction: completeIDs(a.calls, func(c calls.Call) (id, about string, ok bool) {
			return c.ID, c.Tool + " of " + c.Caller, true
		}),
		Long: "Cancels a running call by its id: one of yours or, for operators, anybody's, whichever door it came\n" +
			"through. Its caller is told who cancelled it.",
		RunE: func(c *cobra.Command, words []string) error {
			args := map[string]string{"call": words[0]}
			if caller != "" {
				args["caller"] = caller
			}
			done, err := own[map[string]string](c.Context(), a, node.Options{}, "cancelCall", args, "cancel calls")
			if err != nil {
				return err
			}
			return a.conclude(done, func() { fmt.Fprintf(a.err, "call %s is cancelled\n", clean(words[0])) }, false)
		},
	}
	c.Flags().StringVar(&caller, "caller", "",
		"the caller, if several callers have a call with this id")
	return a.withServer(a.withJSON("print JSON", c))
}

func (a *app) sourcesCommand() *cobra.Command {
	return a.withServer(a.withJSON("print JSON", &cobra.Command{
		Use: "sources", Short: "List the sources of tools, with their state",
		Long: "Lists every source of the config, or of a server with --server: its protocol, whether it is open or failed\n" +
			"and since when, how many tools it has, and why it failed or how many of its tools are held back. It is for\n" +
			"operators.",
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := own[map[string][]health.Source](
				c.Context(), a, node.Options{}, "listSources", struct{}{}, "see sources")
			if err != nil {
				return err
			}
			a.noteDefault()
			head := []string{"NAME", "PROTOCOL", "STATE", "TOOLS", "SINCE", "ERROR"}
			return list(a, "sources", all["sources"], head, func(s health.Source) []string {
				about := s.Error
				if s.Held > 0 && about == "" {
					about = strconv.Itoa(s.Held) + " held back: " + reviewHint
				}
				return []string{s.Name, s.Protocol, s.State, strconv.Itoa(s.Tools), when(s.Since, time.Now()), about}
			})
		},
	}))
}
