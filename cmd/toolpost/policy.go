package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/define"
	"toolpost/builtin/operate"
	"toolpost/cmd/toolpost/form"
	"toolpost/cmd/toolpost/judge"
	"toolpost/engine/policy"
	"toolpost/identity"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

const notGroups = "; the groups of a person who signs in are not judged\n"

func (a *app) policyCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "policy", Short: "Explain and test the policy, and apply it again to recorded calls",
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
		Long: "Explains what the policy decides about a call, which rule decides, and whether each other rule matches.\n" +
			"Nothing is run. Without arguments, it applies only the rules that do not need them. The policy is that\n" +
			"of the config, or of a server named by --server, --context, $TOOLPOST_URL or the context in use; a\n" +
			"running server of the config is not asked. Exit code 3: the call would be refused.",
		Args: words(1, -1), ValidArgsFunction: a.completeTool,
	})
	c.Flags().StringVar(&who.ID, "caller", who.ID, "caller of the call; the default on a named server is you")
	c.Flags().StringVar(&who.Door, "door", who.Door,
		"door of the call: cli, http, nats, mcp or a protocol; the default on a named server is the one you use")
	c.Flags().StringVar(&session, "session", "", "session of the call")
	c.RunE = func(c *cobra.Command, args []string) error {
		ask := operate.ExplainArgs{Tool: args[0], Caller: who.ID, Door: who.Door, Session: session}
		if err := a.locate(c.Context()); err != nil {
			return err
		}
		if !a.away() { // the file may be about to change what a running server does
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
	who := me()
	name, isAgent := strings.CutPrefix(ask.Caller, tool.AgentPrefix)
	user, refused := n.Admit(ctx, identity.Credentials{Door: ask.Door, Peer: identity.Self()})
	if isAgent && refused == nil { // it has the rights of its user
		var err error
		if who, err = n.Agent(user, identity.Agent{Name: name}); err != nil {
			return err
		}
		ask.Caller = ""
	} else if !n.Knows(ask.Caller) {
		fmt.Fprintf(a.err, "note: the config does not list the caller %q; it is judged as one with no roles%s"+notGroups,
			clean(ask.Caller), nearest.Suggest(ask.Caller, n.CallerNames(), ""))
	}
	spec, err := n.Spec(ask.Tool)
	if err != nil {
		return cmp.Or(n.CheckDoor(ask.Door), a.suggest(ctx, n.Catalog(), ask.Tool, err))
	}
	if ask.Args, err = someArguments(words, spec, a.in); err != nil {
		return withInputs(spec, err)
	}
	x, err := n.ExplainPolicy(ctx, who, ask)
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
		fmt.Fprintf(a.err, "note: the config does not list the caller %q; it is judged as one with no roles"+notGroups, clean(x.Caller))
	}
	return a.tellExplanation(x)
}

// someArguments returns the arguments of a call, or nil if none were given.
func someArguments(words []string, spec *tool.Spec, in io.Reader) (json.RawMessage, error) {
	if len(words) == 0 {
		return nil, nil
	}
	return form.Arguments(words, spec.Input, in)
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
	case x.Ask != nil && !x.Approved:
		verdict = a.out.amber("asks")
	}
	fmt.Fprintf(a.out, "%s  %s for %s at %s\n", verdict, a.out.bold(clean(x.Tool)), clean(x.Caller), clean(x.Door))
	facts := [][2]string{{"why", clean(x.Reason)}}
	if x.Anonymous {
		facts = append(facts, [2]string{"who", "callers without credentials at " + clean(x.Door) + " are " + clean(x.Caller)})
	}
	if x.Approved {
		facts = append(facts, [2]string{"but", "the config approves it, in `approved`"})
	} else if x.Ask != nil {
		facts = append(facts, [2]string{"ask", clean(strings.Join(x.Ask.Approvers, ", ")) + ", within " +
			(time.Duration(x.Ask.TimeoutMS) * time.Millisecond).String()})
	}
	if !x.Visible {
		facts = append(facts, [2]string{"so", "the caller does not get to know of the tool: it is not found"})
	}
	a.out.facts("  ", 7, append(facts, touchFacts(x.Touches)...))
	if len(x.Rules) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	columns[policy.Finding]("rule effect matches=matched why", nil).print(a, "rules", x.Rules)
}

func (a *app) policyTestCommand() *cobra.Command {
	return a.withJSON("print every case as JSON", &cobra.Command{
		Use: "test FILE", Short: "Run a table of cases against the policy",
		Long: "Judges each case in a YAML file and compares the decision with the expected one. Nothing is run. Exit code\n" +
			"1: a case differs.\n\n" +
			"  cases:\n" +
			"    - {name: no writes from outside, door: http, tool: writeFile, args: {path: a, content: b}, want: deny,\n" +
			"       rule: read-only}\n\n" +
			"want is allow, ask or deny; rule is optional. caller defaults to local, door to cli, and time (such as\n" +
			"2026-01-31T08:00:00Z) to now.",
		Args: words(1, 1),
		RunE: a.judging(func(_ context.Context, n *node.Node, args []string) error {
			cases, err := judge.ReadCases(args[0])
			if err != nil {
				return err
			}
			results := []judge.Result{}
			for _, p := range cases {
				results = append(results, p.Run(n, me()))
			}
			return a.showCases(results)
		}),
	})
}

func (a *app) showCases(results []judge.Result) error {
	failed := slices.DeleteFunc(slices.Clone(results), func(r judge.Result) bool { return r.OK })
	return a.conclude(map[string]any{"cases": results, "failed": len(failed)}, func() {
		for _, r := range failed {
			want := r.Want
			if r.Rule != "" {
				want += " by " + clean(r.Rule)
			}
			fmt.Fprintf(a.out, "%s %s\n  want  %s\n  got   %s\n", a.out.red("FAIL"), clean(r.Name), want, actual(r))
		}
		fmt.Fprintf(a.out, "%d of %s as wanted\n", len(results)-len(failed), define.Count(len(results), "case"))
	}, len(failed) > 0)
}

func actual(r judge.Result) string {
	if r.Error != nil {
		return "no decision: " + clean(r.Error.Message)
	}
	return fmt.Sprintf("%s by %s: %s", r.Got.Effect(), clean(r.Got.Rule), clean(r.Got.Reason))
}

func (a *app) policyReplayCommand() *cobra.Command {
	return a.withJSON("print the changes as JSON", &cobra.Command{
		Use: "replay FILE", Short: "Judge recorded calls again, and show what would change",
		Long: "Reads a file written by `policy.record` (- for stdin), judges each call with the current policy, as of\n" +
			"the time when the call was made, and shows the calls that would be decided differently. Nothing is run.\n" +
			"Exit code 1: a decision would change.",
		Args: words(1, 1),
		RunE: a.judging(func(_ context.Context, n *node.Node, args []string) error {
			in := a.in
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return judge.CannotRead(args[0], err)
				}
				defer f.Close()
				in = f
			}
			count, changed, err := judge.Replay(n, args[0], in)
			if err != nil {
				return err
			}
			return a.conclude(map[string]any{"calls": count, "changed": changed},
				func() { a.showReplay(count, changed) }, len(changed) > 0)
		}),
	})
}

func (a *app) showReplay(count int, changed []judge.Replayed) {
	if len(changed) == 0 {
		fmt.Fprintf(a.out, "%s, all decided as before\n", define.Count(count, "call"))
		return
	}
	columns("line time caller tool was=decision now why", cells[judge.Replayed]{
		"time": func(c judge.Replayed) string { return c.Time.Format(time.RFC3339) },
		"now": func(c judge.Replayed) string {
			if c.Error != nil {
				return "-"
			}
			return string(c.Now.Effect())
		},
		"why": func(c judge.Replayed) string {
			if c.Error != nil {
				return c.Error.Message
			}
			return c.Now.Reason
		},
	}).print(a, "calls", changed)
	fmt.Fprintf(a.out, "%d of %s would be decided differently\n", len(changed), define.Count(count, "call"))
}
