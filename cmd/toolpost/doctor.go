package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/machine"
	"toolpost/node"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.withJSON("print the findings as JSON", &cobra.Command{
		Use:   "doctor",
		Short: "Check this machine, and explain the effect of each problem",
		Long: "Checks the kernel, the interpreters, the config and its sources. \"missing\": Toolpost works, with less\n" +
			"protection or fewer features. \"failed\": something does not work; the exit code is 1.",
		RunE: func(c *cobra.Command, _ []string) error {
			findings := append(machine.Check(c.Context()), a.installation(c.Context())...)
			return a.conclude(map[string]any{"findings": findings}, func() { a.showFindings(findings) },
				slices.ContainsFunc(findings, func(f machine.Finding) bool { return f.State == machine.Failed }))
		},
	})
}

func (a *app) showFindings(findings []machine.Finding) {
	marks := map[string]string{
		machine.OK: a.out.green("ok     "), machine.Missing: a.out.amber("missing"), machine.Failed: a.out.red("failed "),
	}
	for _, f := range findings {
		detail := strings.ReplaceAll(cleanLines(f.Detail), "\n", "\n"+strings.Repeat(" ", 26))
		means := a.out.dim(strings.Repeat(" ", 26) + f.Means)
		fmt.Fprintf(a.out, "%s  %-16s %s\n%s\n", marks[f.State], f.Name, detail, means)
	}
}

// installation checks the config and what it names.
func (a *app) installation(ctx context.Context) []machine.Finding {
	cfg, err := a.load()
	findings := []machine.Finding{machine.Config(cfg, err)}
	if err != nil {
		return findings
	}
	n, end, err := a.openNode(ctx, cfg, slog.LevelError+1, node.Options{})
	if err != nil {
		return append(findings, machine.Probe("sources", err, machine.Failed, "", "bring the tools"))
	}
	defer end()
	return append(findings, machine.Node(ctx, cfg, n, me())...)
}
