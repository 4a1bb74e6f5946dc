package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the manual pages for packages. It is hidden: users of the program have `--help`.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command into a folder",
		Hidden: true,
		Args:   words(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			root, b := a.root(nil), thisBuild()
			root.Long += files
			forManual(root)
			date, err := time.Parse(time.RFC3339, b.Date)
			if err != nil {
				date = time.Unix(0, 0).UTC() // not today, so that the same program writes the same pages
			}
			return doc.GenManTree(root, &doc.GenManHeader{
				Date: &date, Source: "toolpost " + b.Version, Manual: "Toolpost",
			}, args[0])
		},
	}
}

// files ends the first page.
const files = `

# FILES

**./toolpost.yaml**
	The config, if neither --config nor $TOOLPOST_CONFIG names one.

**/etc/toolpost/toolpost.yaml**
	The config of the system service.

**/var/lib/toolpost**
	What the system service keeps: its store, its tokens and its keys.
`

// forManual converts the texts of a command and its subcommands to Markdown, which the generator reads. Our tables are
// indented lines.
func forManual(c *cobra.Command) {
	c.DisableAutoGenTag = true // the tag has today's date
	c.Long = regexp.MustCompile(`(?m)(^  .*\n?)+|<`).ReplaceAllStringFunc(c.Long, func(lines string) string {
		if lines == "<" {
			return `\<`
		}
		return "\n```\n" + strings.TrimRight(lines, "\n") + "\n```\n\n"
	})
	for _, sub := range c.Commands() {
		forManual(sub)
	}
}
