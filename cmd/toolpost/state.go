package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"toolpost/engine/session"
	"toolpost/node"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A stateRequest is a session that a command looks at, and whose it is.
type stateRequest struct {
	*app
	caller, session string
	self            tool.Principal // who asks
}

// A stateAnswer is a version of a session, for programs.
type stateAnswer struct {
	Session string          `json:"session"`
	Caller  string          `json:"caller"`
	Version int64           `json:"version"`
	Changed time.Time       `json:"changed,omitzero"`
	State   json.RawMessage `json:"state,omitzero"`
}

func (a *app) stateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "state", Short: "Look at and change the state of sessions",
		Long: "A session has a document that its calls read and patch. Each change is a version of it. A session belongs to a\n" +
			"caller: two callers never share one, whatever names they choose. From the command line the caller is local.",
		Example: "  toolpost state get work\n  toolpost state patch work '{\"user\": {\"name\": \"Ada\"}}' --if-version 3\n  toolpost state watch work",
	}
	onlyCommands(c)
	c.AddCommand(a.stateGetCommand(), a.statePatchCommand(), a.stateResetCommand(), a.stateWatchCommand())
	return c
}

// withStore opens the store of the config.
func (a *app) withStore(use func(*store.DB) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	db, _, err := node.OpenStore(cfg)
	switch {
	case err != nil:
		return err
	case db == nil:
		return tool.Errorf(tool.CodeInvalidInput, "there is no store, so leases, tokens, jobs, sessions and records last no longer than the program that "+
			"made them; `toolpost init` writes a config, and with one there is a store unless it says `store: {url: none}`. A server "+
			"without a store issues its leases itself, by the tool lease.issue")
	}
	return cmp.Or(use(db), db.Close())
}

// about makes c a command about one session.
func (a *app) about(c *cobra.Command, run func(context.Context, stateRequest, *store.SessionTable, []string) error) *cobra.Command {
	q := stateRequest{app: a}
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().StringVar(&q.caller, "caller", "", "whose session it is (default: yours)")
	c.RunE = work(func(c *cobra.Command, args []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		if q.self, err = node.Runner(c.Context(), cfg, me().Door); err != nil {
			return err
		}
		if !c.Flags().Changed("caller") {
			q.caller = q.self.ID
		}
		if q.session = args[0]; q.session == "" || q.caller == "" {
			return tool.Errorf(tool.CodeInvalidInput, "a session and its caller have names; one of them is empty")
		}
		return a.withStore(func(db *store.DB) error { return run(c.Context(), q, db.Sessions(), args[1:]) })
	})
	return c
}

func (q stateRequest) answer(st session.State) stateAnswer {
	return stateAnswer{Session: q.session, Caller: q.caller, Version: st.Version, Changed: st.Changed, State: st.State}
}

func (a *app) stateGetCommand() *cobra.Command {
	var version int64
	c := &cobra.Command{
		Use: "get SESSION", Short: "Print the state of a session", Args: words(1, 1),
		Long: "Prints the document of a session; its version and when it was changed go to stderr. A session that nobody has\n" +
			"changed is {}, at version 0. The last 100 versions can be printed.",
	}
	c.Flags().Int64Var(&version, "version", 0, "print an earlier version (default: the newest)")
	a.jsonFlag(c, "print the document with its version and time as JSON")
	return a.about(c, func(ctx context.Context, q stateRequest, sessions *store.SessionTable, _ []string) error {
		st, err := q.read(ctx, sessions, version, c.Flags().Changed("version"))
		switch {
		case err != nil:
			return err
		case q.json:
			return q.printJSON(q.answer(st))
		}
		if err := q.printIndented(st.State); err != nil {
			return err
		}
		fmt.Fprintln(q.err, describe(st, time.Now()))
		return nil
	})
}

func (q stateRequest) read(ctx context.Context, sessions *store.SessionTable, version int64, earlier bool) (session.State, error) {
	if earlier {
		return sessions.At(ctx, q.caller, q.session, version)
	}
	return sessions.Get(ctx, q.caller, q.session)
}

// describe says in a few words which version a state is.
func describe(st session.State, now time.Time) string {
	switch {
	case st.Version == 0:
		return "version 0: nobody had changed it"
	case st.Changed.IsZero():
		return fmt.Sprintf("version %d", st.Version)
	}
	return fmt.Sprintf("version %d, changed %s", st.Version, when(st.Changed, now))
}

// when writes a time for programs and, beside it, for people.
func when(t, now time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	if d := t.Sub(now); d > 0 {
		return text + " (in " + roughly(d) + ")"
	}
	return text + " (" + roughly(now.Sub(t)) + " ago)"
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
	c := &cobra.Command{
		Use: "patch SESSION {JSON | name=value ... | @FILE | -}", Short: "Merge a patch into the state of a session", Args: words(2, -1),
		DisableFlagsInUseLine: true,
		Long: "Merges a JSON object into the document of a session: objects merge key by key at every depth, everything else\n" +
			"replaces, null removes. The patch is written as the arguments of `toolpost call` are; the value of name=value is\n" +
			"text. With --if-version it is merged only where nobody has changed the session since that version; exit code 3:\n" +
			"somebody has. Patching is a call of the tool state.patch: the policy decides about it, and it is on record.",
	}
	c.Flags().Int64Var(&seen, "if-version", 0, "merge only if the session is still at this version; 0: nobody has changed it yet (default: merge anyway)")
	a.jsonFlag(c, "print the new version as JSON")
	return a.about(c, func(ctx context.Context, q stateRequest, _ *store.SessionTable, args []string) error {
		if seen < 0 {
			return tool.Errorf(tool.CodeInvalidInput, "--if-version cannot be negative")
		}
		patch, err := q.patch(args)
		if err != nil {
			return err
		}
		change := map[string]any{"patch": patch}
		if c.Flags().Changed("if-version") {
			change["if_version"] = seen
		}
		version, err := q.change(ctx, "toolpost.state.patch", change)
		if err != nil {
			return err
		}
		return q.changed("patched", version)
	})
}

// change calls a tool that changes the session, and gives the new version.
func (q stateRequest) change(ctx context.Context, name string, args map[string]any) (version int64, err error) {
	args["session"], args["caller"] = q.session, q.caller
	call := tool.Call{Tool: name, Args: raw(args)}
	if q.caller == q.self.ID { // the record of a call has its caller's sessions
		call.Session = q.session
	}
	var out struct {
		Version int64 `json:"version"`
	}
	err = q.callOwn(ctx, call, "change the state of sessions", "", &out)
	return out.Version, err
}

func (q stateRequest) patch(args []string) (map[string]any, error) {
	doc, err := arguments(args, &tool.Spec{}, q.in)
	if err != nil {
		return nil, err
	}
	v, err := strictjson.Decode(doc)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the patch: %w", err)
	}
	patch, _ := v.(map[string]any) // arguments are an object
	return patch, nil
}

// changed says which version a change has led to.
func (q stateRequest) changed(how string, version int64) error {
	if q.json {
		return q.printJSON(stateAnswer{Session: q.session, Caller: q.caller, Version: version})
	}
	fmt.Fprintf(q.out, "%s  %s is at version %d\n", q.out.green(how), q.out.bold(clean(q.session)), version)
	return nil
}

func (a *app) stateResetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "reset SESSION", Short: "Empty the state of a session", Args: words(1, 1),
		Long: "Makes the document of a session {} again. That is a new version of it, and earlier ones can still be printed.\n" +
			"Emptying is a call of the tool state.reset: the policy decides about it, and it is on record.",
	}
	a.jsonFlag(c, "print the new version as JSON")
	return a.about(c, func(ctx context.Context, q stateRequest, _ *store.SessionTable, _ []string) error {
		version, err := q.change(ctx, "toolpost.state.reset", map[string]any{})
		switch {
		case err != nil:
			return err
		case version == 0:
			return q.changed("empty", 0)
		}
		return q.changed("emptied", version)
	})
}

// lookEvery is how often a watch looks for new versions.
const lookEvery = 200 * time.Millisecond

func (a *app) stateWatchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "watch SESSION", Short: "Print each new version of a session as a line of JSON", Args: words(1, 1),
		Long: "Prints the newest version of a session as a line of JSON, and then every one that follows, until it is interrupted.\n" +
			"Where more than 100 versions come at once, the oldest of them may be left out.",
	}
	a.jsonFlag(c, "print errors as JSON too")
	return a.about(c, func(ctx context.Context, q stateRequest, sessions *store.SessionTable, _ []string) error {
		err := q.watch(ctx, sessions)
		if ctx.Err() != nil { // whoever watches ends it so
			return nil
		}
		return err
	})
}

func (q stateRequest) watch(ctx context.Context, sessions *store.SessionTable) error {
	st, err := sessions.Get(ctx, q.caller, q.session)
	for more := true; err == nil; {
		if more {
			_, err = fmt.Fprintln(q.out, cleanLines(string(raw(q.answer(st)))))
		} else {
			err = rest(ctx, lookEvery)
		}
		if err != nil {
			break
		}
		seen := st.Version
		if st, more, err = sessions.Next(ctx, q.caller, q.session, seen); !more {
			st.Version = seen
		}
	}
	return err
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
