package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	statetools "toolpost/builtin/state"
	"toolpost/cmd/toolpost/form"
	"toolpost/cmd/toolpost/format"
	"toolpost/engine/session"
	"toolpost/tool"
)

// The tools for the state of sessions.
func seesState(name string) own { return own{name, "see the state of sessions", store} }
func changesState(name string) own {
	return own{name, "change the state of sessions", store | inSession}
}

func (a *app) stateCommand() *cobra.Command {
	changed := func(how string) func(statetools.Change) {
		return func(to statetools.Change) {
			fmt.Fprintf(a.out, "%s  %s is at version %d\n", a.out.green(how), a.out.bold(clean(to.Session)), to.Version)
		}
	}
	return group(&cobra.Command{
		Use: "state", Short: "Show and change the state of sessions",
		Long: "A session has a document that its calls read and patch. Each change makes a new version. A session belongs\n" +
			"to a caller: two callers never share one, even if they choose the same name. On the command line the\n" +
			"caller is `local`.",
		Example: "  toolpost state get work\n  toolpost state patch work '{\"user\": {\"name\": \"Ada\"}}' --if-version 3\n" +
			"  toolpost state watch work",
	}, over[statetools.GetArgs](a, seesState("state.get"), "session --caller --version", &cobra.Command{
		Use: "get SESSION", Short: "Print the state of a session",
		Long: "Prints the document of a session; its version and time of change go to stderr. A new session is {},\n" +
			"at version 0. The last 100 versions can be printed.",
	}, func(st statetools.State) {
		_ = a.printIndented(st.State.State)
		fmt.Fprintln(a.err, describe(st.State, time.Now()))
	}), a.withPatch(over[statetools.PatchArgs](a, changesState("state.patch"), "session patch --caller --if-version", &cobra.Command{
		Use: "patch SESSION {JSON | name=value ... | @FILE | -}", Short: "Merge a patch into the state of a session",
		Args: words(2, -1), DisableFlagsInUseLine: true,
		Long: "Merges a JSON object into the document of a session: objects merge key by key at every depth, other\n" +
			"values replace the old ones, null removes a key. Write the patch like the arguments of `toolpost\n" +
			"call`; in name=value the value is text. With --if-version the patch is merged only if the session\n" +
			"has not changed since that version; exit code 3: it has changed. The command calls the tool state.patch:\n" +
			"the policy applies, and the call is recorded.",
	}, changed("patched"))), over[statetools.SessionArgs](a, changesState("state.reset"), "session --caller", &cobra.Command{
		Use: "reset SESSION", Short: "Empty the state of a session",
		Long: "Sets the document of a session to {}, as a new version; earlier versions can still be printed.\n" +
			"The command calls the tool state.reset: the policy applies, and the call is recorded.",
	}, func(to statetools.Change) {
		changed(map[bool]string{true: "empty", false: "emptied"}[to.Version == 0])(to)
	}),
		a.stateWatchCommand())
}

// withPatch makes c read its patch as `toolpost call` reads arguments.
func (a *app) withPatch(c *cobra.Command) *cobra.Command {
	return first(c, func(_ *cobra.Command, words []string) ([]string, error) {
		patch, err := form.Arguments(words[1:], nil, a.in)
		return []string{words[0], string(patch)}, err
	})
}

// describe describes in a few words which version a state is.
func describe(st session.State, now time.Time) string {
	text := fmt.Sprintf("version %d", st.Version)
	switch {
	case st.Version == 0:
		text += ": unchanged; if you expected more, check the name, and --caller: a session belongs to its caller"
	case !st.Changed.IsZero():
		text += ", changed " + format.When(st.Changed, now)
	}
	return text
}

func (a *app) stateWatchCommand() *cobra.Command {
	return takes[statetools.SessionArgs](a, "session --caller", "print errors as JSON too", &cobra.Command{
		Use: "watch SESSION", Short: "Print each new version of a session as a line of JSON",
		Long: "Prints the newest version of a session as a line of JSON, and then each new one, until\n" +
			"Ctrl-C. If more than 100 versions come at once, the oldest of them may be left out.",
	}, func(ctx context.Context, args map[string]any) error {
		err := a.watchState(ctx, args)
		if ctx.Err() != nil { // the user ends it this way
			return nil
		}
		return err
	})
}

// longestWait is how long one call waits for a change, in milliseconds: the maximum that the tool allows.
const longestWait = 20_000

func (a *app) watchState(ctx context.Context, args map[string]any) error {
	get := seesState("state.get")
	b, err := get.open(ctx, a)
	if err != nil {
		return err
	}
	defer b.close()
	st, err := use[statetools.State](ctx, a, b, get, tool.Call{Args: raw(args)}, tool.Discard)
	for newer := true; err == nil; {
		if newer {
			if _, err = fmt.Fprintln(a.out, cleanLines(string(raw(st)))); err != nil {
				break
			}
		}
		args["after"], args["wait_ms"] = st.Version, longestWait
		var next statetools.Watched
		next, err = use[statetools.Watched](ctx, a, b, seesState("state.watch"), tool.Call{Args: raw(args)}, tool.Discard)
		if newer = next.Newer; newer {
			st.State = session.State{State: next.State, Version: next.Version, Changed: next.Changed}
		}
	}
	return err
}
