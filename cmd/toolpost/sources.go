package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/health"
	"toolpost/node"
)

func (a *app) sourcesCommand() *cobra.Command {
	return a.withServer(a.withJSON("print JSON", &cobra.Command{
		Use: "sources", Short: "List the sources of tools and how they are",
		Long: "Lists every source of the config, or of a server's with --server: its protocol, whether it is open or\n" +
			"failed and since when, how many tools it brings, and why it is not there or how many of its tools are held\n" +
			"back. It is for operators.",
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := own[map[string][]health.Source](
				c.Context(), a, node.Options{}, "listSources", struct{}{}, "see sources")
			if err != nil {
				return err
			}
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
