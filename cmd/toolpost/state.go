package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	statetools "toolpost/builtin/state"
	"toolpost/engine/session"
	"toolpost/node"
	"toolpost/tool"
)

// A stateRequest names the session that a command looks at, and its caller.
type stateRequest struct {
	*app
	tools   *backend // the target of the request
	caller  string   // empty for the current caller
	session string
}

func (a *app) stateCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "state", Short: "Show and change the state of sessions",
		Long: "A session has a document that its calls read and patch. Each change makes a new version. A session belongs\n" +
			"to a caller: two callers never share one, even if they choose the same name. On the command line the\n" +
			"caller is local.",
		Example: "  toolpost state get work\n  toolpost state patch work '{\"user\": {\"name\": \"Ada\"}}' --if-version 3\n" +
			"  toolpost state watch work",
	}, a.stateGetCommand(), a.statePatchCommand(), a.stateResetCommand(), a.stateWatchCommand())
}

// about makes c a command for one session.
func (a *app) about(c *cobra.Command, run func(context.Context, stateRequest, []string) error) *cobra.Command {
	q := stateRequest{app: a}
	c.Flags().StringVar(&q.caller, "caller", "", "the session's caller (default: you)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if q.session = args[0]; q.session == "" || c.Flags().Changed("caller") && q.caller == "" {
			return tool.Errorf(tool.CodeInvalidInput, "a session and its caller have names; one of them is empty")
		}
		if q.tools, err = a.openKept(c.Context(), node.Options{Own: true}); err != nil {
			return err
		}
		defer q.tools.close()
		return run(c.Context(), q, args[1:])
	}
	return a.withServer(c)
}

// call calls one of the session tools.
func (q stateRequest) call(ctx context.Context, call tool.Call, args map[string]any, does string, into any) error {
	if args["session"] = q.session; q.caller != "" {
		args["caller"] = q.caller
	}
	call.Args = raw(args)
	return q.callOwn(ctx, q.tools, call, does, into)
}

const seesSessions = "see the state of sessions"

// get returns the newest version of the session, or the one that the arguments name.
func (q stateRequest) get(ctx context.Context, args map[string]any) (st statetools.State, err error) {
	err = q.call(ctx, tool.Call{Tool: "state.get"}, args, seesSessions, &st)
	return st, err
}

func (a *app) stateGetCommand() *cobra.Command {
	var version int64
	c := a.withJSON("print the document with its version and time as JSON", &cobra.Command{
		Use: "get SESSION", Short: "Print the state of a session", Args: words(1, 1),
		Long: "Prints the document of a session; its version and when it was changed go to stderr. A new session is {},\n" +
			"at version 0. The last 100 versions can be printed.",
	})
	c.Flags().Int64Var(&version, "version", 0, "print an earlier version (default: the newest)")
	return a.about(c, func(ctx context.Context, q stateRequest, _ []string) error {
		args := map[string]any{}
		if c.Flags().Changed("version") {
			args["version"] = version
		}
		st, err := q.get(ctx, args)
		switch {
		case err != nil:
			return err
		case q.json:
			return q.printJSON(st)
		}
		if err := q.printIndented(st.State.State); err != nil {
			return err
		}
		fmt.Fprintln(q.err, describe(st.State, time.Now()))
		return nil
	})
}

// describe describes in a few words which version a state is.
func describe(st session.State, now time.Time) string {
	text := fmt.Sprintf("version %d", st.Version)
	switch {
	case st.Version == 0:
		text += ": nobody had changed it"
	case !st.Changed.IsZero():
		text += ", changed " + when(st.Changed, now)
	}
	return text
}

// when writes a time for programs and, beside it, for people; the zero time is empty.
func when(t, now time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	switch d := t.Sub(now); {
	case t.IsZero():
		return ""
	case d > 0:
		return text + " (in " + roughly(d) + ")"
	default:
		return text + " (" + roughly(-d) + " ago)"
	}
}

// roughly writes a duration in its largest unit.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

func (a *app) statePatchCommand() *cobra.Command {
	var seen int64
	c := a.withJSON("print the new version as JSON", &cobra.Command{
		Use: "patch SESSION {JSON | name=value ... | @FILE | -}", Short: "Merge a patch into the state of a session",
		Args: words(2, -1), DisableFlagsInUseLine: true,
		Long: "Merges a JSON object into the document of a session: objects merge key by key at every depth, everything\n" +
			"else replaces, null removes. The patch is written as the arguments of `toolpost call` are; the value of\n" +
			"name=value is text. With --if-version it is only merged if the session has not changed since that\n" +
			"version; exit code 3: it has. Patching is a call of the tool state.patch: the policy decides about\n" +
			"it, and it is on record.",
	})
	c.Flags().Int64Var(&seen, "if-version", 0,
		"merge only if the session is still at this version; 0: unchanged so far (default: merge anyway)")
	return a.about(c, func(ctx context.Context, q stateRequest, args []string) error {
		if seen < 0 {
			return tool.Errorf(tool.CodeInvalidInput, "--if-version cannot be negative")
		}
		patch, err := arguments(args, &tool.Spec{}, q.in)
		if err != nil {
			return err
		}
		change := map[string]any{"patch": patch}
		if c.Flags().Changed("if-version") {
			change["if_version"] = seen
		}
		to, err := q.change(ctx, "state.patch", change)
		if err != nil {
			return err
		}
		return q.changed("patched", to)
	})
}

// change calls a tool that changes the session, and returns the new version.
func (q stateRequest) change(ctx context.Context, name string, args map[string]any) (to statetools.Change, err error) {
	call := tool.Call{Tool: name}
	if q.caller == "" { // the session in a record is its caller's own
		call.Session = q.session
	}
	err = q.call(ctx, call, args, "change the state of sessions", &to)
	return to, err
}

// changed reports the version that a change resulted in.
func (q stateRequest) changed(how string, to statetools.Change) error {
	return q.tell(to, "%s  %s is at version %d", q.out.green(how), q.out.bold(clean(to.Session)), to.Version)
}

func (a *app) stateResetCommand() *cobra.Command {
	c := a.withJSON("print the new version as JSON", &cobra.Command{
		Use: "reset SESSION", Short: "Empty the state of a session", Args: words(1, 1),
		Long: "Makes the document of a session {} again. That is a new version; earlier ones can still be printed.\n" +
			"Emptying is a call of the tool state.reset: the policy decides about it, and it is on record.",
	})
	return a.about(c, func(ctx context.Context, q stateRequest, _ []string) error {
		to, err := q.change(ctx, "state.reset", map[string]any{})
		switch {
		case err != nil:
			return err
		case to.Version == 0:
			return q.changed("empty", to)
		}
		return q.changed("emptied", to)
	})
}

func (a *app) stateWatchCommand() *cobra.Command {
	c := a.withJSON("print errors as JSON too", &cobra.Command{
		Use: "watch SESSION", Short: "Print each new version of a session as a line of JSON", Args: words(1, 1),
		Long: "Prints the newest version of a session as a line of JSON, and then each new one, until it is\n" +
			"interrupted. If more than 100 versions come at once, the oldest of them may be left out.",
	})
	return a.about(c, func(ctx context.Context, q stateRequest, _ []string) error {
		err := q.watch(ctx)
		if ctx.Err() != nil { // the user ends it this way
			return nil
		}
		return err
	})
}

// longestWait is how long one call waits for a change, in milliseconds: the maximum that the tool allows.
const longestWait = 20_000

func (q stateRequest) watch(ctx context.Context) error {
	st, err := q.get(ctx, map[string]any{})
	for newer := true; err == nil; {
		if newer {
			if _, err = fmt.Fprintln(q.out, cleanLines(string(raw(st)))); err != nil {
				break
			}
		}
		var next struct {
			Newer bool `json:"newer"`
			session.State
		}
		args := map[string]any{"after": st.Version, "wait_ms": longestWait}
		err = q.call(ctx, tool.Call{Tool: "state.watch"}, args, seesSessions, &next)
		if newer = next.Newer; newer {
			st.State = next.State
		}
	}
	return err
}
