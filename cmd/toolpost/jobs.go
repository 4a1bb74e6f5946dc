package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The tools for jobs.
const (
	startJob  = "startJob"
	showJob   = "showJob"
	listJobs  = "listJobs"
	cancelJob = "cancelJob"
	watchJob  = "watchJob"
)

// A job is one as programs are shown it.
type job struct {
	ID       string          `json:"job"`
	Caller   string          `json:"caller,omitzero"` // only where those of all callers are shown
	Tool     string          `json:"tool"`
	State    string          `json:"state"`
	Stopping bool            `json:"stopping,omitzero"`
	Made     time.Time       `json:"made"`
	Began    time.Time       `json:"began,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	Attempts int             `json:"attempts,omitzero"`
	Result   json.RawMessage `json:"result,omitzero"`
	Error    json.RawMessage `json:"error,omitzero"`
}

func (a *app) jobsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "jobs", Short: "Look at, follow and cancel calls that run later",
		Long: "A job is a call that runs later, in a program that serves, whatever becomes of the one who made it. `toolpost call\n" +
			"--async` makes one. It needs a store.",
		Example: "  JOB=$(toolpost call greet name=Ada --async)\n  toolpost jobs wait $JOB\n  toolpost jobs list --state running",
	}
	onlyCommands(c)
	c.AddCommand(a.jobsListCommand(), a.jobsShowCommand(), a.jobsCancelCommand(), a.jobsWatchCommand(), a.jobsWaitCommand())
	return c
}

// start makes a job of a call, and prints its id.
func (a *app) start(ctx context.Context, req callRequest) error {
	b, err := a.open(ctx, req.server)
	if err != nil {
		return err
	}
	defer b.close()
	spec, err := b.Lookup(ctx, me(), req.call.Tool)
	if err != nil {
		return suggest(ctx, b, req.call.Tool, err)
	}
	args, err := arguments(req.words, spec, a.in)
	if err != nil {
		return withInputs(spec, err)
	}
	call := req.call
	call.Tool, call.Args, call.Caller = startJob, raw(map[string]json.RawMessage{"tool": raw(req.call.Tool), "arguments": args}), me()
	r, err := b.Invoke(ctx, &call, tool.Discard)
	if err != nil {
		return withInputs(spec, noJobs(ctx, b, explained(ctx, err)))
	}
	j, err := readJob(r)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printIndented(r.Output)
	}
	fmt.Fprintln(a.out, clean(j.ID))
	fmt.Fprintf(a.err, "%s is queued; a program that serves runs it (`toolpost serve`). Follow it with `toolpost jobs watch %s`\n", clean(j.Tool), clean(j.ID))
	return nil
}

// noJobs tells a tool for jobs that is not there from what it did not find.
func noJobs(ctx context.Context, c tool.Catalog, err error) error {
	if tool.CodeOf(err) != tool.CodeNotFound {
		return err
	}
	if _, missing := c.Lookup(ctx, me(), startJob); missing != nil {
		return tool.Errorf(tool.CodeInvalidInput, "there are no jobs here: they need a store, which every config has that does not say `store: {url: none}`, and a policy that allows the tool %s; `toolpost init` writes a config", startJob)
	}
	return err
}

func readJob(r *tool.Result) (j job, err error) {
	if !r.OK {
		return j, tool.Errorf(tool.CodeToolError, "%s", failureOf(r))
	}
	if err := strictjson.Unmarshal(r.Output, &j); err != nil {
		return j, tool.Errorf(tool.CodeProtocol, "what came back is no job: %w", err)
	}
	return j, nil
}

// ask calls one of the tools for jobs.
func (a *app) ask(ctx context.Context, s server, name string, args any, out tool.Sink) (*tool.Result, error) {
	b, err := a.openAt(ctx, s, node.Options{Own: true})
	if err != nil {
		return nil, err
	}
	defer b.close()
	r, err := b.Invoke(ctx, &tool.Call{Tool: name, Args: raw(args), Caller: me()}, out)
	return r, noJobs(ctx, b, err)
}

func (a *app) jobsListCommand() *cobra.Command {
	var s server
	var all bool
	args := map[string]any{}
	var state string
	var most int
	c := &cobra.Command{
		Use: "list", Short: "List jobs, the newest first", Args: words(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Lists your jobs, the newest first; --all lists those of all callers, for who runs Toolpost. A job is\n" +
			"forgotten a day after its end.",
	}
	s.flags(c)
	c.Flags().StringVar(&state, "state", "", "only those that are queued, running, done, failed, asked, cancelled or lost")
	c.Flags().IntVarP(&most, "limit", "n", 100, "at most so many")
	c.Flags().BoolVar(&all, "all", false, "those of all callers")
	a.jsonFlag(c, "print JSON")
	c.RunE = work(func(c *cobra.Command, _ []string) error {
		if most < 1 || most > 1000 {
			return tool.Errorf(tool.CodeInvalidInput, "--limit is from 1 to 1000, not %d", most)
		}
		if all {
			if err := a.needStore(s); err != nil {
				return err
			}
			args["all"] = true
		}
		if args["limit"] = most; state != "" {
			args["state"] = state
		}
		list, err := a.listJobs(c.Context(), s, args)
		if err != nil {
			return err
		}
		return a.showJobs(list, all)
	})
	return c
}

func (a *app) listJobs(ctx context.Context, s server, args map[string]any) ([]job, error) {
	r, err := a.ask(ctx, s, listJobs, args, tool.Discard)
	if err != nil {
		return nil, err
	}
	var list struct {
		Jobs []job `json:"jobs"`
	}
	if err := strictjson.Unmarshal(r.Output, &list); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "what came back is no list of jobs: %w", err)
	}
	return list.Jobs, nil
}

func (a *app) showJobs(jobs []job, callers bool) error {
	switch {
	case a.json:
		return a.printJSON(map[string]any{"jobs": jobs})
	case len(jobs) == 0:
		fmt.Fprintln(a.err, "no jobs")
		return nil
	}
	head := []string{"JOB", "TOOL", "STATE", "MADE"}
	if callers {
		head = []string{"JOB", "CALLER", "TOOL", "STATE", "MADE"}
	}
	var rows [][]string
	now := time.Now()
	for _, j := range jobs {
		row := []string{clean(j.ID), clean(j.Tool), stateOf(j), when(j.Made, now)}
		if callers {
			row = append([]string{row[0], clean(j.Caller)}, row[1:]...)
		}
		rows = append(rows, row)
	}
	a.out.table(head, rows)
	return nil
}

func stateOf(j job) string {
	if j.Stopping {
		return "stopping"
	}
	return clean(j.State)
}

// aboutJob makes c a command about one job, by a tool: of the caller, or with --all of any.
func (a *app) aboutJob(c *cobra.Command, name string) *cobra.Command {
	var s server
	var all bool
	s.flags(c)
	c.Args, c.ValidArgsFunction = words(1, 1), a.completeJob
	c.Flags().BoolVar(&all, "all", false, "also a job of another caller")
	a.jsonFlag(c, "print the job as JSON")
	c.RunE = work(func(c *cobra.Command, words []string) error {
		args := map[string]any{"job": words[0]}
		if all {
			args["all"] = true
		}
		r, err := a.ask(c.Context(), s, name, args, tool.Discard)
		if err != nil {
			return err
		}
		j, err := readJob(r)
		if err != nil {
			return err
		}
		return a.printJob(j)
	})
	return c
}

func (a *app) jobsShowCommand() *cobra.Command {
	return a.aboutJob(&cobra.Command{
		Use: "show JOB", Short: "Show a job, and its outcome where it has one",
		Long: "Shows a job: its state, when it was made, begun and ended, and its result or why there is none.",
	}, showJob)
}

func (a *app) jobsCancelCommand() *cobra.Command {
	return a.aboutJob(&cobra.Command{
		Use: "cancel JOB", Short: "Cancel a job",
		Long: "Cancels a job: one that waits at once, one that runs within a moment, in whatever program it runs. Exit code 3: it has\n" +
			"ended otherwise.",
	}, cancelJob)
}

func (a *app) printJob(j job) error {
	if a.json {
		return a.printJSON(j)
	}
	now := time.Now()
	rows := [][2]string{{"job", clean(j.ID)}, {"caller", clean(j.Caller)}, {"tool", clean(j.Tool)}, {"state", stateOf(j)}, {"made", when(j.Made, now)}}
	if !j.Began.IsZero() {
		rows = append(rows, [2]string{"began", when(j.Began, now)})
	}
	if !j.Ended.IsZero() {
		rows = append(rows, [2]string{"ended", when(j.Ended, now)})
	}
	if j.Attempts > 1 {
		rows = append(rows, [2]string{"attempts", strconv.Itoa(j.Attempts)})
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(a.out, "%-9s %s\n", row[0], row[1])
		}
	}
	r, err := j.outcome()
	switch {
	case err != nil:
		fmt.Fprintf(a.out, "%-9s %s\n", "error", because(err))
	case r == nil:
	case !r.OK:
		fmt.Fprintf(a.out, "%-9s %s\n", "failure", failureOf(r))
	default:
		fmt.Fprintf(a.out, "%-9s %s\n", "result", cleanLines(string(r.Output)))
	}
	return nil
}

// outcome takes the outcome of a job apart; neither: it has none yet.
func (j job) outcome() (*tool.Result, error) {
	var e *tool.Error
	var r *tool.Result
	if len(j.Error) > 0 {
		if err := strictjson.Unmarshal(j.Error, &e); err != nil {
			return nil, tool.Errorf(tool.CodeProtocol, "the error of the job cannot be read: %w", err)
		}
		return nil, e
	}
	if len(j.Result) > 0 {
		if err := strictjson.Unmarshal(j.Result, &r); err != nil {
			return nil, tool.Errorf(tool.CodeProtocol, "the result of the job cannot be read: %w", err)
		}
	}
	return r, nil
}

func (a *app) jobsWatchCommand() *cobra.Command {
	return a.follow(&cobra.Command{
		Use: "watch JOB", Short: "Follow a job to its end",
		Long: "Shows the events of a job, those so far and those to come, and its result when it has ended, as `toolpost call` would\n" +
			"have done, with the same exit code. The job does not end when this command does.",
	}, func(s tool.Sink) tool.Sink { return s })
}

func (a *app) jobsWaitCommand() *cobra.Command {
	return a.follow(&cobra.Command{
		Use: "wait JOB", Short: "Wait for the end of a job and print its result",
		Long: "Waits for the end of a job and prints its result as `toolpost call` would have done, with the same exit code.",
	}, func(tool.Sink) tool.Sink { return tool.Discard })
}

// follow makes c a command that waits for the end of a job.
func (a *app) follow(c *cobra.Command, events func(tool.Sink) tool.Sink) *cobra.Command {
	var req callRequest
	req.flags(c)
	c.Args, c.ValidArgsFunction = words(1, 1), a.completeJob
	c.Flags().DurationVar(&req.timeout, "timeout", 0, "give up waiting after this time, such as 5m; the job goes on")
	c.Flags().BoolVar(&req.events, "events", false, "print each event as a line of JSON as it comes, the outcome last")
	a.jsonFlag(c, "print all events and the outcome as one JSON document")
	c.MarkFlagsMutuallyExclusive("events", "json")
	c.RunE = work(func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		if req.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, req.timeout, tool.Errorf(tool.CodeTimeout, "the job had not ended after --timeout %v; it goes on", req.timeout))
			defer cancel()
		}
		req.call.Tool = "job"
		rep := a.reporter(req)
		return rep.finish(a.outcomeOf(ctx, req.server, args[0], events(rep)))
	})
	return c
}

func (a *app) outcomeOf(ctx context.Context, s server, id string, out tool.Sink) (*tool.Result, error) {
	r, err := a.ask(ctx, s, watchJob, map[string]string{"job": id}, out)
	if err != nil {
		return nil, explained(ctx, err)
	}
	j, err := readJob(r)
	if err != nil {
		return nil, err
	}
	r, err = j.outcome()
	if r == nil && err == nil {
		err = tool.Errorf(tool.CodeProtocol, "job %s has ended without an outcome", j.ID)
	}
	return r, err
}

// completeJob gives the ids of the caller's jobs.
func (a *app) completeJob(c *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
	defer cancel()
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := a.listJobs(ctx, serverFlags(c), map[string]any{}) // nothing to complete with is no error
	for _, j := range all {
		ids = append(ids, cobra.CompletionWithDesc(clean(j.ID), clean(j.Tool+" "+j.State)))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
