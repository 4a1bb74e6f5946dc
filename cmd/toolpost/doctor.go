package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolpost/cmd/toolpost/machine"
	"toolpost/config"
	"toolpost/node"
	"toolpost/node/catalogue"
	"toolpost/node/storage"
	"toolpost/tool"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.withJSON("print the findings as JSON", &cobra.Command{
		Use:   "doctor",
		Short: "Report what works on this machine, and the consequences of what does not",
		Long: "Checks the kernel, the interpreters, the config and its sources. \"missing\" means that something is\n" +
			"weaker; \"failed\" means that something does not work, and the exit code is 1.",
		RunE: func(c *cobra.Command, _ []string) error {
			findings := append(machine.Check(c.Context()), a.installation(c.Context())...)
			return a.conclude(map[string]any{"findings": findings}, func() { a.showFindings(findings) },
				slices.ContainsFunc(findings, func(f machine.Finding) bool { return f.State == machine.Failed }))
		},
	})
}

func (a *app) showFindings(findings []machine.Finding) {
	marks := map[string]string{
		machine.OK: a.out.green("ok     "), machine.Missing: a.out.amber("missing"), machine.Failed: a.out.red("failed "),
	}
	for _, f := range findings {
		detail := strings.ReplaceAll(cleanLines(f.Detail), "\n", "\n"+strings.Repeat(" ", 26))
		means := a.out.dim(strings.Repeat(" ", 26) + f.Means)
		fmt.Fprintf(a.out, "%s  %-16s %s\n%s\n", marks[f.State], f.Name, detail, means)
	}
}

// installation checks the config and what it names.
func (a *app) installation(ctx context.Context) []machine.Finding {
	const says = "says which tools there are; `toolpost init` writes one"
	cfg, err := a.load()
	if err != nil {
		return []machine.Finding{machine.Probe("config", err, machine.Failed, "", says)}
	}
	f := machine.Probe("config", nil, "", cmp.Or(cfg.Path, "none; the defaults are used"), says)
	n, end, err := a.openNode(ctx, cfg, slog.LevelError+1, node.Options{})
	if err != nil {
		return []machine.Finding{f, machine.Probe("sources", err, machine.Failed, "", "bring the tools")}
	}
	defer end()
	findings := []machine.Finding{f, storeFinding(ctx, cfg)}
	for _, d := range slices.Sorted(maps.Keys(n.Anonymous())) {
		findings = append(findings, machine.Probe("door "+d, nil, "", n.Anonymous()[d].String(),
			"lets in clients that cannot show credentials, with the rights of that caller"))
	}
	for _, s := range n.Secrets() {
		findings = append(findings, machine.Probe("secret "+s.Name, s.Err, machine.Failed, "from "+s.From,
			"goes to the tools whose sources name it, and is redacted everywhere else"))
	}
	for _, s := range n.Sources() {
		findings = append(findings, sourceFinding(ctx, n, s))
	}
	if some, lasting := n.Pins(); some && !lasting {
		findings = append(findings, machine.Finding{
			Name: "pins", State: machine.Missing, Detail: "there is no store: they last as long as a program",
			Means: "hold back upstream tools that change what they say of themselves",
		})
	}
	return findings
}

// storeFinding opens the store, and creates it if it is missing.
func storeFinding(ctx context.Context, cfg *config.Config) machine.Finding {
	const keeps = "keeps the record of every call, sessions, leases, tokens and jobs"
	db, o, err := storage.Open(cfg)
	if err == nil && db == nil {
		return machine.Finding{Name: "store", State: machine.Missing, Means: keeps,
			Detail: "none, without a config or where it says so: nothing is recorded, and there are no jobs and tokens"}
	}
	if err == nil {
		_, err = db.Jobs().All(ctx, "", 1)
		err = cmp.Or(err, db.Close())
	}
	where, file, _ := strings.Cut(o.URL, ":")
	if where == "sqlite" { // any other URL may contain a password
		where = file
	}
	return machine.Probe("store", err, machine.Failed, where, keeps)
}

func sourceFinding(ctx context.Context, n *node.Node, s catalogue.Status) machine.Finding {
	f := machine.Probe("source "+s.Name, s.Err, machine.Failed, "", "brings tools that speak "+clean(s.Protocol))
	var names []string
	for spec, err := range n.Catalog().Specs(ctx, me()) {
		switch {
		case spec.Source != s.Name || s.Err != nil:
		case err != nil:
			f.State = machine.Failed
			names = append(names, spec.Name+" (unavailable: "+tool.AsError(err).Message+")")
		default:
			names = append(names, spec.Name)
		}
	}
	for _, h := range n.Held() {
		if h.Now.Source == s.Name && s.Err == nil {
			f.State = machine.Failed
			names = append(names, tool.VisibleName(h.Now.Name)+" (held back: "+tool.AsError(h.Why).Message+")")
		}
	}
	if s.Lacks != nil {
		f.State = machine.Failed
		names = append(names, "without "+tool.AsError(s.Lacks).Message)
	}
	f.Detail += strings.Join(names, ", ")
	return f
}
