package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/health"
)

// listSources is the tool that tells about sources.
const listSources = "listSources"

func (a *app) sourcesCommand() *cobra.Command {
	var s server
	c := &cobra.Command{
		Use: "sources", Short: "List the sources of tools and how they are", Args: words(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Lists every source of the config, or of a server's with --server: its protocol, whether it is open or failed and since\n" +
			"when, how many tools it brings, and why it is not there. It is for operators.",
	}
	s.flags(c)
	a.jsonFlag(c, "print JSON")
	c.RunE = work(func(c *cobra.Command, _ []string) error {
		type sourceList struct {
			Sources []health.Source `json:"sources"`
		}
		list, err := own[sourceList](c.Context(), a, s, listSources, struct{}{}, "see sources")
		switch {
		case err != nil:
			return err
		case a.json:
			return a.printJSON(list)
		case len(list.Sources) == 0:
			fmt.Fprintln(a.err, "no sources")
			return nil
		}
		var rows [][]string
		for _, one := range list.Sources {
			rows = append(rows, []string{
				clean(one.Name), clean(one.Protocol), clean(one.State), strconv.Itoa(one.Tools), when(one.Since, time.Now()), clean(one.Error),
			})
		}
		a.out.table([]string{"NAME", "PROTOCOL", "STATE", "TOOLS", "SINCE", "ERROR"}, rows)
		return nil
	})
	return c
}
