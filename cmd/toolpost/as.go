package main

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/identity"
	"toolpost/node"
	"toolpost/tool"
)

func (a *app) asCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "as",
		Short: "Be the tool side of a protocol on stdin and stdout",
		Long: "Lets other programs run the tools of this Toolpost as if they were tools of their own protocol: the request\n" +
			"is read from stdin, the answer goes to stdout, and nothing else does.",
		Example: "  toolpost as narratoria light_torch < request.json\n  toolpost as namel3ss < request.json\n" +
			"  toolpost as machina --serve files\n\nCalled by the name machina_toolhost, toolpost is `toolpost as machina`.",
	}
	onlyCommands(c)
	for _, p := range node.Protocols() {
		if p.As != nil {
			c.AddCommand(a.asProtocol(p))
		}
	}
	return c
}

func (a *app) asProtocol(p node.Protocol) *cobra.Command {
	c := &cobra.Command{
		Use: strings.TrimSpace(p.Name + " " + p.As.Usage), Short: "Speak " + p.Name, Args: words(p.As.Least, p.As.Most),
		ValidArgsFunction: a.completeTool, DisableFlagsInUseLine: true,
	}
	flags := make([]*bool, len(p.As.Flags))
	for i, name := range p.As.Flags {
		flags[i] = c.Flags().Bool(name, false, "")
	}
	c.RunE = work(func(c *cobra.Command, args []string) error {
		var given []string
		for i, on := range flags {
			if *on {
				given = append(given, "--"+p.As.Flags[i])
			}
		}
		given = append(given, args...)
		cfg, err := a.load()
		if err != nil {
			return err
		}
		std := node.Stdio{
			In: a.in, Out: a.out, Log: a.err, Caller: tool.Principal{ID: identity.Local, Door: p.Name}, Sources: cfg.Sources,
		}
		door, err := p.As.Door(given, std)
		if err != nil {
			return err
		}
		var o node.Options
		if p.As.LeaseTier != nil {
			o.LeaseTier = p.As.LeaseTier(given)
		}
		b, err := a.openNodeAt(c.Context(), cfg, p.Name, o)
		if err != nil {
			return err
		}
		defer b.close()
		return door.Serve(c.Context(), fromEnvironment(b, os.Getenv), b)
	})
	return c
}

// fromEnvironment gives calls what their protocol has no place for and the environment of this program has: it was
// started for them. What a call says itself goes first.
func fromEnvironment(next tool.Handler, getenv func(string) string) tool.Handler {
	own := tool.Call{
		Session: getenv("TOOLPOST_SESSION"), Key: getenv("TOOLPOST_KEY"), Lease: getenv("TOOLPOST_LEASE"), Run: getenv("TOOLPOST_RUN"),
		Trace: tool.TraceOf(getenv("TRACEPARENT")), Span: tool.SpanOf(getenv("TRACEPARENT")),
	}
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		with := *c
		with.Session, with.Key, with.Lease = cmp.Or(c.Session, own.Session), cmp.Or(c.Key, own.Key), cmp.Or(c.Lease, own.Lease)
		with.Run = cmp.Or(c.Run, own.Run)
		if c.Trace == "" {
			with.Trace, with.Span = own.Trace, own.Span
		}
		return next.Invoke(ctx, &with, out)
	})
}
