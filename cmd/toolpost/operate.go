package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/builtin/operate"
	"toolpost/node"
)

func (a *app) configShowCommand() *cobra.Command {
	return a.withServer(a.withJSON("print the config and what is wrong with it as JSON", &cobra.Command{
		Use: "show", Short: "Print the config without secrets, and say whether a server runs something else",
		Long: "Prints the config as it is on disk, without what looks like a secret, and says what is wrong with it. With\n" +
			"--server it is the config of a server, and it says whether the server runs something else: because the file\n" +
			"has errors, or because parts of it take a restart. It is for operators. Exit code 1: something is wrong.",
		Example: "  toolpost config show --server http://127.0.0.1:8700",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := own[operate.Config](c.Context(), a, node.Options{Own: true}, "showConfig", struct{}{}, "see the config")
			if err != nil {
				return err
			}
			return a.conclude(cfg, func() { a.showConfig(cfg) }, len(cfg.Errors) > 0)
		},
	}))
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
	return a.withServer(a.withJSON("print JSON", &cobra.Command{
		Use: "callers", Short: "List those who may call, with their roles and how they are recognised",
		Long: "Lists those who may call: the operators, those that the config lists, those who have a token, and the\n" +
			"anonymous caller of each door. Tokens are not shown: they are not stored. It is for operators.",
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := own[operate.Callers](c.Context(), a, node.Options{Own: true}, "listCallers", struct{}{}, "see callers")
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(all)
			}
			var rows [][]string
			for _, c := range all.Callers {
				by := slices.Clone(c.By)
				if n := len(c.Tokens); n > 0 {
					by = append(by, "issued tokens: "+strconv.Itoa(n))
				}
				if len(c.Doors) > 0 {
					by = append(by, "nothing, at "+strings.Join(c.Doors, ", "))
				}
				rows = append(rows, []string{
					c.Name, c.Kind, cmp.Or(strings.Join(c.Roles, ", "), "-"), mayUse(c), strings.Join(by, "; "),
				})
			}
			a.out.table([]string{"CALLER", "KIND", "ROLES", "TOOLS", "RECOGNISED BY"}, rows)
			return nil
		},
	}))
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
	return a.withServer(a.withJSON("print JSON", &cobra.Command{
		Use: "usage", Short: "Show what is full: quotas, queues, the store, the disk",
		Long: "Shows how full a server is: who is closest to the limits of each quota, how many calls wait for workers, how\n" +
			"large the store is and how much of the disk is free. Quotas are counted by the program that runs the calls:\n" +
			"without --server all counts are zero. It is for operators.",
		RunE: func(c *cobra.Command, _ []string) error {
			u, err := own[operate.Usage](c.Context(), a, node.Options{}, "showUsage", struct{}{}, "see what is full")
			if err != nil {
				return err
			}
			return a.conclude(u, func() { a.showUsage(u) }, false)
		},
	}))
}

func (a *app) showUsage(u operate.Usage) {
	var rows [][]string
	add := func(what, who, words string, used, of int64) {
		share := ""
		if of > 0 {
			share = strconv.FormatInt(100*used/of, 10) + "%"
		}
		rows = append(rows, []string{what, cmp.Or(who, "-"), count(used), count(of), share, words})
	}
	for _, q := range u.Quotas {
		for _, f := range q.Fullest {
			add("quota "+q.Name, f.Who, f.Words+" "+q.For, f.Used, f.Of)
		}
	}
	for _, q := range u.Queues {
		name := strings.TrimSuffix(q.Source+" "+q.Pool, " ")
		add("places", name, "calls at the same time", int64(q.Running), int64(q.Places))
		add("queue", name, "calls that may wait", int64(q.Waiting), int64(q.Most))
	}
	if u.Disk != nil {
		add("disk", u.Disk.Path, bytesOf(u.Disk.Free)+" free", u.Disk.Total-u.Disk.Free, u.Disk.Total)
		last := rows[len(rows)-1]
		last[2], last[3] = bytesOf(u.Disk.Total-u.Disk.Free), bytesOf(u.Disk.Total)
	}
	a.out.table([]string{"WHAT", "WHO", "USED", "OF", "SHARE", "LIMIT"}, rows)
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
