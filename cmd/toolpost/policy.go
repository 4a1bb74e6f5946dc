package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

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

// judging runs a command with the config's tools: what a call touches is theirs to say.
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
	c.RunE = a.judging(func(ctx context.Context, n *node.Node, args []string) error {
		if err := n.CheckDoor(who.Door); err != nil {
			return err
		}
		if !n.Knows(who.ID) {
			fmt.Fprintf(a.err, "note: the config does not list the caller %q; it is judged as one with no roles%s\n", clean(who.ID),
				meant(who.ID, n.CallerNames(), ""))
		}
		call := tool.Call{Tool: args[0], Caller: n.Caller(who.ID, who.Door), Session: session}
		spec, err := n.Spec(call.Tool)
		if err != nil {
			return suggest(ctx, n.Catalog(), call.Tool, err)
		}
		if len(args) > 1 {
			if call.Args, err = arguments(args[1:], spec, a.in); err != nil {
				return withInputs(spec, err)
			}
		}
		x, err := n.Explain(&call, time.Now())
		if err != nil {
			return withInputs(spec, err)
		}
		told := explanation{x, who.ID != "" && who.ID == n.Anonymous()[who.Door].Name}
		err = a.conclude(told, func() { a.printExplanation(told) }, false)
		if err != nil || x.Allowed || x.Depends {
			return err
		}
		return exitRefused
	})
	return c
}

// An explanation also says whether everybody who shows no credentials at the door is the caller.
type explanation struct {
	policy.Explanation
	Anonymous bool `json:"anonymous,omitempty"`
}

func (a *app) printExplanation(x explanation) {
	verdict := a.out.green("allowed")
	switch {
	case x.Depends:
		verdict = a.out.amber("depends")
	case !x.Allowed:
		verdict = a.out.red("refused")
	}
	fmt.Fprintf(a.out, "%s  %s for %s at %s\n", verdict, a.out.bold(clean(x.Tool)), clean(x.Caller), clean(x.Door))
	facts := [][2]string{{"why", clean(x.Reason)}}
	if x.Anonymous {
		facts = append(facts, [2]string{"who", "whoever shows no credentials at " + clean(x.Door) + " is " + clean(x.Caller)})
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
	var rows [][]string
	for _, r := range x.Rules {
		matched := "no"
		if r.Matched {
			matched = "yes"
		}
		rows = append(rows, []string{r.Rule, string(r.Effect), matched, r.Why})
	}
	a.out.table([]string{"RULE", "EFFECT", "MATCHES", "WHY"}, rows)
}
