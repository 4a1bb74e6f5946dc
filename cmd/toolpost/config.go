package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check or show the config, or print its JSON Schema"}
	return group(c, a.configCheckCommand(), a.configShowCommand(), &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of toolpost.yaml, for editors",
		RunE: func(*cobra.Command, []string) error {
			b, err := node.Schema()
			if err != nil {
				return err
			}
			_, err = a.out.Write(b)
			return err
		},
	})
}

func (a *app) configCheckCommand() *cobra.Command {
	var deep bool
	c := a.withJSON("print the findings as JSON", &cobra.Command{
		Use:   "check",
		Short: "Check the config and report what is wrong",
		Long: "Reads the config and reports unreadable parts, missing programs and files, secrets without a value,\n" +
			"unusable addresses, and unknown names in rules. It starts no program and contacts no server, unless\n" +
			"--deep is given, and it never opens the store: `toolpost doctor` does. Exit code 1: something is wrong;\n" +
			"2: the config cannot be read.",
		RunE: func(c *cobra.Command, _ []string) error { return a.checkConfig(c.Context(), deep) },
	})
	c.Flags().BoolVar(&deep, "deep", false, "also start each source, and list its tools")
	return c
}

func (a *app) checkConfig(ctx context.Context, deep bool) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if cfg.Path != "" {
		if err := config.Trusted(cfg.Path); err != nil {
			fmt.Fprintf(a.err, "a running server will not take changes of it: %s\n", because(err))
		}
	}
	n, end, err := a.openNode(ctx, cfg, slog.LevelError+1, node.Options{Offline: !deep})
	if err != nil {
		return err
	}
	defer end()
	a.noteDefault()
	if why := emptiness(cfg); why != "" {
		fmt.Fprintln(a.err, why)
	}
	for _, w := range n.Warnings(ctx, me()) {
		why, _, _ := strings.Cut(because(cfg.Placed(w.About, w.Err)), "\n") // the place alone: a line may have a secret
		fmt.Fprintf(a.err, "%s %s: %s\n", a.err.amber("warning:"), clean(w.About), why)
	}
	r := a.checked(ctx, n, cfg)
	return a.conclude(r, func() { a.showCheck(r, n, cfg, deep) }, !r.OK)
}

// A report is the result of checking a config.
type report struct {
	OK       bool            `json:"ok"`
	State    string          `json:"state"` // the folder
	Sources  []checkedSource `json:"sources"`
	Problems []problem       `json:"problems"`
}

// A checkedSource is one source in a report.
type checkedSource struct {
	Name     string   `json:"name"`
	Protocol string   `json:"protocol"`
	Started  bool     `json:"started"`
	Tools    []string `json:"tools,omitempty"`
}

type problem struct {
	About   string `json:"about"`
	Message string `json:"message"`
}

// checked inspects a node that was opened for a check.
func (a *app) checked(ctx context.Context, n *node.Node, cfg *config.Config) report {
	r := report{State: n.StateDir(), Sources: []checkedSource{}, Problems: []problem{}}
	wrong := func(about string, err error) {
		err = tool.Errorf(tool.CodeOf(err), "%s", strings.TrimPrefix(tool.AsError(err).Message, "the "+about+", "))
		p := problem{about, because(cfg.Placed(about, err))}
		if !slices.Contains(r.Problems, p) {
			r.Problems = append(r.Problems, p)
		}
	}
	for _, s := range n.Sources() {
		one := checkedSource{Name: s.Name, Protocol: s.Protocol, Started: s.Err == nil}
		if s.Err != nil {
			wrong("source "+s.Name, s.Err)
		}
		if s.Lacks != nil {
			wrong("roots of "+s.Name, s.Lacks)
		}
		for spec, err := range n.Catalog().Specs(ctx, me()) {
			switch {
			case spec.Source != s.Name || s.Err != nil:
			case err != nil:
				wrong("tool "+clean(spec.Name)+" of "+s.Name, err)
			default:
				one.Tools = append(one.Tools, spec.Name)
			}
		}
		r.Sources = append(r.Sources, one)
	}
	for _, s := range n.Unopened() {
		r.Sources = append(r.Sources, checkedSource{Name: s.Name, Protocol: s.Protocol})
	}
	for _, p := range n.Problems() {
		wrong(p.About, p.Err)
	}
	r.Problems = slices.DeleteFunc(r.Problems, func(p problem) bool { // what a source lacks is not told of its tools, too
		_, of, isTool := strings.Cut(p.About, " of ")
		return isTool && slices.Contains(r.Problems, problem{"source " + of, p.Message})
	})
	r.OK = len(r.Problems) == 0
	return r
}

func (a *app) showCheck(r report, n *node.Node, cfg *config.Config, deep bool) {
	if kind := storage.Server(cfg); kind != "" {
		fmt.Fprintf(a.out, "%-16s %-12s %s\n", "store", kind, a.here("not contacted; `toolpost doctor` checks it"))
	}
	for _, d := range slices.Sorted(maps.Keys(n.Anonymous())) {
		fmt.Fprintf(a.out, "%-16s %-12s %s\n", "door "+d, "anonymous", a.out.amber(clean(n.Anonymous()[d].String())))
	}
	for _, s := range r.Sources {
		state := a.out.green("ok")
		i := slices.IndexFunc(r.Problems, func(p problem) bool { return p.About == "source "+s.Name })
		switch {
		case i >= 0:
			state = a.out.red("unavailable: ") + r.Problems[i].Message
		case !s.Started:
			state = "not started; --deep starts it"
		case deep:
			state += "  " + clean(strings.Join(s.Tools, ", "))
		}
		fmt.Fprintf(a.out, "%-16s %-12s %s\n", s.Name, clean(s.Protocol), state)
	}
	for _, p := range r.Problems {
		if !strings.HasPrefix(p.About, "source ") {
			fmt.Fprintf(a.out, "%s %s\n", a.out.red(clean(p.About)+":"), p.Message)
		}
	}
}
