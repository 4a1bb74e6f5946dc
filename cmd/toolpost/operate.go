package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/console"
	"toolpost/builtin/health"
	"toolpost/builtin/operate"
	"toolpost/builtin/reload"
	calltools "toolpost/builtin/running"
	"toolpost/engine/calls"
)

func (a *app) configShowCommand() *cobra.Command {
	return over[struct{}](a, own{"showConfig", "see the config", 0}, "", &cobra.Command{
		Use: "show", Short: "Print the config without secrets, and say whether a server runs something else",
		Long: "Prints the config as it is on disk, without what looks like a secret, and says what is wrong with it. With\n" +
			"--server it is the config of a server, and it says whether the server runs something else: because the file\n" +
			"has errors, or because parts of it take a restart. It is for operators. Exit code 1: something is wrong.",
		Example: "  toolpost config show --server http://127.0.0.1:8700",
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
		Use: "callers", Short: "List those who may call, with their roles and how they are recognised",
		Long: "Lists those who may call: the operators, those that the config lists, those who have a token, and the\n" +
			"anonymous caller of each door. Tokens are not shown: they are not stored. It is for operators.",
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
		Use: "usage", Short: "Show what is full: quotas, queues, the store, the disk",
		Long: "Shows how full a server is: who is closest to the limits of each quota, how many calls wait for workers, how\n" +
			"large the store is and how much of the disk is free. Quotas are counted by the program that runs the calls:\n" +
			"without --server all counts are zero. It is for operators.",
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
		add("disk", u.Disk.Path, bytesOf(u.Disk.Free)+" free", u.Disk.Total-u.Disk.Free, u.Disk.Total, bytesOf)
	}
	columns[full]("what who|- used of share limit", nil).print(a, "limits", rows)
	switch s := u.Store; {
	case s == nil:
		fmt.Fprintln(a.out, "no store")
	case s.Error != "":
		fmt.Fprintf(a.out, "store %s: %s\n", clean(s.Kind), a.out.red(clean(s.Error)))
	default:
		fmt.Fprintf(a.out, "store %s: %s, %s in the audit log\n", clean(s.Kind), bytesOf(s.Bytes),
			plural(int(s.Calls), "call"))
		if s.Waiting > 0 {
			fmt.Fprintln(a.out, a.out.amber(plural(s.Waiting, "record")+" in memory, not in the store yet"))
		}
	}
}

func (a *app) psCommand() *cobra.Command {
	listCalls := own{"listCalls", "see calls", sources}
	c := over[struct{}](a, listCalls, "", &cobra.Command{
		Use: "ps", Short: "List the calls that are running, and cancel them",
		Long: "Lists the calls that are running, oldest first: who called what, through which door and since when, and the\n" +
			"last event of each. With --server it lists those of a server. Operators see the calls of everybody, others\n" +
			"their own.",
		Example: "  toolpost ps --server http://127.0.0.1:8700\n  toolpost ps cancel 6f1c --server http://127.0.0.1:8700",
	}, func(l calltools.Listed) {
		a.alone()
		columns("call caller door tool since last", cells[calls.Running]{
			"tool": func(c calls.Running) string { return c.Tool + map[bool]string{true: " (dry run)"}[c.DryRun] },
			"last": func(c calls.Running) string { return heard(c.Last) },
		}).print(a, "calls", l.Calls)
	})
	c.AddCommand(over[calltools.CancelArgs](a, own{"cancelCall", "cancel calls", sources}, "call --caller", &cobra.Command{
		Use: "cancel CALL", Short: "Cancel a running call",
		Long: "Cancels a running call by its id: one of yours or, for operators, anybody's, whichever door it came\n" +
			"through. Its caller is told who cancelled it.",
		ValidArgsFunction: a.completeFrom(listCalls, "call", "tool of caller", ""),
	}, func(done calltools.CancelArgs) { fmt.Fprintf(a.err, "call %s is cancelled\n", clean(done.Call)) }))
	return c
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
		Long: "Lists every source of the config, or of a server with --server: its protocol, whether it is open or failed\n" +
			"and since when, how many tools it has, and why it failed or how many of its tools are held back. It is for\n" +
			"operators.",
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
		Use: "reload", Short: "Let a server read its config again, and say what changed",
		Long: "Lets a server read its config and the files of its sources again, now: it notices their changes by itself\n" +
			"within a second. Says which tools came, went or changed, which sources failed, and what takes a restart; or\n" +
			"why the config was not taken. It is for operators. Without --server it is the server of this config, at the\n" +
			"address of its HTTP door, and no token is needed. `kill -USR1` does the same, and the server's log says what came of it.",
		Example: "  toolpost reload\n  toolpost reload --server http://127.0.0.1:8700 --json",
	}, a.showReload, func(did reload.Report) bool { return len(did.Failed) > 0 }), func(c *cobra.Command, words []string) ([]string, error) {
		if a.server.url != "" {
			return words, nil
		}
		return words, a.serverHere(c.Context())
	})
}

// serverHere names the server of this config. Like `toolpost console`, the user who runs this needs no token for it.
func (a *app) serverHere(ctx context.Context) error {
	url, err := a.addressHere()
	if cmp.Or(a.server.token, os.Getenv("TOOLPOST_TOKEN")) == "" && err == nil {
		link, _ := ask[console.Link](ctx, a, consoleLink, struct{}{}) // without one, the server asks for a token
		_, a.server.code, _ = strings.Cut(link.Path, "code=")
	}
	a.server.url = url
	return err
}

func (a *app) showReload(did reload.Report) {
	fmt.Fprintf(a.out, "%s  %s\n", a.out.green("reloaded"), clean(did.Config))
	for _, c := range did.Changes {
		fmt.Fprintf(a.out, "%-16s %s\n", clean(c.Source), clean(c.String()))
	}
	if len(did.Changes) == 0 {
		fmt.Fprintln(a.out, "the same tools")
	}
	for _, f := range did.Failed {
		state := "unavailable: "
		if f.Stays {
			state = "its files are not taken, its tools stay as they were: "
		}
		fmt.Fprintf(a.out, "%-16s %s%s\n", clean(f.Source), a.out.red(state), clean(f.Error))
	}
	for _, part := range did.Restart {
		fmt.Fprintf(a.out, "%-16s %s\n", clean(part), a.out.amber("changed; start the server again to apply it"))
	}
}
