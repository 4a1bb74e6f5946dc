// Package manual writes manual pages from the help of commands.
package manual

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Write writes a page for each command into a folder. The date is that of the build, in RFC 3339; without one it is always
// the same day, so that the same program writes the same pages.
func Write(root *cobra.Command, version, date, folder string) error {
	day, err := time.Parse(time.RFC3339, date)
	if err != nil {
		day = time.Unix(0, 0).UTC()
	}
	root.Long += files
	convert(root)
	return doc.GenManTree(root, &doc.GenManHeader{Date: &day, Source: "toolpost " + version, Manual: "Toolpost"}, folder)
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

// convert converts the texts of a command and its subcommands to Markdown, which the generator reads. Our tables are indented
// lines.
func convert(c *cobra.Command) {
	c.DisableAutoGenTag = true // the tag has today's date
	c.Long = regexp.MustCompile(`(?m)(^  .*\n?)+|<`).ReplaceAllStringFunc(c.Long, func(lines string) string {
		if lines == "<" {
			return `\<`
		}
		return "\n```\n" + strings.TrimRight(lines, "\n") + "\n```\n\n"
	})
	for _, sub := range c.Commands() {
		convert(sub)
	}
}
