package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the manual for packages. Whoever has the program has `--help`, so no list shows it.
//
// Cobra has a generator of its own. It takes the texts for Markdown, which sets the tables in ours as running text, and
// links a Markdown parser and a YAML library into every start.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page for each command into a folder",
		Hidden: true,
		Args:   words(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			return writeManual(args[0], a.root(nil), thisBuild())
		},
	}
}

// writeManual writes the page of a command, and those of the commands below it.
func writeManual(dir string, c *cobra.Command, b build) error {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(manualPage(c, b)), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if err := writeManual(dir, sub, b); err != nil {
			return err
		}
	}
	return nil
}

// manualPage is what --help says, as roff.
func manualPage(c *cobra.Command, b build) string {
	m := &manual{}
	page := strings.ReplaceAll(c.CommandPath(), " ", "-")
	m.line(`.TH "%s" "1" "%.10s" "toolpost %s" "Toolpost"`, roff(strings.ToUpper(page)), b.Date, roff(b.Version))
	m.section("NAME")
	m.line(`%s \- %s`, roff(page), roff(c.Short))
	m.section("SYNOPSIS")
	m.line(`\fB%s\fR`, roff(c.UseLine()))
	m.section("DESCRIPTION")
	if c.Long != "" {
		m.text(c.Long)
	} else {
		m.text(c.Short + ".")
	}
	if c.Example != "" {
		m.section("EXAMPLES")
		m.literally(c.Example)
	}
	m.commands(c)
	m.flags("OPTIONS", c.LocalNonPersistentFlags())
	if c.HasParent() {
		m.flags("OPTIONS OF EVERY COMMAND", c.Root().PersistentFlags())
		m.section("SEE ALSO")
		m.line(`\fB%s\fR(1)`, roff(strings.ReplaceAll(c.Parent().CommandPath(), " ", "-")))
	} else {
		m.flags("OPTIONS OF EVERY COMMAND", c.PersistentFlags())
		m.section("FILES")
		m.entry("./toolpost.yaml", "The config, where neither --config nor $TOOLPOST_CONFIG names one.")
		m.entry("/etc/toolpost/toolpost.yaml", "The config of the system service.")
		m.entry("/var/lib/toolpost", "What the system service keeps: its store, its tokens and its keys.")
	}
	return m.String()
}

// A manual is a page in the making.
type manual struct{ strings.Builder }

func (m *manual) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

func (m *manual) section(title string) { m.line(".SH %s", title) }

// entry is a term and what it means.
func (m *manual) entry(term, about string) {
	m.line(".TP\n\\fB%s\\fR\n%s", roff(term), inline(about))
}

// text sets paragraphs as running text, and lines that are indented, such as tables, as they are.
func (m *manual) text(s string) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(s), "\n\n") {
		m.line(".PP")
		for line := range strings.SplitAfterSeq(paragraph, "\n") {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "  ") {
				m.literally(line)
			} else {
				m.line("%s", inline(line))
			}
		}
	}
}

// literally sets lines as they are.
func (m *manual) literally(s string) {
	m.line(".nf")
	for line := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		m.line("%s", roff(line))
	}
	m.line(".fi")
}

func (m *manual) commands(c *cobra.Command) {
	if !c.HasAvailableSubCommands() {
		return
	}
	m.section("COMMANDS")
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			m.entry(strings.ReplaceAll(sub.CommandPath(), " ", "-")+"(1)", sub.Short)
		}
	}
}

func (m *manual) flags(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	m.section(title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		term := strings.TrimSpace("--" + f.Name + " " + value)
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		m.entry(term, usage)
	})
}

// roff escapes text for the formatter: its escape character, hyphens that people copy into a shell, and what would be a
// request at the start of a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// inline escapes a line of running text, with what our texts put in backquotes in bold.
func inline(s string) string {
	return regexp.MustCompile("`([^`]+)`").ReplaceAllString(roff(s), `\fB$1\fR`)
}
