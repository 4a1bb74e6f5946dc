package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/config"
	"toolpost/host/sandbox"
	"toolpost/node"
	"toolpost/tool"
)

// A finding is the doctor's result for one thing.
type finding struct {
	Name   string `json:"name"`
	State  string `json:"state"`  // ok, missing (something is weaker without it), failed (something does not work)
	Detail string `json:"detail"` // what was found
	Means  string `json:"means"`  // what it is for
}

// The states of a finding.
const (
	stateOK      = "ok"
	stateMissing = "missing"
	stateFailed  = "failed"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.withJSON("print the findings as JSON", &cobra.Command{
		Use:   "doctor",
		Short: "Report what works on this machine, and what that means",
		Long: "Checks the kernel, the interpreters, the config and its sources. \"missing\" makes something weaker;\n" +
			"\"failed\" means that something does not work, with exit code 1.",
		RunE: func(c *cobra.Command, _ []string) error {
			findings := append(machine(c.Context()), a.installation(c.Context())...)
			return a.conclude(map[string]any{"findings": findings}, func() { a.showFindings(findings) },
				slices.ContainsFunc(findings, func(f finding) bool { return f.State == stateFailed }))
		},
	})
}

func (a *app) showFindings(findings []finding) {
	marks := map[string]string{
		stateOK: a.out.green("ok     "), stateMissing: a.out.amber("missing"), stateFailed: a.out.red("failed "),
	}
	for _, f := range findings {
		detail := strings.ReplaceAll(cleanLines(f.Detail), "\n", "\n"+strings.Repeat(" ", 26))
		means := a.out.dim(strings.Repeat(" ", 26) + f.Means)
		fmt.Fprintf(a.out, "%s  %-16s %s\n%s\n", marks[f.State], f.Name, detail, means)
	}
}

// installation checks the config and what it names.
func (a *app) installation(ctx context.Context) []finding {
	const says = "says which tools there are; `toolpost init` writes one"
	cfg, err := a.load()
	if err != nil {
		return []finding{probe("config", err, stateFailed, "", says)}
	}
	f := finding{"config", stateOK, cmp.Or(cfg.Path, "none; the defaults are used"), says}
	n, end, err := a.openNode(ctx, cfg, slog.LevelError+1, node.Options{})
	if err != nil {
		return []finding{f, probe("sources", err, stateFailed, "", "bring the tools")}
	}
	defer end()
	findings := []finding{f, storeFinding(ctx, cfg)}
	for _, d := range slices.Sorted(maps.Keys(n.Anonymous())) {
		findings = append(findings, finding{
			"door " + d, stateOK, n.Anonymous()[d].String(),
			"lets in clients that cannot show credentials, with the rights of that caller",
		})
	}
	for _, s := range n.Secrets() {
		findings = append(findings, probe("secret "+s.Name, s.Err, stateFailed, "from "+s.From,
			"goes to the tools whose sources name it, and is redacted everywhere else"))
	}
	for _, s := range n.Sources() {
		findings = append(findings, sourceFinding(ctx, n, s))
	}
	if some, lasting := n.Pins(); some && !lasting {
		findings = append(findings, finding{
			"pins", stateMissing, "there is no store: they last as long as a program",
			"hold back upstream tools that change what they say of themselves",
		})
	}
	return findings
}

// storeFinding opens the store, and creates it if it is missing.
func storeFinding(ctx context.Context, cfg *config.Config) finding {
	const keeps = "keeps the record of every call, sessions, leases, tokens and jobs"
	db, o, err := node.OpenStore(cfg)
	if err == nil && db == nil {
		return finding{"store", stateMissing, "none, without a config or where it says so: nothing is recorded, " +
			"and there are no jobs and tokens", keeps}
	}
	if err == nil {
		_, err = db.Jobs().All(ctx, "", 1)
		err = cmp.Or(err, db.Close())
	}
	where, file, _ := strings.Cut(o.URL, ":")
	if where == "sqlite" { // any other URL may contain a password
		where = file
	}
	return probe("store", err, stateFailed, where, keeps)
}

func sourceFinding(ctx context.Context, n *node.Node, s node.Status) finding {
	f := probe("source "+s.Name, s.Err, stateFailed, "", "brings tools that speak "+clean(s.Protocol))
	var names []string
	for spec, err := range n.Catalog().Specs(ctx, me()) {
		switch {
		case spec.Source != s.Name || s.Err != nil:
		case err != nil:
			f.State = stateFailed
			names = append(names, spec.Name+" (unavailable: "+tool.AsError(err).Message+")")
		default:
			names = append(names, spec.Name)
		}
	}
	for _, h := range n.Held() {
		if h.Now.Source == s.Name && s.Err == nil {
			f.State = stateFailed
			names = append(names, tool.VisibleName(h.Now.Name)+" (held back: "+tool.AsError(h.Why).Message+")")
		}
	}
	if s.Lacks != nil {
		f.State = stateFailed
		names = append(names, "without "+tool.AsError(s.Lacks).Message)
	}
	f.Detail += strings.Join(names, ", ")
	return f
}

// probeTimeout bounds a program that the doctor runs.
const probeTimeout = 5 * time.Second

// machine checks the kernel and the interpreters: what this build uses, and the walls that can be built here.
func machine(ctx context.Context) []finding {
	findings := append(system(), python(ctx))
	for _, l := range sandbox.Probe() {
		f := finding{l.Name, stateOK, cmp.Or(l.Why, "works"), l.Means}
		if !l.Works {
			f.State = stateMissing
		}
		findings = append(findings, f)
	}
	return findings
}

// probe makes a finding from an error; a nil error means that the thing exists, with its detail.
func probe(name string, err error, otherwise, detail, means string) finding {
	if err != nil {
		return finding{name, otherwise, tool.AsError(err).Message, means}
	}
	return finding{name, stateOK, detail, means}
}

func python(ctx context.Context) finding {
	f := finding{Name: "python3", State: stateMissing, Means: "runs Python tools; 3.9 or later"}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	const script = "import sys; " +
		"print(sys.executable, '.'.join(map(str, sys.version_info[:3])), int(sys.version_info >= (3, 9)))"
	out, err := exec.CommandContext(ctx, "python3", "-c", script).Output()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	text := strings.TrimSpace(string(out))
	if f.Detail = strings.TrimSuffix(text, " 1"); f.Detail != text {
		f.State = stateOK
	}
	return f
}
