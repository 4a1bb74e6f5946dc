package main

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/terminal"
	"toolpost/config"
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
		Short: "Serve your tools over stdin and stdout, in a protocol of your choice",
		Long: "Lets other programs run your tools through their own protocol. Requests are read from stdin; only\n" +
			"answers are written to stdout.",
		Example: "  toolpost as narratoria light_torch < request.json\n" +
			"  toolpost as namel3ss < request.json\n" +
			"  toolpost as machina --serve files\n" +
			"  toolpost as mcp\n\n" +
			"If the program file is named machina_toolhost, it runs as `toolpost as machina`.",
	}, spoken...)
}

func (a *app) asProtocol(p node.Protocol) *cobra.Command {
	c := &cobra.Command{
		Use:   strings.TrimSpace(p.Name + " " + p.Stdio.Usage),
		Short: p.Stdio.Doc, Args: words(p.Stdio.Least, p.Stdio.Most),
		ValidArgsFunction: a.completeTool, DisableFlagsInUseLine: true,
	}
	for _, f := range p.Stdio.Flags {
		c.Flags().Bool(f[0], false, f[1])
	}
	var caller string
	if p.Stdio.Agents {
		c.Flags().StringVar(&caller, "caller", "", "name of the agent, which becomes the caller agent/NAME (default: the client's own name)")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		var given []string
		for _, f := range p.Stdio.Flags {
			if on, _ := c.Flags().GetBool(f[0]); on {
				given = append(given, "--"+f[0])
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
		var b *backend
		std := node.Stdio{
			In: a.in, Out: a.out, Log: a.err, Caller: tool.Principal{ID: identity.Local, Door: p.Name}, Sources: cfg.Sources,
			Doors: cfg.Doors, Version: version,
		}
		if p.Stdio.Agents {
			std.Agent = func(client string) (tool.Principal, error) {
				return b.agent(identity.Agent{Name: caller, Client: client})
			}
		}
		door, err := p.Stdio.Door(given, std)
		if err != nil {
			return err
		}
		o := node.Options{Tiers: p.Stdio.Tiers, Early: p.Stdio.Early, Client: p.Stdio.Agents}
		if p.Stdio.LeaseTier != nil {
			o.LeaseTier = p.Stdio.LeaseTier(given)
		}
		ctx, done := terminal.UntilHangup(c.Context())
		defer done()
		if b, err = a.openAt(ctx, cfg, p.Name, o); err != nil {
			return err
		}
		defer b.close()
		defer node.GCBallast()()
		return door.Serve(ctx, fill(a.advising(b, cfg)), b.Catalog) // not b, which would hide that the catalogue reports changes
	}
	return c
}

// advising completes the commands in questions about approvals: the person who copies them is in another folder than this
// process, and has another environment.
func (a *app) advising(h tool.Handler, cfg *config.Config) tool.Handler {
	if a.config = cmp.Or(a.config, os.Getenv("TOOLPOST_CONFIG")); a.config != "" {
		a.config = cfg.Path
	}
	if a.state = a.givenState(); a.state != "" {
		a.state = cfg.StateDir()
	}
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := h.Invoke(ctx, c, out)
		if err != nil || r.Ask == nil || r.Ask.Kind != tool.AskApproval {
			return r, err
		}
		asked, ask := *r, *r.Ask
		ask.Message, asked.Ask = a.here(ask.Message), &ask
		return &asked, nil
	})
}

func (a *app) selectCommand() *cobra.Command {
	var inputs, request string
	c := &cobra.Command{
		Use:   "select [flags] -- PROGRAM [ARGUMENT ...]",
		Short: "Let an external program choose a tool, in Machina's grammar",
		Long: "Runs PROGRAM, which reads the menu (the list of tools, as JSON) from stdin and prints one selection in\n" +
			"Machina's grammar, such as <PICK><SID0007><END>: SID0007 is the id of a tool in the menu. Then prints\n" +
			"the decision: the tool and its inputs, ready for `toolpost call`.",
		Example: "  toolpost select --inputs '{\"name\": \"Ada\"}' -- python3 choose.py",
		Args:    words(1, -1), DisableFlagsInUseLine: true,
		PreRun: func(*cobra.Command, []string) { a.json = true }, // errors, too
		RunE: a.withTools(func(ctx context.Context, b *backend, program []string) error {
			selected, err := node.Select(ctx, program, b, me(), request, json.RawMessage(inputs))
			if err != nil {
				return err
			}
			return a.printJSON(selected)
		}),
	}
	c.Flags().StringVar(&inputs, "inputs", "", "the inputs so far, a JSON object; the selection may patch them")
	c.Flags().StringVar(&request, "request-id", "", "id of this request, passed to PROGRAM as request_id in the run_header")
	return a.withServer(c)
}
