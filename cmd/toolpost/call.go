package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	approvaltools "toolpost/builtin/approval"
	"toolpost/cmd/toolpost/cache"
	"toolpost/cmd/toolpost/form"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/engine/approval"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// A callRequest is what the command line of `call` asks for.
type callRequest struct {
	call    tool.Call
	words   []string
	timeout time.Duration
	events  bool
	async   bool
	answers string
	job     string // the job whose outcome this is; empty for the call itself
}

func (a *app) callCommand() *cobra.Command {
	var req callRequest
	c := a.withServer(a.withJSON("print all events and the outcome as one JSON document", &cobra.Command{
		Use: "call NAME [JSON | name=value ... | @FILE | -]", SuggestFor: []string{"run", "exec", "invoke"},
		Short: "Call a tool and print its result",
		Long: "Calls a tool and prints its result: text as it is, everything else as JSON. Events go to stderr.\n\n" +
			"Arguments are a JSON object, or name=value pairs: the tool's schema says whether a value is text or a number.\n" +
			"name:=JSON passes a JSON value, name@FILE passes the text of a file. @FILE reads the whole object from a\n" +
			"file, - reads it from stdin.\n\n" +
			"If a tool asks a question, you answer at the terminal. Without a terminal, the question is printed and the\n" +
			"exit code is 6: call again with the same arguments, --answers and --resume. A call that needs an approval\n" +
			"also ends with 6; after the approval, call again with --resume.\n\n" + exitHelp,
		Example: "  toolpost call readFile path=README.md\n" +
			"  toolpost call greet name=Ada times=2\n" +
			"  toolpost call greet '{\"name\": \"Ada\"}'\n" +
			"  toolpost call light_torch steps=10 --events\n" +
			"  toolpost call runCode language=python code@count.py",
		Args:              words(1, -1),
		ValidArgsFunction: a.completeTool,
		RunE: func(c *cobra.Command, args []string) error {
			req.call.Tool, req.words = args[0], args[1:]
			return a.call(c.Context(), req)
		},
	}))
	f := c.Flags()
	f.StringVar(&req.call.Session, "session", "", "session that the call belongs to")
	f.StringVar(&req.call.Key, "key", "",
		"idempotency key: calls with the same key run once; needs a server, PostgreSQL or store.idempotency.durable")
	f.StringVar(&req.call.Lease, "lease", "", "lease token, for tools that need one")
	f.StringVar(&req.call.Run, "run", "", "agent run that the call belongs to; the audit log records it")
	f.StringVar(&req.answers, "answers", "", "answers to the tool's question, as JSON")
	f.StringVar(&req.call.Resume, "resume", "", "id of the question to answer (with --answers), or of the approval")
	f.BoolVar(&req.call.DryRun, "dry-run", false,
		"only report what the policy decides and what the call would touch; exit code 3: refused")
	durationVar(c, &req.timeout, "timeout", "give up after this time, such as 5s (default: the tool's own)")
	f.BoolVar(&req.events, "events", false, "print each event as a line of JSON as it comes, the outcome last")
	f.BoolVar(&req.async, "async", false,
		"run the call as a job in a running toolpost serve, and print its id (see toolpost jobs)")
	c.MarkFlagsMutuallyExclusive("events", "json")
	c.MarkFlagsMutuallyExclusive("async", "events")
	c.MarkFlagsMutuallyExclusive("async", "dry-run")
	c.MarkFlagsMutuallyExclusive("async", "timeout")
	c.MarkFlagsMutuallyExclusive("async", "resume")
	return c
}

func (a *app) call(ctx context.Context, req callRequest) error {
	if req.timeout < 0 {
		return tool.Errorf(tool.CodeInvalidInput, "--timeout cannot be negative")
	}
	if req.answers != "" {
		if req.call.Resume == "" {
			return tool.Errorf(tool.CodeInvalidInput, "--answers needs --resume: the id of the question that they are for")
		}
		req.call.Answers = json.RawMessage(req.answers)
		if err := strictjson.Check(req.call.Answers); err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "--answers is not JSON: %w", err)
		}
	}
	ctx, cancel := within(ctx, req.timeout,
		tool.Errorf(tool.CodeTimeout, "%s took longer than --timeout %v", req.call.Tool, req.timeout))
	defer cancel()
	if req.async {
		return a.start(ctx, req)
	}
	rep := a.reporter(req)
	r, err := a.invoke(ctx, req, rep)
	if shown := rep.finish(r, err); shown != nil || !req.call.DryRun {
		return shown
	}
	return dryRunExit(r)
}

// within adds a --timeout and its reason to ctx; 0 means no timeout.
func within(ctx context.Context, timeout time.Duration, why error) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, why)
}

// dryRunExit returns the exit of a dry run that was shown.
func dryRunExit(r *tool.Result) error {
	var d struct {
		DryRun  bool `json:"dry_run"`
		Allowed bool `json:"allowed"`
	}
	if err := strictjson.Unmarshal(r.Output, &d); err != nil || !d.DryRun {
		return tool.Errorf(tool.CodeProtocol, "the server does not know dry runs: it ran the call")
	}
	if !d.Allowed {
		return exitRefused
	}
	return nil
}

// invoke makes the call, or the call that starts it as a job.
func (a *app) invoke(ctx context.Context, req callRequest, out tool.Sink) (*tool.Result, error) {
	ctx, done := terminal.UntilHangup(ctx)
	defer done()
	b, err := a.open(ctx, node.Options{Lazy: true})
	if err != nil {
		return nil, err
	}
	defer b.close()
	if a.away() {
		b.Handler = cache.Fetching{Remote: b.Handler.(node.Remote)}
	}
	req.call.Caller, req.call.Resume = me(), cache.Expand(req.call.Resume)
	spec, err := b.Lookup(ctx, me(), req.call.Tool)
	if err != nil {
		if a.server.url != "" && tool.CodeOf(err) != tool.CodeNotFound { // the server does not answer
			return nil, err
		}
		return a.callUnknown(ctx, b, req, out)
	}
	if req.call.Args, err = form.Arguments(req.words, spec.Input, a.in); err != nil {
		return nil, withInputs(spec, err)
	}
	if req.async {
		req.call.Args = raw(map[string]json.RawMessage{"tool": raw(req.call.Tool), "arguments": req.call.Args})
		req.call.Tool = startJob
	}
	r, err := a.converse(ctx, b, req, out)
	if req.async {
		err = a.noJobs(ctx, b, startJob, err)
	}
	if err = explained(ctx, err); req.call.Resume == "" { // otherwise the answers are wrong
		err = withInputs(spec, err)
	}
	return r, err
}

// converse makes the call, and puts the tool's questions to the person at the terminal.
func (a *app) converse(ctx context.Context, b *backend, req callRequest, out tool.Sink) (*tool.Result, error) {
	var p *prompter
	plain, ok := out.(*plainReporter)
	for {
		if answersAlways(req.call) {
			above := func(ask func() error) error { return ask() }
			if ok {
				above = plain.Above
			}
			if err := above(func() error { return a.agreeAlways(ctx, b, req.call.Resume) }); err != nil {
				return nil, err
			}
		}
		r, err := b.Invoke(ctx, &req.call, out)
		if err != nil || r.Ask == nil || !ok || r.Ask.Kind == tool.AskApproval && !r.Ask.Awaits.Self {
			return r, err
		}
		r.Ask.Message = a.here(r.Ask.Message)
		if p == nil {
			if p = a.prompter(req); p == nil {
				return r, nil
			}
		}
		call := req.call
		err = plain.Above(func() (err error) {
			call.Answers, err = p.answer(ctx, req.call.Tool, r.Ask)
			return err
		})
		if err != nil {
			return nil, err
		}
		call.ID, call.Resume = "", r.Ask.ID
		req.call = call
	}
}

// answersAlways reports whether a call approves itself for ever, which writes to the config.
func answersAlways(c tool.Call) bool {
	var said approvaltools.DecideArgs
	return approval.IsID(c.Resume) && strictjson.Unmarshal(c.Answers, &said) == nil && said.Approve && said.For == approval.ForAlways
}

// callUnknown calls a tool that was not found. The call records the attempt, and tells an operator which rule hides the
// tool.
func (a *app) callUnknown(ctx context.Context, b *backend, req callRequest, out tool.Sink) (r *tool.Result, err error) {
	if req.call.Args, err = form.Arguments(req.words, nil, a.in); err != nil {
		req.call.Args = raw(strings.Join(req.words, " ")) // text, which no tool takes if it has appeared meanwhile
	}
	if r, err = b.Invoke(ctx, &req.call, out); err != nil {
		return nil, a.suggest(ctx, b, req.call.Tool, err)
	}
	return r, nil
}

// explained names our own --timeout as the reason if it was.
func explained(ctx context.Context, err error) error {
	cause, ok := context.Cause(ctx).(*tool.Error)
	if ok && tool.CodeOf(err) == cause.Code {
		return cause
	}
	return err
}

// suggest adds similar names to a not_found error, or that the command was typed in a folder without a config.
func (a *app) suggest(ctx context.Context, c tool.Catalog, name string, err error) error {
	otherwise := "; `toolpost tools` lists the tools"
	if a.unconfigured() {
		otherwise = "; " + builtInOnly
	}
	return nearest.Tool(ctx, c, me(), name, otherwise, err)
}

// withInputs adds the tool's inputs to an invalid_input error.
func withInputs(spec *tool.Spec, err error) error {
	if tool.CodeOf(err) != tool.CodeInvalidInput {
		return err
	}
	e := *tool.AsError(err)
	if lines := form.InputLines(spec.Input); lines != "" {
		e.Message += "\n" + clean(spec.Name) + " takes:\n" + lines
	}
	return &e
}

// because returns the reason of an error, for people.
func because(err error) string { return cleanLines(tool.AsError(err).Message) }
