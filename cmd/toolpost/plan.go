package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	plantools "toolpost/builtin/plan"
	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func (a *app) planCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "plan", Short: "Run plans: graphs of calls",
		Long: "A plan is a graph of calls, as JSON: the output of one tool can be the input of the next. The plan is\n" +
			"checked before anything runs. Each of its calls is decided, confined and recorded like any other call.",
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
	c := takes[plantools.RunArgs](a, "plan --planner --prompt", "print the execution result as JSON", &cobra.Command{
		Use: "run FILE|-", Short: "Run a plan",
		Long: "Runs a plan from a file, or from stdin, and shows its tools as they run. Exit code 1: the plan is\n" +
			"invalid, or a tool that it needs failed; 2: the file is not JSON.",
	}, func(ctx context.Context, args map[string]any) error {
		call.Args = raw(args)
		return a.runPlan(ctx, call)
	})
	c.Flags().StringVar(&call.Session, "session", "", "session whose state the tools see and patch")
	c.Flags().StringVar(&call.Run, "run", "", "agent run that the calls belong to, for the record")
	return a.withPlan(c)
}

// withPlan makes c read its plan from a file.
func (a *app) withPlan(c *cobra.Command) *cobra.Command {
	return first(c, func(_ *cobra.Command, words []string) ([]string, error) {
		document, err := a.planDocument(words[0])
		return []string{string(document)}, err
	})
}

func (a *app) runPlan(ctx context.Context, call tool.Call) error {
	ctx, done := terminal.UntilHangup(ctx)
	defer done()
	run := own{plantools.Run, "run plans", sources}
	b, err := run.open(ctx, a)
	if err != nil {
		return err
	}
	defer b.close()
	view := newPlanView(a.err)
	doc, err := use[json.RawMessage](ctx, a, b, run, call, view)
	view.end()
	if err != nil {
		return err
	}
	return conclude(a, run, doc, func(r plan.Result) { a.showResult(&r, view) },
		func(r plan.Result) bool { return !r.Success })
}

// showResult prints the outcome of a plan.
func (a *app) showResult(r *plan.Result, view *planView) {
	if r.Error != nil && (r.Error.Code == plan.CodeInvalidPlan || r.Error.Code == plan.CodeCycle) { // it did not run, and is not kept
		a.planError("the plan is not right:", r.Error)
		return
	}
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
	fmt.Fprintln(a.err, a.err.dim("plan "+r.PlanID+" took "+format.Tidy(time.Duration(r.ExecutionTimeMs)*time.Millisecond)))
}

func (a *app) planCheckCommand() *cobra.Command {
	return a.withPlan(over[plantools.CheckArgs](a, own{"plan.check", "check plans", sources}, "plan", &cobra.Command{
		Use: "check FILE|-", Short: "Check a plan without running any of it",
		Long: "Checks ids, tools, arguments, references and order, and prints the order of the tools, or the errors of\n" +
			"each tool. Exit code 1: the plan is invalid; 2: the file is not JSON.",
	}, func(r plantools.Checked) {
		for _, f := range r.Ignored {
			fmt.Fprintln(a.err, a.err.amber("warning:"), clean(f.String()))
		}
		if !r.Valid {
			a.planError("the plan is not right:", r.Error)
			return
		}
		fmt.Fprintf(a.out, "%s  %s\n", a.out.green("the plan is right"), clean(strings.Join(r.Order, ", ")))
		for _, f := range r.Waits {
			fmt.Fprintf(a.err, "note: tool %q %s\n", clean(f.Tool), clean(f.Problem))
		}
	}, func(r plantools.Checked) bool { return !r.Valid }))
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
	fmt.Fprintln(a.err, a.err.red(what), len(details.Faults)+details.More, "faults")
	for _, f := range details.Faults {
		fmt.Fprintln(a.err, "  "+clean(f.String()))
	}
	if details.More > 0 {
		fmt.Fprintf(a.err, "  and %d more\n", details.More)
	}
}

// plans is one of the tools for the plans that are kept.
func plans(name string) own { return own{name, "see plans", store} }

func (a *app) planShowCommand() *cobra.Command {
	return over[plantools.ShowArgs](a, plans("plan.show"), "plan", &cobra.Command{
		Use: "show ID", Short: "Show a plan that is running or has run",
		ValidArgsFunction: a.completeFrom(plans("plan.list"), "planId", "state", ""),
	}, func(r plan.Record) {
		a.out.facts("", 8, [][2]string{
			{"plan", r.ID}, {"title", clean(r.Title)}, {"state", r.State}, {"request", clean(r.RequestID)}, {"caller", clean(r.Caller)},
			{"session", clean(r.Session)},
			{"prompt", short(clean(r.Prompt), 200)}, {"call", clean(r.Call)}, {"made", format.When(r.Made, time.Now())},
			{"ended", format.When(r.Ended, time.Now())},
		})
		result := read[plan.Result](tool.Event{Data: r.Result})
		if len(result.ToolResults) == 0 {
			return
		}
		columns("tool=toolId state took call output", cells[plan.ToolResult]{
			"took": func(t plan.ToolResult) string { return count(t.ExecutionTimeMs) + " ms" },
			"output": func(t plan.ToolResult) string {
				if t.Error != nil {
					return t.Error.Message
				}
				return string(t.Output)
			},
		}).print(a, "tools", result.ToolResults)
	})
}

func (a *app) planListCommand() *cobra.Command {
	return over[plantools.ListArgs](a, plans("plan.list"), "--session --status=state --limit,n:100", &cobra.Command{
		Use: "list", Short: "List plans, newest first",
	}, func(l plantools.Listed) {
		columns("plan=planId state caller session tools made request about", cells[plan.Record]{
			"tools": func(r plan.Record) string {
				return fmt.Sprintf("%d/%d", r.Counts.Done+r.Counts.Failed+r.Counts.Skipped, r.Counts.Tools)
			},
			"request": func(r plan.Record) string { return short(clean(r.RequestID), 40) },
			"about":   func(r plan.Record) string { return short(clean(cmp.Or(r.Title, r.Prompt, r.Narrative)), 60) },
		}).print(a, "plans", l.Plans)
	})
}
