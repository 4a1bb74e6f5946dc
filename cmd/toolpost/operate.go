package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/operate"
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
