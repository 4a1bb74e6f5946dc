package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	jobtools "toolpost/builtin/job"
	"toolpost/cmd/toolpost/format"
	jobs "toolpost/engine/job"
	"toolpost/tool"
)

// jobTool is one of the tools for jobs.
func jobTool(name string) own { return own{name, "use jobs", store} }

// A job is the form in which programs see a job.
type job struct {
	jobs.Job
	Result *tool.Result `json:"result,omitzero"`
	Error  *tool.Error  `json:"error,omitzero"`
}

func (j job) state() string {
	if j.Stop {
		return "stopping"
	}
	return j.State
}

func (a *app) jobsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "jobs", Short: "Show, follow and cancel calls that run in the background",
		Long: "A job is a call that a server (`toolpost serve`) runs in the background, even if its client is gone.\n" +
			"`toolpost call --async` creates a job. Jobs need a store.",
		Example: "  JOB=$(toolpost call greet name=Ada --async)\n  toolpost jobs wait $JOB\n" +
			"  toolpost jobs list --status running",
	}, over[jobtools.ListArgs](a, jobTool("listJobs"), "--status=state --limit,n:100 --all", &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Long: "Lists your jobs, newest first; operators (the owner and the user of the command line) list the jobs of\n" +
			"all callers with --all. A job is forgotten a day after its end, unless `store.jobs` says otherwise.",
	}, func(l map[string][]job) {
		names := "job caller tool state made"
		if !slices.ContainsFunc(l["jobs"], func(j job) bool { return j.Caller != "" }) { // they are all yours
			names = "job tool state made"
		}
		columns(names, cells[job]{"state": job.state}).print(a, "jobs", l["jobs"])
	}), a.aboutJob("showJob", &cobra.Command{
		Use: "show JOB", Short: "Show a job, and its outcome if it has one",
		Long: "Shows a job: its state, its times, and its result or error.",
	}), a.aboutJob("cancelJob", &cobra.Command{
		Use: "cancel JOB", Short: "Cancel a job",
		Long: "Cancels a job. A queued job ends at once, and a running job within a moment, whichever server runs it.\n" +
			"Exit code 3: the job has already ended.",
	}), a.follow(true, &cobra.Command{
		Use: "watch JOB", Short: "Follow a job to its end",
		Long: "Prints the events of a job, past and new, then its result, like `toolpost call`, with the same exit\n" +
			"code. If the job needs an approval, the command also waits for the approval. Stopping the command does\n" +
			"not stop the job.",
	}), a.follow(false, &cobra.Command{
		Use: "wait JOB", Short: "Wait for the end of a job and print its result",
		Long: "Waits for the end of a job, then prints only its result, like `toolpost call`, with the same exit code.\n" +
			"If the job needs an approval, the command also waits for the approval.",
	}))
}

// start runs a call as a job, and prints its id.
func (a *app) start(ctx context.Context, req callRequest) error {
	r, err := a.invoke(ctx, req, tool.Discard)
	if err != nil {
		return err
	}
	return conclude(a, jobTool(startJob), r.Output, func(j job) {
		fmt.Fprintln(a.out, clean(j.ID))
		fmt.Fprintln(a.err, a.here(fmt.Sprintf("%s is queued; `toolpost serve` runs it. Follow it with "+
			"`toolpost jobs watch %s`", clean(j.Tool), clean(j.ID))))
	})
}

// startJob is the tool that runs a call as a job.
const startJob = "startJob"

// noJobs distinguishes a tool for jobs that is missing, or hidden from the caller, from a job that was not found.
func (a *app) noJobs(ctx context.Context, b *backend, name string, err error) error {
	if tool.CodeOf(err) != tool.CodeNotFound {
		return err
	}
	if none := a.needStore(); none != nil {
		return none
	}
	return a.missing(ctx, b, name, "use jobs", err)
}

// completeJob completes the ids of the caller's jobs.
func (a *app) completeJob() cobra.CompletionFunc {
	return a.completeFrom(jobTool("listJobs"), "job", "tool state", "")
}

// aboutJob makes c a command that calls a tool for one job: one of the caller's, or with --all any.
func (a *app) aboutJob(name string, c *cobra.Command) *cobra.Command {
	c.ValidArgsFunction = a.completeJob()
	return over[jobtools.Args](a, jobTool(name), "job --all", c, a.printJob)
}

func (a *app) printJob(j job) {
	now := time.Now()
	if j.State == jobs.Asked { // it goes on
		j.Ended = time.Time{}
	}
	known := [][2]string{
		{"job", clean(j.ID)}, {"caller", clean(j.Caller)}, {"tool", clean(j.Tool)}, {"state", clean(j.state())},
		{"made", format.When(j.Made, now)}, {"began", format.When(j.Began, now)}, {"ended", format.When(j.Ended, now)},
	}
	if j.Attempts > 1 {
		known = append(known, [2]string{"attempts", strconv.Itoa(j.Attempts)})
	}
	switch {
	case j.Waiting != "":
		known = append(known, [2]string{"why", clean(j.Waiting)})
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
		events := tool.Discard
		if watch {
			events = rep
		}
		return rep.finish(a.outcomeOf(ctx, args[0], events))
	}
	return c
}

// outcomeOf follows a job to its end. A job that waits for approval goes on by itself after the decision, so it is followed
// past that question; any other question is an outcome.
func (a *app) outcomeOf(ctx context.Context, id string, events tool.Sink) (*tool.Result, error) {
	watch := jobTool("watchJob")
	b, err := watch.open(ctx, a)
	if err != nil {
		return nil, err
	}
	defer b.close()
	show := tool.Call{Args: raw(map[string]any{"job": id})}
	if j, err := use[job](ctx, a, b, jobTool("showJob"), show, tool.Discard); err == nil && j.State == jobs.Queued && a.server.url == "" {
		a.note("no server of this config runs here; the job begins when one of this store does: " + a.here("`toolpost serve`"))
	}
	seen := 0
	counted := tool.SinkFunc(func(ev tool.Event) error {
		seen++
		return events.Emit(ev)
	})
	for asked := false; ; {
		call := tool.Call{Args: raw(map[string]any{"job": id, "after": seen, "asked": asked})}
		j, err := use[job](ctx, a, b, watch, call, counted)
		switch {
		case context.Cause(ctx) != nil && tool.CodeOf(err) == tool.CodeCancelled: // Ctrl-C ends this command alone
			return nil, tool.Errorf(tool.CodeCancelled, "no longer waiting; the job goes on: `toolpost jobs show %s` shows it, and "+
				"`toolpost jobs cancel %[1]s` cancels it", clean(id))
		case err != nil:
			return nil, explained(ctx, err)
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
