package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// A callRequest is what the command line of `call` asks for.
type callRequest struct {
	server
	call    tool.Call
	words   []string
	timeout time.Duration
	events  bool
	async   bool
}

func (a *app) callCommand() *cobra.Command {
	var req callRequest
	c := &cobra.Command{
		Use:   "call NAME [JSON | name=value ... | @FILE | -]",
		Short: "Call a tool and print its result",
		Long: "Calls a tool and prints its result: text as it is, everything else as JSON. What happens meanwhile goes to\n" +
			"stderr.\n\n" +
			"Arguments are a JSON object, or name=value pairs: the tool's schema says whether a value is text or a number.\n" +
			"name:=JSON gives any JSON value, @FILE reads the whole object from a file, and - from stdin.\n\n" + exitHelp,
		Example: "  toolpost call readFile path=README.md\n" +
			"  toolpost call greet name=Ada times=2\n" +
			"  toolpost call greet '{\"name\": \"Ada\"}'\n" +
			"  toolpost call light_torch steps=10 --events",
		Args:              words(1, -1),
		ValidArgsFunction: a.completeTool,
		RunE: work(func(c *cobra.Command, args []string) error {
			req.call.Tool, req.words = args[0], args[1:]
			return a.call(c.Context(), req)
		}),
	}
	f := c.Flags()
	req.flags(c)
	f.StringVar(&req.call.Session, "session", "", "session whose state the call belongs to")
	f.StringVar(&req.call.Key, "key", "", "idempotency key: a call with the same key is made once")
	f.StringVar(&req.call.Lease, "lease", "", "lease token, for tools that ask for one")
	f.StringVar(&req.call.Run, "run", "", "the run of an agent that the call belongs to, for its record")
	f.BoolVar(&req.call.DryRun, "dry-run", false, "only say what the policy decides and what the call would touch; exit code 3: refused")
	f.DurationVar(&req.timeout, "timeout", 0, "give up after this time, such as 5s (default: the tool's own)")
	f.BoolVar(&req.events, "events", false, "print each event as a line of JSON as it comes, the outcome last")
	f.BoolVar(&req.async, "async", false, "run it later, as a job, in a program that serves: print the id of the job (see toolpost jobs)")
	a.jsonFlag(c, "print all events and the outcome as one JSON document")
	c.MarkFlagsMutuallyExclusive("events", "json")
	c.MarkFlagsMutuallyExclusive("async", "events")
	c.MarkFlagsMutuallyExclusive("async", "dry-run")
	return c
}

func (a *app) call(ctx context.Context, req callRequest) error {
	if req.timeout < 0 {
		return tool.Errorf(tool.CodeInvalidInput, "--timeout cannot be negative")
	}
	if req.timeout > 0 {
		ranOut := tool.Errorf(tool.CodeTimeout, "%s took longer than --timeout %v", req.call.Tool, req.timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, req.timeout, ranOut)
		defer cancel()
	}
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

// dryRunExit is the end of a dry run that was shown.
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

func (a *app) invoke(ctx context.Context, req callRequest, out tool.Sink) (*tool.Result, error) {
	b, err := a.open(ctx, req.server)
	if err != nil {
		return nil, err
	}
	defer b.close()
	req.call.Caller = me()
	spec, err := b.Lookup(ctx, me(), req.call.Tool)
	if err != nil {
		if req.url == "" || tool.CodeOf(err) == tool.CodeNotFound { // else the server does not answer
			refused(ctx, b, req)
		}
		return nil, suggest(ctx, b, req.call.Tool, err)
	}
	if req.call.Args, err = arguments(req.words, spec, a.in); err != nil {
		return nil, withInputs(spec, err)
	}
	r, err := b.Invoke(ctx, &req.call, out)
	return r, withInputs(spec, explained(ctx, err))
}

// refused makes a call of a tool that was not found, so that there is a record of it. It is a dry run: should the tool
// have come meanwhile, it does not run with arguments that nobody has read against its schema.
func refused(ctx context.Context, h tool.Handler, req callRequest) {
	call := req.call
	call.DryRun = true
	if args, err := arguments(req.words, &tool.Spec{}, strings.NewReader("{}")); err == nil {
		call.Args = args
	}
	_, _ = h.Invoke(ctx, &call, tool.Discard) // who calls is told that it is not there
}

// explained gives our own --timeout as the reason where it was the reason.
func explained(ctx context.Context, err error) error {
	cause, ok := context.Cause(ctx).(*tool.Error)
	if ok && tool.CodeOf(err) == cause.Code {
		return cause
	}
	return err
}

// suggest adds to a not_found what may have been meant, and which sources could not say what they have.
func suggest(ctx context.Context, c tool.Catalog, name string, err error) error {
	e := *tool.AsError(err)
	if e.Code != tool.CodeNotFound {
		return err
	}
	var names, dead []string
	for s, why := range c.Specs(ctx, me()) {
		switch {
		case s != nil && s.Name != "":
			names = append(append(names, s.Name), s.Aliases...)
		case s != nil && why != nil:
			dead = append(dead, fmt.Sprintf("\n  source %s is unavailable: %s", s.Source, because(why)))
		}
	}
	hint := "; `toolpost tools` lists what there is"
	if near := nearest.Of(name, names); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	e.Message += hint + strings.Join(dead, "")
	return &e
}

// withInputs adds to an invalid_input what the tool takes.
func withInputs(spec *tool.Spec, err error) error {
	if tool.CodeOf(err) != tool.CodeInvalidInput {
		return err
	}
	e := *tool.AsError(err)
	if inputs := inputsOf(spec); len(inputs) > 0 {
		e.Message += "\n" + clean(spec.Name) + " takes:\n" + strings.Join(inputLines(inputs), "\n")
	}
	return &e
}

// An input is one property of a tool's arguments.
type input struct {
	Name, Type, Description string
	Required                bool
}

func inputLines(inputs []input) []string {
	width := 0
	for _, in := range inputs {
		width = max(width, len([]rune(in.Name)))
	}
	var lines []string
	for _, in := range inputs {
		need := "optional"
		if in.Required {
			need = "required"
		}
		line := fmt.Sprintf("  %-*s  %-8s  %s  %s", width, in.Name, in.Type, need, in.Description)
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// because is the reason of an error, for people.
func because(err error) string { return cleanLines(tool.AsError(err).Message) }

// inputsOf reads the properties off a schema, the required ones first, as far as they are plain to see.
func inputsOf(spec *tool.Spec) []input {
	s := readSchema(spec.Input)
	var inputs []input
	for name, p := range s.properties() {
		inputs = append(inputs, input{
			Name: clean(name), Type: clean(strings.Join(p.types(), "|")), Description: clean(p.Description),
			Required: slices.Contains(s.Required, name),
		})
	}
	slices.SortStableFunc(inputs, func(a, b input) int {
		switch {
		case a.Required == b.Required:
			return strings.Compare(a.Name, b.Name)
		case a.Required:
			return -1
		}
		return 1
	})
	return inputs
}
