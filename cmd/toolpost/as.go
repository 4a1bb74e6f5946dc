package main

import (
	"github.com/spf13/cobra"

	"toolpost/node"
	"toolpost/tool"
)

func (a *app) asCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "as",
		Short: "Be the tool side of a protocol on stdin and stdout",
		Long: "Lets other programs run the tools of this Toolpost as if they were tools of their own protocol: the request\n" +
			"is read from stdin, the answer goes to stdout, and nothing else does.",
		Example: "  toolpost as narratoria light_torch < request.json\n  toolpost as namel3ss < request.json",
	}
	onlyCommands(c)
	for _, p := range node.Protocols() {
		if p.Stdio != nil {
			c.AddCommand(a.asProtocol(p))
		}
	}
	return c
}

func (a *app) asProtocol(p node.Protocol) *cobra.Command {
	c := &cobra.Command{
		Use: p.Name + " [NAME]", Short: "Speak " + p.Name + "; NAME is the tool, whatever the request says",
		Args: words(0, 1), ValidArgsFunction: a.completeTool,
	}
	if p.NeedsName {
		c.Use, c.Short, c.Args = p.Name+" NAME", "Speak "+p.Name+" for the tool NAME", words(1, 1)
	}
	c.RunE = work(func(c *cobra.Command, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		b, err := a.open(c.Context(), server{})
		if err != nil {
			return err
		}
		defer b.close()
		door := p.Stdio(name, node.Stdio{In: a.in, Out: a.out, Log: a.err, Caller: tool.Principal{ID: "local", Door: p.Name}})
		return door.Serve(c.Context(), b, b)
	})
	return c
}
