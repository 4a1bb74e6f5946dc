package main

import (
	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/manual"
)

// manCommand writes the manual pages for packages. It is hidden: users of the program have `--help`.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command into a folder",
		Hidden: true,
		Args:   words(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			b := thisBuild()
			return manual.Write(a.root(nil), b.Version, b.Date, args[0])
		},
	}
}
