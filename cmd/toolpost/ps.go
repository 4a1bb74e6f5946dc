package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"toolpost/builtin/health"
	calltools "toolpost/builtin/running"
	calls "toolpost/engine/running"
)

func (a *app) psCommand() *cobra.Command {
	listCalls := own{"listCalls", "see calls", sources}
	c := over[struct{}](a, listCalls, "", &cobra.Command{
		Use: "ps", Short: "List the calls that are running, and cancel them",
		Long: "Lists the calls that are running, oldest first: who called what, through which door and since when, and the\n" +
			"last event of each. With --server it lists those of a server. Operators see the calls of everybody, others\n" +
			"their own.",
		Example: "  toolpost ps --server http://127.0.0.1:8700\n  toolpost ps cancel 6f1c --server http://127.0.0.1:8700",
	}, func(l calltools.Listed) {
		a.alone()
		columns("call caller door tool since last", cells[calls.Call]{
			"tool": func(c calls.Call) string { return c.Tool + map[bool]string{true: " (dry run)"}[c.DryRun] },
			"last": func(c calls.Call) string { return heard(c.Last) },
		}).print(a, "calls", l.Calls)
	})
	c.AddCommand(over[calltools.CancelArgs](a, own{"cancelCall", "cancel calls", sources}, "call --caller", &cobra.Command{
		Use: "cancel CALL", Short: "Cancel a running call",
		Long: "Cancels a running call by its id: one of yours or, for operators, anybody's, whichever door it came\n" +
			"through. Its caller is told who cancelled it.",
		ValidArgsFunction: a.completeFrom(listCalls, "call", "tool of caller", ""),
	}, func(done calltools.CancelArgs) { fmt.Fprintf(a.err, "call %s is cancelled\n", clean(done.Call)) }))
	return c
}

// heard describes the last sign of life of a call in a few words.
func heard(s *calls.Sign) string {
	if s == nil {
		return "-"
	}
	return share(s.Progress, s.Total, short(clean(s.Message), 60))
}

func (a *app) sourcesCommand() *cobra.Command {
	return over[struct{}](a, own{"listSources", "see sources", sources}, "", &cobra.Command{
		Use: "sources", Short: "List the sources of tools, with their state",
		Long: "Lists every source of the config, or of a server with --server: its protocol, whether it is open or failed\n" +
			"and since when, how many tools it has, and why it failed or how many of its tools are held back. It is for\n" +
			"operators.",
	}, func(l health.Listed) {
		a.noteDefault()
		columns("name protocol state tools since error", cells[health.Source]{"error": func(s health.Source) string {
			if s.Held > 0 && s.Error == "" {
				return strconv.Itoa(s.Held) + " held back: " + reviewHint
			}
			return s.Error
		}}).print(a, "sources", l.Sources)
	})
}
