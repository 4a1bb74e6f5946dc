package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// help is cobra's, without its templates: they would be half of the time that the program takes to start.
func (a *app) help(c *cobra.Command, _ []string) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(a.out, "%s\n\n%s\n  %s\n", text, a.out.bold("Usage:"), c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(a.out, "\n%s\n%s\n", a.out.bold("Examples:"), c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(a.out, "\n%s\n", a.out.bold("Commands:"))
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(a.out, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	a.flagHelp("Flags:", c.LocalNonPersistentFlags().FlagUsages())
	a.flagHelp("Flags of every command:", c.Root().PersistentFlags().FlagUsages())
}

func (a *app) flagHelp(title, flags string) {
	if flags = strings.TrimRight(flags, "\n"); flags != "" {
		fmt.Fprintf(a.out, "\n%s\n%s\n", a.out.bold(title), flags)
	}
}
