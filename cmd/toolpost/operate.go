package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/define"
	"toolpost/builtin/health"
	"toolpost/builtin/operate"
	"toolpost/builtin/reload"
	calltools "toolpost/builtin/running"
	"toolpost/cmd/toolpost/format"
	"toolpost/engine/calls"
	"toolpost/tool"
)

func (a *app) configShowCommand() *cobra.Command {
	return over[struct{}](a, own{"showConfig", "see the config", 0}, "", &cobra.Command{
		Use: "show", Short: "Print the config without secrets, and report whether the server still uses an older version",
		Long: "Prints the config as it is on disk, without secrets, and what is wrong with it. If a server uses this\n" +
			"file, the command also reports whether the server still has an older version, because the file has\n" +
			"errors or because a change needs a restart. Only operators may use it: the owner and the user of the\n" +
			"command line. Exit code 1: something is wrong.",
		Example: "  toolpost config show\n  toolpost config show --server http://127.0.0.1:8700",
	}, a.showConfig, func(cfg operate.Config) bool { return len(cfg.Errors) > 0 })
}

func (a *app) showConfig(cfg operate.Config) {
	if cfg.Path == "" {
		fmt.Fprintln(a.err, "there is no config; `toolpost init` writes one")
		return
	}
	fmt.Fprintln(a.out, strings.TrimRight(cleanLines(cfg.Text), "\n"))
	tell := func(f operate.Fault, colour func(string) string) {
		where := clean(cfg.Path)
		if f.Line > 0 {
			where += fmt.Sprintf(":%d:%d", f.Line, f.Column)
		}
		if f.About != "" {
			where = clean(f.About)
		}
		fmt.Fprintf(a.err, "%s %s\n", colour(where+":"), cleanLines(f.Message))
	}
	for _, f := range cfg.Errors {
		tell(f, a.err.red)
	}
	for _, f := range cfg.Problems {
		tell(f, a.err.amber)
	}
	if len(cfg.Restart) > 0 {
		fmt.Fprintf(a.err, "%s changed; start the server again to apply it\n", clean(strings.Join(cfg.Restart, ", ")))
	}
}

func (a *app) callersCommand() *cobra.Command {
	return over[struct{}](a, own{"listCallers", "see callers", 0}, "", &cobra.Command{
		Use: "callers", Short: "List the callers, with their roles and how each is recognised",
		Long: "Lists the callers: operators (the owner and the user of the command line), callers in the config,\n" +
			"callers that have a token, and the anonymous caller of each door. Tokens are not shown, because only\n" +
			"their digests are stored. Only operators may use it.",
	}, func(all operate.Callers) {
		columns("caller=name kind roles|- tools recognised_by", cells[operate.Caller]{
			"tools": mayUse, "recognised_by": recognisedBy,
		}).print(a, "callers", all.Callers)
	})
}

func recognisedBy(c operate.Caller) string {
	by := slices.Clone(c.By)
	if n := len(c.Tokens); n > 0 {
		by = append(by, "issued tokens: "+strconv.Itoa(n))
	}
	if len(c.Doors) > 0 {
		by = append(by, "nothing, at "+strings.Join(c.Doors, ", "))
	}
	return strings.Join(by, "; ")
}

// mayUse lists the tools that a caller may use.
func mayUse(c operate.Caller) string {
	switch {
	case c.Kind == operate.KindToken:
		return "as its tokens say"
	case c.All:
		return "all"
	}
	return cmp.Or(c.Tools.String(), "none")
}

func (a *app) usageCommand() *cobra.Command {
	return over[struct{}](a, own{"showUsage", "see what is full", sources}, "", &cobra.Command{
		Use: "usage", Short: "Show how full the quotas, queues, store and disk are",
		Long: "Shows the load of the quotas, queues, store and disk: the callers closest to each quota, the calls that\n" +
			"wait for workers, the size of the store, and the free space of the disk. Quotas are counted by the\n" +
			"program that runs the calls: without a server, the counts of quotas and queues are zero. Only operators\n" +
			"may use it: the owner and the user of the command line.",
	}, a.showUsage)
}

// A full is how full one thing is: a row of the table.
type full struct {
	What  string `json:"what"`
	Who   string `json:"who"`
	Used  string `json:"used"`
	Of    string `json:"of"`
	Share string `json:"share"`
	Limit string `json:"limit"`
}

func (a *app) showUsage(u operate.Usage) {
	var rows []full
	add := func(what, who, words string, used, of int64, size func(int64) string) {
		share := ""
		if of > 0 {
			share = strconv.FormatInt(100*used/of, 10) + "%"
		}
		rows = append(rows, full{what, who, size(used), size(of), share, words})
	}
	for _, q := range u.Quotas {
		for _, f := range q.Fullest {
			add("quota "+q.Name, f.Who, f.Words+" "+q.For, f.Used, f.Of, count)
		}
	}
	for _, q := range u.Queues {
		name := strings.TrimSuffix(q.Source+" "+q.Pool, " ")
		add("places", name, "calls at the same time", int64(q.Running), int64(q.Places), count)
		add("queue", name, "calls that may wait", int64(q.Waiting), int64(q.Most), count)
	}
	if u.Disk != nil {
		add("disk", u.Disk.Path, format.Bytes(u.Disk.Free)+" free", u.Disk.Total-u.Disk.Free, u.Disk.Total, format.Bytes)
	}
	columns[full]("what who|- used of share limit", nil).print(a, "limits", rows)
	switch s := u.Store; {
	case s == nil:
		fmt.Fprintln(a.out, "no store")
	case s.Error != "":
		fmt.Fprintf(a.out, "store %s: %s\n", clean(s.Kind), a.out.red(clean(s.Error)))
	default:
		fmt.Fprintf(a.out, "store %s: %s, %s in the audit log\n", clean(s.Kind), format.Bytes(s.Bytes),
			define.Count(int(s.Calls), "call"))
		if s.Waiting > 0 {
			fmt.Fprintln(a.out, a.out.amber(define.Count(s.Waiting, "record")+" in memory, not in the store yet"))
		}
	}
}

func (a *app) psCommand() *cobra.Command {
	listCalls := own{"listCalls", "see calls", sources}
	c := over[calltools.ListArgs](a, listCalls, "--kind", &cobra.Command{
		Use: "ps", Short: "List the calls that are running, and cancel them",
		Long: "Lists the running calls, oldest first: the caller, the tool, the door, the start time, and the last\n" +
			"event of each call. Operators (the owner and the user of the command line) see all calls; other callers\n" +
			"see their own.",
		Example: "  toolpost ps\n  toolpost ps cancel 6f1c --server http://127.0.0.1:8700",
	}, func(l calltools.Listed) {
		a.alone()
		for _, hub := range l.Missing {
			fmt.Fprintf(a.err, "note: the hub %s did not answer; its calls are not listed\n", clean(hub))
		}
		columns("call caller door "+inFleet(l.Calls)+"tool since last", cells[calls.Running]{
			"tool": func(c calls.Running) string { return c.Tool + map[bool]string{true: " (dry run)"}[c.DryRun] },
			"last": func(c calls.Running) string { return heard(c.Last) },
		}).print(a, "calls", l.Calls)
	})
	c.AddCommand(over[calltools.CancelArgs](a, own{"cancelCall", "cancel calls", sources}, "call --caller", &cobra.Command{
		Use: "cancel CALL", Short: "Cancel a running call",
		Long: "Cancels a running call by its id, whichever door it came through: one of your own or, for operators, any\n" +
			"call. Its caller is told who cancelled it.",
		ValidArgsFunction: a.completeFrom(listCalls, "call", "tool of caller", ""),
	}, func(done calltools.CancelArgs) { fmt.Fprintf(a.err, "call %s is cancelled\n", clean(done.Call)) }))
	return c
}

// inFleet returns the columns of calls that there are only in a fleet.
func inFleet(list []calls.Running) string {
	if slices.ContainsFunc(list, func(c calls.Running) bool { return c.Hub != "" }) {
		return "hub node "
	}
	return ""
}

// heard describes the last sign of life of a call in a few words.
func heard(s *calls.Sign) string {
	if s == nil {
		return "-"
	}
	return share(s.Progress, s.Total, short(clean(s.Message), 60))
}

func (a *app) sourcesCommand() *cobra.Command {
	return over[struct{}](a, own{"listSources", "see sources", sources}, "", &cobra.Command{
		Use: "sources", Short: "List the sources of tools, with their state",
		Long: "Lists every source of the running server or, without a server, of the config: its protocol, its state\n" +
			"and since when, the number of its tools, and the error, or the number of tools that are held back. Only\n" +
			"operators may use it: the owner and the user of the command line.",
	}, func(l health.Listed) {
		a.noteDefault()
		columns("name protocol state tools since error", cells[health.Source]{"error": func(s health.Source) string {
			if s.Held > 0 && s.Error == "" {
				return strconv.Itoa(s.Held) + " held back: " + reviewHint
			}
			return s.Error
		}}).print(a, "sources", l.Sources)
	})
}

func (a *app) reloadCommand() *cobra.Command {
	return first(over[struct{}](a, own{"reloadConfig", "reload the config", sources}, "", &cobra.Command{
		Use: "reload", Short: "Make a server read its config again, and report the changes",
		Long: "Makes a server read its config and the files of its sources again at once. Without this command, a\n" +
			"server notices changes within a second. Reports the tools that were added, removed or changed, the\n" +
			"sources that failed, and the changes that need a restart, or why the config was refused. Without\n" +
			"--server it reloads the running server of this config, and needs no token. `kill -USR1` does the same,\n" +
			"and the server logs the result. Only operators may use it: the owner and the user of the command line.",
		Example: "  toolpost reload\n  toolpost reload --server http://127.0.0.1:8700 --json",
	}, a.showReload, func(did reload.Report) bool { return len(did.Failed) > 0 }), func(c *cobra.Command, words []string) ([]string, error) {
		if err := a.locate(c.Context()); err != nil || a.server.url != "" {
			return words, err
		}
		return nil, tool.Errorf(tool.CodeUnavailable, "no server of this config answers here: is `toolpost serve` running, as "+
			"your own user? --server names another")
	})
}

func (a *app) showReload(did reload.Report) {
	fmt.Fprintf(a.out, "%s  %s\n", a.out.green("reloaded"), clean(did.Config))
	for _, c := range did.Changes {
		fmt.Fprintf(a.out, "%-16s %s\n", clean(c.Source), clean(c.String()))
	}
	if len(did.Changes)+len(did.Failed) == 0 {
		fmt.Fprintln(a.out, "the same tools")
	}
	for _, f := range did.Failed {
		state := "unavailable: "
		switch {
		case f.Partly:
			state = ""
		case f.Stays:
			state = "its changed files are not used, its tools stay as they were: "
		}
		fmt.Fprintf(a.out, "%-16s %s%s\n", clean(f.Source), a.out.red(state), cleanLines(f.Error))
	}
	for _, part := range did.Restart {
		fmt.Fprintf(a.out, "%-16s %s\n", clean(part), a.out.amber("changed; start the server again to apply it"))
	}
}
