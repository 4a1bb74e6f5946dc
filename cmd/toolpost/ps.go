package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	calls "toolpost/engine/running"
)

// The tools about calls that run now.
const (
	listCalls  = "listCalls"
	cancelCall = "cancelCall"
)

// A callList is what listCalls gives.
type callList struct {
	Calls []calls.Call `json:"calls"`
}

func (a *app) psCommand() *cobra.Command {
	var s server
	c := &cobra.Command{
		Use: "ps", Short: "List the calls that run now, and cancel them",
		Long: "Lists the calls that run now, the oldest first: who called what, by which door and since when, and what was last heard\n" +
			"of it. Those of a server are asked for with --server. Operators see the calls of everybody, others their own.",
		Example: "  toolpost ps --server http://127.0.0.1:8700\n  toolpost ps cancel 6f1c --server http://127.0.0.1:8700",
		Args:    noSuchCommand,
	}
	s.flags(c)
	a.jsonFlag(c, "print JSON")
	c.RunE = work(func(c *cobra.Command, _ []string) error {
		list, err := own[callList](c.Context(), a, s, listCalls, struct{}{}, "see calls")
		if err != nil {
			return err
		}
		return a.showCalls(list)
	})
	c.AddCommand(a.psCancelCommand())
	return c
}

func (a *app) showCalls(list callList) error {
	switch {
	case a.json:
		return a.printJSON(list)
	case len(list.Calls) == 0:
		fmt.Fprintln(a.err, "no calls")
		return nil
	}
	var rows [][]string
	for _, c := range list.Calls {
		name := clean(c.Tool)
		if c.DryRun {
			name += " (dry run)"
		}
		rows = append(rows, []string{clean(c.ID), clean(c.Caller), clean(c.Door), name, when(c.Since, time.Now()), heard(c.Last)})
	}
	a.out.table([]string{"CALL", "CALLER", "DOOR", "TOOL", "SINCE", "LAST"}, rows)
	return nil
}

// heard is what was last heard of a call, in few words.
func heard(s *calls.Sign) string {
	if s == nil {
		return "-"
	}
	text := short(clean(s.Message), 60)
	if s.Total > 0 {
		text = strings.TrimSpace(fmt.Sprintf("%.0f%% %s", 100*s.Progress/s.Total, text))
	}
	return text
}

func (a *app) psCancelCommand() *cobra.Command {
	var s server
	var caller string
	c := &cobra.Command{
		Use: "cancel CALL", Short: "Cancel a call that runs now", Args: words(1, 1), ValidArgsFunction: a.completeCall,
		Long: "Cancels a call that runs now, by its id: one of yours or, for operators, anybody's, whichever door it came by. Its\n" +
			"caller is told who cancelled it.",
	}
	s.flags(c)
	c.Flags().StringVar(&caller, "caller", "", "whose call it is, where several callers gave the same id to a call of theirs")
	a.jsonFlag(c, "print JSON")
	c.RunE = work(func(c *cobra.Command, words []string) error {
		args := map[string]string{"call": words[0]}
		if caller != "" {
			args["caller"] = caller
		}
		done, err := own[map[string]string](c.Context(), a, s, cancelCall, args, "cancel calls")
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(done)
		}
		fmt.Fprintf(a.err, "call %s is cancelled\n", clean(words[0]))
		return nil
	})
	return c
}

// completeCall gives the ids of the calls that run now.
func (a *app) completeCall(c *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
	defer cancel()
	var s server
	s.url, _ = c.Flags().GetString("server")
	s.token, _ = c.Flags().GetString("token")
	if len(args) == 0 {
		list, _ := own[callList](ctx, a, s, listCalls, struct{}{}, "see calls") // nothing to complete with is no error
		for _, one := range list.Calls {
			ids = append(ids, cobra.CompletionWithDesc(one.ID, clean(one.Tool+" of "+one.Caller)))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
