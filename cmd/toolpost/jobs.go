package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	jobs "toolpost/engine/job"
	"toolpost/node"
	"toolpost/tool"
)

// startJob is the tool that runs a call as a job.
const startJob = "startJob"

// A job is the form in which programs see a job.
type job struct {
	ID       string       `json:"job"`
	Caller   string       `json:"caller,omitzero"` // only if the jobs of all callers are shown
	Tool     string       `json:"tool"`
	State    string       `json:"state"`
	Stopping bool         `json:"stopping,omitzero"`
	Made     time.Time    `json:"made"`
	Began    time.Time    `json:"began,omitzero"`
	Ended    time.Time    `json:"ended,omitzero"`
	Attempts int          `json:"attempts,omitzero"`
	Result   *tool.Result `json:"result,omitzero"`
	Error    *tool.Error  `json:"error,omitzero"`
}

func (j job) state() string {
	if j.Stopping {
		return "stopping"
	}
	return j.State
}

func (a *app) jobsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "jobs", Short: "Show, follow and cancel calls that run later",
		Long: "A job is a call that runs later, in a program that serves, even if the client that made it is gone.\n" +
			"`toolpost call --async` makes one. It needs a store.",
		Example: "  JOB=$(toolpost call greet name=Ada --async)\n  toolpost jobs wait $JOB\n" +
			"  toolpost jobs list --state running",
	}, a.jobsListCommand(), a.aboutJob("showJob", &cobra.Command{
		Use: "show JOB", Short: "Show a job, and its outcome if it has one",
		Long: "Shows a job: its state, when it was made, began and ended, and its result or why there is none.",
	}), a.aboutJob("cancelJob", &cobra.Command{
		Use: "cancel JOB", Short: "Cancel a job",
		Long: "Cancels a job: a queued one at once, a running one within a moment, whichever program runs it. Exit\n" +
			"code 3: it has already ended.",
	}), a.follow(true, &cobra.Command{
		Use: "watch JOB", Short: "Follow a job to its end",
		Long: "Shows the events of a job, those so far and those to come, and its result when it has ended, as `toolpost\n" +
			"call` would have done, with the same exit code. If the job has to be approved, it waits for\n" +
			"that, too. The job does not end when this command does.",
	}), a.follow(false, &cobra.Command{
		Use: "wait JOB", Short: "Wait for the end of a job and print its result",
		Long: "Waits for the end of a job and prints its result as `toolpost call` would, with the same exit code. It\n" +
			"waits for the approval of the job, too.",
	}))
}

// start runs a call as a job, and prints its id.
func (a *app) start(ctx context.Context, req callRequest) error {
	r, err := a.invoke(ctx, req, tool.Discard)
	if err != nil {
		return err
	}
	var j job
	err = readOutput(startJob, r, &j)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printIndented(r.Output)
	}
	fmt.Fprintln(a.out, clean(j.ID))
	fmt.Fprintln(a.err, a.here(fmt.Sprintf("%s is queued; a program that serves runs it (`toolpost serve`). Follow it with "+
		"`toolpost jobs watch %s`", clean(j.Tool), clean(j.ID))))
	return nil
}

// noJobs distinguishes a job tool that is missing, or hidden from the caller, from a job that was not found.
func (a *app) noJobs(ctx context.Context, b *backend, name string, err error) error {
	if tool.CodeOf(err) != tool.CodeNotFound {
		return err
	}
	if none := a.needStore(); none != nil {
		return none
	}
	return a.missing(ctx, b, name, "use jobs", err)
}

// askJobs calls one of the job tools.
func askJobs[T any](ctx context.Context, a *app, name string, args any, out tool.Sink) (given T, err error) {
	b, err := a.open(ctx, node.Options{Own: true})
	if err != nil {
		return given, err
	}
	defer b.close()
	r, err := b.Invoke(ctx, &tool.Call{Tool: name, Args: raw(args), Caller: me()}, out)
	if err != nil {
		return given, a.noJobs(ctx, b, name, explained(ctx, err))
	}
	err = readOutput(name, r, &given)
	return given, err
}

func (a *app) listJobs(ctx context.Context, args map[string]any) ([]job, error) {
	given, err := askJobs[map[string][]job](ctx, a, "listJobs", args, tool.Discard)
	return given["jobs"], err
}

// completeJob completes the ids of the caller's jobs.
func (a *app) completeJob() cobra.CompletionFunc {
	return completeIDs(func(ctx context.Context) ([]job, error) { return a.listJobs(ctx, map[string]any{}) },
		func(j job) (id, about string, ok bool) { return j.ID, j.Tool + " " + j.State, true })
}

func (a *app) jobsListCommand() *cobra.Command {
	var all bool
	var state string
	var most int
	c := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Long: "Lists your jobs, newest first; operators list those of all callers with --all. A job is forgotten a day\n" +
			"after its end, unless `store.jobs` says otherwise.",
		RunE: func(c *cobra.Command, _ []string) error {
			if most < 1 || most > 1000 {
				return tool.Errorf(tool.CodeInvalidInput, "--limit is from 1 to 1000, not %d", most)
			}
			args := map[string]any{"limit": most}
			if state != "" {
				if err := oneOf("--state", state, jobs.States()); err != nil {
					return err
				}
				args["state"] = state
			}
			if all {
				if err := a.needStore(); err != nil {
					return err
				}
				args["all"] = true
			}
			found, err := a.listJobs(c.Context(), args)
			if err != nil {
				return err
			}
			cells := func(row ...string) []string {
				if !all { // the callers are all the same
					row = slices.Delete(row, 1, 2)
				}
				return row
			}
			return list(a, "jobs", found, cells("JOB", "CALLER", "TOOL", "STATE", "MADE"), func(j job) []string {
				return cells(j.ID, j.Caller, j.Tool, j.state(), when(j.Made, time.Now()))
			})
		},
	}
	c.Flags().StringVar(&state, "state", "", "only those that are queued, running, done, failed, asked, cancelled or lost")
	c.Flags().IntVarP(&most, "limit", "n", 100, "list at most this many")
	c.Flags().BoolVar(&all, "all", false, "list the jobs of all callers")
	return a.withServer(a.withJSON("print JSON", c))
}

// aboutJob makes c a command that calls a tool for one job: one of the caller's, or with --all any.
func (a *app) aboutJob(name string, c *cobra.Command) *cobra.Command {
	var all bool
	c.Args, c.ValidArgsFunction = words(1, 1), a.completeJob()
	c.Flags().BoolVar(&all, "all", false, "also a job of another caller")
	c.RunE = func(c *cobra.Command, words []string) error {
		args := map[string]any{"job": words[0]}
		if all {
			args["all"] = true
		}
		j, err := askJobs[job](c.Context(), a, name, args, tool.Discard)
		if err != nil {
			return err
		}
		return a.conclude(j, func() { a.printJob(j) }, false)
	}
	return a.withServer(a.withJSON("print the job as JSON", c))
}

func (a *app) printJob(j job) {
	now := time.Now()
	if j.State == jobs.Asked { // it goes on
		j.Ended = time.Time{}
	}
	known := [][2]string{
		{"job", clean(j.ID)}, {"caller", clean(j.Caller)}, {"tool", clean(j.Tool)}, {"state", clean(j.state())},
		{"made", when(j.Made, now)}, {"began", when(j.Began, now)}, {"ended", when(j.Ended, now)},
	}
	if j.Attempts > 1 {
		known = append(known, [2]string{"attempts", strconv.Itoa(j.Attempts)})
	}
	switch {
	case j.Error != nil:
		known = append(known, [2]string{"error", because(j.Error)})
	case j.Result == nil:
	case j.Result.Ask != nil:
		known = append(known, [2]string{"asks", a.jobAsks(j)})
	case !j.Result.OK:
		known = append(known, [2]string{"failure", failureOf(j.Result)})
	default:
		known = append(known, [2]string{"result", cleanLines(string(j.Result.Output))})
	}
	a.out.facts("", 9, known)
}

// jobAsks returns the question of a job in one line, and how to answer it.
func (a *app) jobAsks(j job) string {
	q := j.Result.Ask
	if q.Kind == tool.AskApproval {
		return approvalWords(q) + "; " + a.decide(j)
	}
	return cleanLines(q.Message) + "; " + a.answerJob(j.ID)
}

// decide describes how an approval of a job is given or denied, and whether its maker can.
func (a *app) decide(j job) string {
	q, who := j.Result.Ask, ""
	if q.Awaits != nil && !q.Awaits.Self {
		who = "an approver other than its caller decides, with "
	}
	return who + a.here(fmt.Sprintf("`toolpost approve %s` or `toolpost deny %[1]s`", clean(q.ID)))
}

// answerJob describes how the question of a job is answered.
func (a *app) answerJob(id string) string {
	return a.here(fmt.Sprintf("answer it with `toolpost call answerJob job=%s answers:=JSON`", clean(id)))
}

// follow makes c a command that waits for the end of a job, and with watch shows its events.
func (a *app) follow(watch bool, c *cobra.Command) *cobra.Command {
	req := callRequest{call: tool.Call{Tool: "job"}}
	a.withServer(a.withJSON("print all events and the outcome as one JSON document", c))
	c.Args, c.ValidArgsFunction = words(1, 1), a.completeJob()
	durationVar(c, &req.timeout, "timeout", "give up waiting after this time, such as 5m; the job goes on")
	c.Flags().BoolVar(&req.events, "events", false, "print each event as a line of JSON as it comes, the outcome last")
	c.MarkFlagsMutuallyExclusive("events", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, cancel := within(c.Context(), req.timeout,
			tool.Errorf(tool.CodeTimeout, "the job had not ended after --timeout %v; it goes on", req.timeout))
		defer cancel()
		req.job = args[0]
		rep := a.reporter(req)
		events := &counter{Sink: tool.Discard}
		if watch {
			events.Sink = rep
		}
		return rep.finish(a.outcomeOf(ctx, args[0], events))
	}
	return c
}

// outcomeOf follows a job to its end. A job that waits for approval goes on by itself after the decision, so it is followed
// past that question; any other question is an outcome.
func (a *app) outcomeOf(ctx context.Context, id string, events *counter) (*tool.Result, error) {
	for asked := false; ; {
		j, err := askJobs[job](ctx, a, "watchJob", map[string]any{"job": id, "after": events.seen, "asked": asked}, events)
		switch {
		case err != nil:
			return nil, err
		case j.Error != nil:
			return nil, j.Error
		case asked && j.Result == nil: // it goes on
			asked = false
			continue
		case j.Result == nil:
			return nil, tool.Errorf(tool.CodeProtocol, "job %s has ended without an outcome", j.ID)
		case j.Result.Ask == nil || j.Result.Ask.Kind != tool.AskApproval:
			return j.Result, nil
		}
		asked = true
		fmt.Fprintf(a.err, "%s %s\nThe job goes on when that is decided: %s\n", a.err.amber("waiting:"),
			approvalWords(j.Result.Ask), a.decide(j))
	}
}

// A counter forwards the events of a job, and counts them.
type counter struct {
	tool.Sink
	seen int
}

// Emit implements tool.Sink.
func (c *counter) Emit(ev tool.Event) error {
	c.seen++
	return c.Sink.Emit(ev)
}
