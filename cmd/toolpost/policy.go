package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/operate"
	"toolpost/engine/policy"
	"toolpost/node"
	"toolpost/tool"
)

func (a *app) policyCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "policy", Short: "Explain, test and replay what the policy decides",
		Example: "  toolpost policy explain writeFile path=notes.md content=x\n  toolpost policy test cases.yaml\n" +
			"  toolpost policy replay .toolpost/judged.jsonl",
	}, a.policyExplainCommand(), a.policyTestCommand(), a.policyReplayCommand())
}

// judging runs a command with the config's tools, because only they know what a call touches.
func (a *app) judging(
	run func(ctx context.Context, n *node.Node, args []string) error,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		n, end, err := a.openNode(c.Context(), cfg, slog.LevelError, node.Options{})
		if err != nil {
			return err
		}
		defer end()
		return run(c.Context(), n, args)
	}
}

func (a *app) policyExplainCommand() *cobra.Command {
	who := me()
	var session string
	c := a.withJSON("print the explanation as JSON", &cobra.Command{
		Use:   "explain NAME [JSON | name=value ... | @FILE | -]",
		Short: "Explain what the policy decides about a call",
		Long: "Explains what the policy decides about a call, which rule decided, and how each rule relates to it.\n" +
			"Nothing is run. Without arguments it reports what does not depend on them. Exit code 3: the call would be\n" +
			"refused.",
		Args: words(1, -1), ValidArgsFunction: a.completeTool,
	})
	c.Flags().StringVar(&who.ID, "caller", who.ID, "who calls")
	c.Flags().StringVar(&who.Door, "door", who.Door, "where the call comes in: cli, http, nats, mcp, or the name of a protocol")
	c.Flags().StringVar(&session, "session", "", "session of the call")
	c.RunE = func(c *cobra.Command, args []string) error {
		ask := operate.ExplainArgs{Tool: args[0], Caller: who.ID, Door: who.Door, Session: session}
		if a.server.url == "" {
			return a.judging(func(ctx context.Context, n *node.Node, args []string) error {
				return a.explainHere(ctx, n, ask, args[1:])
			})(c, args)
		}
		if !c.Flags().Changed("caller") {
			ask.Caller = "" // the server uses its own name for us
		}
		if !c.Flags().Changed("door") {
			ask.Door = ""
		}
		return a.explainThere(c.Context(), ask, args[1:])
	}
	return a.withServer(c)
}

// explainHere asks the policy of this config.
func (a *app) explainHere(ctx context.Context, n *node.Node, ask operate.ExplainArgs, words []string) error {
	if !n.Knows(ask.Caller) {
		fmt.Fprintf(a.err, "note: the config does not list the caller %q; it is judged as one with no roles%s\n",
			clean(ask.Caller), meant(ask.Caller, n.CallerNames(), ""))
	}
	spec, err := n.Spec(ask.Tool)
	if err != nil {
		return cmp.Or(n.CheckDoor(ask.Door), suggest(ctx, n.Catalog(), ask.Tool, err))
	}
	if ask.Args, err = someArguments(words, spec, a.in); err != nil {
		return withInputs(spec, err)
	}
	x, err := n.ExplainPolicy(ctx, me(), ask)
	if err != nil {
		return withInputs(spec, err)
	}
	return a.tellExplanation(x)
}

// explainThere asks the policy of a server.
func (a *app) explainThere(ctx context.Context, ask operate.ExplainArgs, words []string) error {
	explain := own{"explainPolicy", "have the policy explained", sources}
	b, err := explain.open(ctx, a)
	if err != nil {
		return err
	}
	defer b.close()
	spec := &tool.Spec{Name: ask.Tool} // the server knows the rules even for a tool that we may not see
	if found, err := b.Lookup(ctx, me(), ask.Tool); err == nil {
		spec = found
	}
	if ask.Args, err = someArguments(words, spec, a.in); err != nil {
		return withInputs(spec, err)
	}
	x, err := use[operate.Explanation](ctx, a, b, explain, tool.Call{Args: raw(ask)}, tool.Discard)
	if err != nil {
		return err
	}
	if x.Unlisted {
		fmt.Fprintf(a.err, "note: the config does not list the caller %q; it is judged as one with no roles\n", clean(x.Caller))
	}
	return a.tellExplanation(x)
}

// someArguments returns the arguments of a call, or nil if none were given.
func someArguments(words []string, spec *tool.Spec, in io.Reader) (json.RawMessage, error) {
	if len(words) == 0 {
		return nil, nil
	}
	return arguments(words, spec, in)
}

func (a *app) tellExplanation(x operate.Explanation) error {
	err := a.conclude(x, func() { a.printExplanation(x) }, false)
	if err != nil || x.Allowed || x.Depends {
		return err
	}
	return exitRefused
}

func (a *app) printExplanation(x operate.Explanation) {
	verdict := a.out.green("allowed")
	switch {
	case x.Depends:
		verdict = a.out.amber("depends")
	case !x.Allowed:
		verdict = a.out.red("refused")
	case x.Ask != nil:
		verdict = a.out.amber("asks")
	}
	fmt.Fprintf(a.out, "%s  %s for %s at %s\n", verdict, a.out.bold(clean(x.Tool)), clean(x.Caller), clean(x.Door))
	facts := [][2]string{{"why", clean(x.Reason)}}
	if x.Anonymous {
		facts = append(facts, [2]string{"who", "whoever shows no credentials at " + clean(x.Door) + " is " + clean(x.Caller)})
	}
	if x.Ask != nil {
		facts = append(facts, [2]string{"ask", clean(strings.Join(x.Ask.Approvers, ", ")) + ", within " +
			(time.Duration(x.Ask.TimeoutMS) * time.Millisecond).String()})
	}
	if !x.Visible {
		facts = append(facts, [2]string{"so", "the caller does not get to know of the tool: it is not found"})
	}
	for _, p := range x.Touches.Reads {
		facts = append(facts, [2]string{"reads", clean(p)})
	}
	for _, p := range x.Touches.Writes {
		facts = append(facts, [2]string{"writes", clean(p)})
	}
	for _, argv := range x.Touches.Commands {
		facts = append(facts, [2]string{"runs", clean(strings.Join(argv, " "))})
	}
	a.out.facts("  ", 7, facts)
	if len(x.Rules) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	columns[policy.Finding]("rule effect matches=matched why", nil).print(a, "rules", x.Rules)
}
