package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/start"
)

func (a *app) initCommand() *cobra.Command {
	var o start.Options
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a config and a sample tool",
		Long: "Writes toolpost.yaml, with the built-in tools for files and code, and greeter/, a tool in Python.\n" +
			"--sample adventure adds a program that reports events, and a story that calls tools. --from writes\n" +
			"sources for what it finds in a folder instead: OpenAPI documents, skills, and the scripts test, lint,\n" +
			"check and typecheck in package.json. It prints the command that imports the folder's MCP servers, starts\n" +
			"nothing, and changes nothing in that folder.",
		Example: "  toolpost init\n  toolpost init --sample adventure game\n  toolpost init --from ../my-project",
		Args:    words(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Dir = append(args, ".")[0]
			return a.init(o)
		},
	}
	c.Flags().BoolVar(&o.Force, "force", false, "overwrite existing files")
	c.Flags().BoolVar(&o.Empty, "empty", false, "write only a config, without sources")
	c.Flags().StringVar(&o.Sample, "sample", "", "add a sample: "+start.Adventure)
	c.Flags().StringVar(&o.From, "from", "", "write sources for what this folder has")
	c.MarkFlagsMutuallyExclusive("empty", "sample", "from")
	return c
}

func (a *app) init(o start.Options) error {
	p, err := o.Plan()
	if err != nil {
		return err
	}
	for _, f := range p.Found {
		fmt.Fprintf(a.out, "%s %s: %s\n", a.out.green("found"), clean(f.What), clean(f.Becomes))
	}
	if len(p.Skipped) > 0 {
		a.note("scripts of package.json that may change, publish or deploy something are left out: " + strings.Join(p.Skipped, ", ") +
			"; add a source of protocol command for each that agents may run")
	}
	err = p.Write(func(name string) { fmt.Fprintf(a.out, "%s %s\n", a.out.green("wrote"), name) })
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\n%s\n  %s\n", a.out.bold("Now try:"), strings.Join(p.Next, "\n  "))
	return nil
}
