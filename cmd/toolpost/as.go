package main

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/identity"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/envelope"
)

func (a *app) asCommand() *cobra.Command {
	var spoken []*cobra.Command
	for _, p := range node.Protocols() {
		if p.Stdio != nil {
			spoken = append(spoken, a.asProtocol(p))
		}
	}
	return group(&cobra.Command{
		Use:   "as",
		Short: "Serve your tools over stdin and stdout, in another protocol",
		Long: "Lets other programs run these tools as if they were tools of their own protocol: requests come from\n" +
			"stdin, answers go to stdout, and nothing else does.",
		Example: "  toolpost as narratoria light_torch < request.json\n  toolpost as namel3ss < request.json\n" +
			"  toolpost as machina --serve files\n  toolpost as mcp\n\nCalled by the name machina_toolhost, toolpost is `toolpost as machina`.",
	}, spoken...)
}

func (a *app) asProtocol(p node.Protocol) *cobra.Command {
	c := &cobra.Command{
		Use: strings.TrimSpace(p.Name + " " + p.Stdio.Usage), Short: "Serve these tools over stdin and stdout in " + p.Name, Args: words(p.Stdio.Least, p.Stdio.Most),
		ValidArgsFunction: a.completeTool, DisableFlagsInUseLine: true,
	}
	for _, name := range p.Stdio.Flags {
		c.Flags().Bool(name, false, "")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		var given []string
		for _, name := range p.Stdio.Flags {
			if on, _ := c.Flags().GetBool(name); on {
				given = append(given, "--"+name)
			}
		}
		given = append(given, args...)
		fill, err := envelope.Environment(os.Getenv)
		if err != nil {
			return err
		}
		cfg, err := a.load()
		if err != nil {
			return err
		}
		std := node.Stdio{
			In: a.in, Out: a.out, Log: a.err, Caller: tool.Principal{ID: identity.Local, Door: p.Name}, Sources: cfg.Sources,
			Doors: cfg.Doors, Version: version,
		}
		door, err := p.Stdio.Door(given, std)
		if err != nil {
			return err
		}
		o := node.Options{Tiers: p.Stdio.Tiers, Early: p.Stdio.Early}
		if p.Stdio.LeaseTier != nil {
			o.LeaseTier = p.Stdio.LeaseTier(given)
		}
		ctx, done := untilHangup(c.Context())
		defer done()
		b, err := a.openAt(ctx, cfg, p.Name, o)
		if err != nil {
			return err
		}
		defer b.close()
		defer node.GCBallast()()
		return door.Serve(ctx, fill(b), b.Catalog) // not b, which would hide that the catalogue reports changes
	}
	return c
}

func (a *app) selectCommand() *cobra.Command {
	var inputs, request string
	c := &cobra.Command{
		Use:   "select [flags] -- POLICY [ARGUMENT ...]",
		Short: "Let an external policy choose a tool from the menu",
		Long: "Runs POLICY, a program that reads the menu of tools as JSON on stdin and prints one selection in Machina's\n" +
			"grammar, such as <PICK><SID0007><END>, and prints what it decided: the tool and its inputs, ready for\n" +
			"`toolpost call`.",
		Example: "  toolpost select --inputs '{\"name\": \"Ada\"}' -- python3 policy.py",
		Args:    words(1, -1), DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			a.json = true
			b, err := a.open(c.Context(), node.Options{})
			if err != nil {
				return err
			}
			defer b.close()
			selected, err := node.Select(c.Context(), args, b, me(), request, json.RawMessage(inputs))
			if err != nil {
				return err
			}
			return a.printJSON(selected)
		},
	}
	c.Flags().StringVar(&inputs, "inputs", "", "the inputs so far, a JSON object; the selection may patch them")
	c.Flags().StringVar(&request, "request-id", "", "your id of this request, for the policy: the request_id of its run_header")
	return a.withServer(c)
}
