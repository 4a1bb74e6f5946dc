package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	plantools "toolpost/builtin/plan"
	"toolpost/node"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func (a *app) planCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "plan", Short: "Run plans: graphs of calls",
		Long: "A plan is a graph of calls, as JSON: what one tool gives can be what the next one takes. It is checked before\n" +
			"anything runs, and each of its calls passes the engine like any other.",
		Example: "  toolpost plan check scene.json\n  toolpost plan run scene.json --session s1\n  toolpost plan show ID",
	}, a.planRunCommand(), a.planCheckCommand(), a.planShowCommand(), a.planListCommand())
}

// planDocument reads a plan from a file, or from stdin. It leaves the validation to the tool: a server has its own tools,
// and may know later versions of plans than this program.
func (a *app) planDocument(name string) (json.RawMessage, error) {
	in := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the plan cannot be read: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, plan.MaxBytes+1))
	switch {
	case err != nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "the plan cannot be read: %w", err)
	case len(text) > plan.MaxBytes:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: a plan has at most %d bytes", name, plan.MaxBytes)
	}
	v, err := strictjson.Decode(text) // an argument must be JSON
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: the plan is not JSON: %w", name, err)
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: a plan is an object, not %s", name, strictjson.KindOf(text))
	}
	return text, nil
}

func (a *app) planRunCommand() *cobra.Command {
	var call tool.Call
	var planner, prompt string
	c := &cobra.Command{
		Use: "run FILE|-", Short: "Run a plan", Args: words(1, 1),
		Long: "Runs a plan from a file, or from stdin, and shows its tools as they run. The exit code is 1 if the plan failed:\n" +
			"a tool that it needs failed, or it is not right.",
		RunE: func(c *cobra.Command, args []string) error {
			document, err := a.planDocument(args[0])
			if err != nil {
				return err
			}
			given := map[string]any{"plan": document}
			for name, value := range map[string]string{"planner": planner, "prompt": prompt} {
				if value != "" {
					given[name] = value
				}
			}
			call.Tool, call.Args = plantools.Run, raw(given)
			return a.runPlan(c.Context(), call)
		},
	}
	f := c.Flags()
	f.StringVar(&planner, "planner", "", "ask this planner for another plan when this one fails")
	f.StringVar(&prompt, "prompt", "", "what the plan is for, as the planner is told")
	f.StringVar(&call.Session, "session", "", "session whose state the tools see and patch")
	f.StringVar(&call.Run, "run", "", "agent run that the calls belong to, for the record")
	return a.withServer(a.withJSON("print the execution result as JSON", c))
}

func (a *app) runPlan(ctx context.Context, call tool.Call) error {
	ctx, done := untilHangup(ctx)
	defer done()
	b, err := a.open(ctx, node.Options{})
	if err != nil {
		return err
	}
	defer b.close()
	view := newPlanView(a.err)
	var r plan.Result
	err = a.callOwnTo(ctx, b, call, view, "run plans", &r)
	view.end()
	if err != nil {
		return err
	}
	return a.concludePlan(&r, view)
}

// concludePlan prints the outcome of a plan.
func (a *app) concludePlan(r *plan.Result, view *planView) error {
	return a.conclude(r, func() {
		if view.narrative != "" {
			fmt.Fprintln(a.out, cleanLines(view.narrative))
		}
		for _, t := range r.ToolResults {
			if t.State == plan.Success {
				fmt.Fprintf(a.out, "%s: %s\n", a.out.bold(clean(t.ToolID)), short(clean(string(t.Output)), 300))
			}
		}
		if r.Error != nil {
			a.planError("the plan failed:", r.Error)
		}
		fmt.Fprintln(a.err, a.err.dim("plan "+r.PlanID+" took "+tidy(time.Duration(r.ExecutionTimeMs)*time.Millisecond)))
	}, !r.Success)
}

func (a *app) planCheckCommand() *cobra.Command {
	return a.withServer(a.withJSON("print JSON", &cobra.Command{
		Use: "check FILE|-", Short: "Check a plan without running any of it", Args: words(1, 1),
		Long: "Checks ids, tools, arguments, references and order, and prints the order in which the tools would run, or what\n" +
			"is wrong, tool by tool. The exit code is 1 if something is wrong, and 2 if the file is not JSON.",
		RunE: func(c *cobra.Command, args []string) error {
			document, err := a.planDocument(args[0])
			if err != nil {
				return err
			}
			given := map[string]any{"plan": document}
			r, err := own[plantools.Checked](c.Context(), a, node.Options{}, "plan.check", given, "check plans")
			if err != nil {
				return err
			}
			return a.conclude(r, func() {
				for _, f := range r.Ignored {
					fmt.Fprintln(a.err, a.err.amber("warning:"), clean(f.String()))
				}
				if !r.Valid {
					a.planError("the plan is not right:", r.Error)
					return
				}
				fmt.Fprintf(a.out, "%s  %s\n", a.out.green("the plan is right"), clean(strings.Join(r.Order, ", ")))
			}, !r.Valid)
		},
	}))
}

// planError shows what is wrong with a plan: a single error on the same line, several below each other.
func (a *app) planError(what string, e *plan.Error) {
	var details struct {
		Faults []plan.Fault `json:"faults"`
		More   int          `json:"more"`
	}
	_ = strictjson.Unmarshal(e.Details, &details) // an error of another kind has other details
	if len(details.Faults) < 2 {
		fmt.Fprintln(a.err, a.err.red(what), clean(e.Message))
		return
	}
	if e.Code == plan.CodeInvalidPlan || e.Code == plan.CodeCycle {
		what = "the plan is not right:"
	}
	fmt.Fprintln(a.err, a.err.red(what), len(details.Faults)+details.More, "faults")
	for _, f := range details.Faults {
		fmt.Fprintln(a.err, "  "+clean(f.String()))
	}
	if details.More > 0 {
		fmt.Fprintf(a.err, "  and %d more\n", details.More)
	}
}

func (a *app) planShowCommand() *cobra.Command {
	return a.withServer(a.withJSON("print JSON", &cobra.Command{
		Use: "show ID", Short: "Show a plan that ran or runs", Args: words(1, 1),
		ValidArgsFunction: completeIDs(func(ctx context.Context) ([]plan.Record, error) { return a.plans(ctx, nil) },
			func(r plan.Record) (id, about string, ok bool) { return r.ID, r.State, true }),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := kept[plan.Record](c.Context(), a, "plan.show", map[string]string{"plan": args[0]}, "see plans")
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			return a.showPlan(&r)
		},
	}))
}

// showPlan prints a plan for people.
func (a *app) showPlan(r *plan.Record) error {
	a.out.facts("", 8, [][2]string{
		{"plan", r.ID}, {"state", r.State}, {"request", clean(r.RequestID)}, {"caller", clean(r.Caller)},
		{"session", clean(r.Session)},
		{"prompt", short(clean(r.Prompt), 200)}, {"call", clean(r.Call)}, {"made", when(r.Made, time.Now())},
		{"ended", when(r.Ended, time.Now())},
	})
	result := read[plan.Result](tool.Event{Data: r.Result})
	var rows [][]string
	for _, t := range result.ToolResults {
		about := string(t.Output)
		if t.Error != nil {
			about = t.Error.Message
		}
		rows = append(rows, []string{t.ToolID, t.State, strconv.FormatInt(t.ExecutionTimeMs, 10) + " ms", t.Call, about})
	}
	if len(rows) > 0 {
		a.out.table([]string{"TOOL", "STATE", "TOOK", "CALL", "OUTPUT"}, rows)
	}
	return nil
}

func (a *app) plans(ctx context.Context, args any) ([]plan.Record, error) {
	all, err := kept[plantools.Listed](ctx, a, "plan.list", args, "see plans")
	return all.Plans, err
}

func (a *app) planListCommand() *cobra.Command {
	var session, state string
	var most int
	c := &cobra.Command{
		Use: "list", Short: "List plans, newest first",
		RunE: func(c *cobra.Command, _ []string) error {
			if state != "" {
				if err := oneOf("--state", state, plan.States()); err != nil {
					return err
				}
			}
			args := map[string]any{"limit": most}
			for name, value := range map[string]string{"session": session, "state": state} {
				if value != "" {
					args[name] = value
				}
			}
			all, err := a.plans(c.Context(), args)
			if err != nil {
				return err
			}
			head := []string{"PLAN", "STATE", "CALLER", "SESSION", "TOOLS", "MADE", "REQUEST", "ABOUT"}
			return list(a, "plans", all, head, func(r plan.Record) []string {
				done := fmt.Sprintf("%d/%d", r.Counts.Done+r.Counts.Failed+r.Counts.Skipped, r.Counts.Tools)
				return []string{r.ID, r.State, r.Caller, r.Session, done, when(r.Made, time.Now()),
					short(clean(r.RequestID), 40), short(clean(cmp.Or(r.Prompt, r.Narrative)), 60)}
			})
		},
	}
	c.Flags().StringVar(&session, "session", "", "only plans of a session")
	c.Flags().StringVar(&state, "state", "", "only plans that are running, done, failed, lost or cancelled")
	c.Flags().IntVarP(&most, "limit", "n", 100, "list at most this many")
	return a.withServer(a.withJSON("print JSON", c))
}
