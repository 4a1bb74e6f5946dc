package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check the config, or print its JSON Schema"}
	return group(c, a.configCheckCommand(), &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of toolpost.yaml, for editors",
		RunE: func(*cobra.Command, []string) error {
			b, err := node.Schema()
			if err != nil {
				return err
			}
			_, err = a.out.Write(b)
			return err
		},
	})
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Read the config and open its sources, and say what is wrong",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if cfg.Path != "" {
				if err := config.Trusted(cfg.Path); err != nil {
					fmt.Fprintf(a.err, "a running server will not take changes of it: %s\n", because(err))
				}
			}
			n, end, err := a.openNode(c.Context(), cfg, slog.LevelError+1, node.Options{})
			if err != nil {
				return err
			}
			defer end()
			if why := emptiness(cfg); why != "" {
				fmt.Fprintln(a.err, why)
			}
			for _, d := range slices.Sorted(maps.Keys(n.Anonymous())) {
				fmt.Fprintf(a.out, "%-16s %-12s %s\n", "door "+d, "anonymous", a.out.amber(clean(n.Anonymous()[d].String())))
			}
			return a.reportSources(c.Context(), n.Catalog(), n.Sources())
		},
	}
}

// reportSources says which sources work, and which of their tools do not.
func (a *app) reportSources(ctx context.Context, c tool.Catalog, sources []node.Status) error {
	wrong := false
	for _, s := range sources {
		state := a.out.green("ok")
		if s.Err != nil {
			wrong = true
			state = a.out.red("unavailable: ") + because(s.Err)
		}
		fmt.Fprintf(a.out, "%-16s %-12s %s\n", s.Name, clean(s.Protocol), state)
		for spec, err := range c.Specs(ctx, me()) {
			if spec.Source == s.Name && s.Err == nil && err != nil {
				wrong = true
				fmt.Fprintf(a.out, "  %s %s%s\n", clean(spec.Name), a.out.red("unavailable: "), because(err))
			}
		}
	}
	if wrong {
		return exitFailed
	}
	return nil
}
