package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/wrap"
	"toolpost/host/process"
	"toolpost/tool"
)

func (a *app) wrapCommand() *cobra.Command {
	var manual bool
	c := &cobra.Command{
		Use: "wrap [flags] PROGRAM [COMMAND ...]", Short: "Write a first draft of a source that runs a program as a tool",
		Args: words(1, -1), DisableFlagsInUseLine: true,
		Long: "Reads the help of a program (--help or -h) or its manual page, and prints a source with `protocol:\n" +
			"command` for it. Review the source, remove what you do not need, declare its effects, and add it to\n" +
			"toolpost.yaml. The program is run only to print its help, without network access and without write access\n" +
			"to any file.",
		Example: "  toolpost wrap git log\n  toolpost wrap --man rsync\n  toolpost wrap ./convert.py > draft.yaml",
		RunE:    func(c *cobra.Command, args []string) error { return a.wrap(c.Context(), args, manual) },
	}
	c.Flags().BoolVar(&manual, "man", false, "read the manual page, not the help")
	c.Flags().SetInterspersed(false) // words after the program are its own
	return a.withJSON("print the source as JSON", c)
}

func (a *app) wrap(ctx context.Context, words []string, manual bool) error {
	if strings.HasPrefix(words[len(words)-1], "-") {
		return tool.Errorf(tool.CodeInvalidInput, "%s is an option; name the program and its command alone, such as `toolpost wrap git log`",
			words[len(words)-1])
	}
	if _, err := exec.LookPath(words[0]); err != nil && !manual {
		return process.Diagnose(words, "", err)
	}
	p, err := wrap.Ask(ctx, words, manual)
	if err != nil {
		return err
	}
	if p.Commands() {
		return tool.Errorf(tool.CodeInvalidInput, "%[1]s has commands of its own; wrap one of them: `toolpost wrap %[1]s COMMAND`",
			strings.Join(words, " "))
	}
	text := p.Draft(words)
	src, err := wrap.Check(ctx, text)
	if err != nil {
		return tool.Errorf(tool.CodeUnsupported, "there is no draft for it: %s", tool.AsError(err).Message)
	}
	if a.json {
		return a.printIndented(src.JSON())
	}
	_, err = fmt.Fprint(a.out, cleanLines(text))
	return err
}
