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

	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
)

// A finding is what the doctor says about one thing.
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
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what works on this machine, and what it means",
		Long: "Looks at the kernel, the interpreters, the config and its sources. \"missing\" makes something weaker; \"failed\"\n" +
			"means that something does not work, and gives exit code 1.",
		Args: words(0, 0),
		RunE: work(func(c *cobra.Command, _ []string) error {
			findings := append(machine(c.Context()), a.installation(c.Context())...)
			if a.json {
				if err := a.printJSON(map[string]any{"findings": findings}); err != nil {
					return err
				}
			} else {
				a.showFindings(findings)
			}
			for _, f := range findings {
				if f.State == stateFailed {
					return exitFailed
				}
			}
			return nil
		}),
	}
	a.jsonFlag(c, "print the findings as JSON")
	return c
}

func (a *app) showFindings(findings []finding) {
	for _, f := range findings {
		mark := a.out.green("ok     ")
		switch f.State {
		case stateMissing:
			mark = a.out.amber("missing")
		case stateFailed:
			mark = a.out.red("failed ")
		}
		detail := strings.ReplaceAll(cleanLines(f.Detail), "\n", "\n"+strings.Repeat(" ", 26))
		fmt.Fprintf(a.out, "%s  %-16s %s\n%s\n", mark, f.Name, detail, a.out.dim(strings.Repeat(" ", 26)+f.Means))
	}
}

// installation looks at the config and at what it names.
func (a *app) installation(ctx context.Context) []finding {
	f := finding{Name: "config", State: stateOK, Detail: "none; the defaults are used", Means: "says which tools there are; `toolpost init` writes one"}
	cfg, err := a.load()
	if err != nil {
		f.State, f.Detail = stateFailed, tool.AsError(err).Message
		return []finding{f}
	}
	if cfg.Path != "" {
		f.Detail = cfg.Path
	}
	log := a.logger(slog.LevelError + 1)
	n, err := node.Open(ctx, cfg, node.Options{Log: log})
	if err != nil {
		return []finding{f, {"sources", stateFailed, tool.AsError(err).Message, "bring the tools"}}
	}
	defer closeNode(ctx, n, log)
	findings := []finding{f, storeFinding(ctx, cfg)}
	for _, d := range slices.Sorted(maps.Keys(n.Anonymous())) {
		findings = append(findings, finding{
			"door " + d, stateOK, n.Anonymous()[d].String(), "lets in clients that cannot show credentials, with the rights of that caller",
		})
	}
	for _, s := range n.Secrets() {
		one := finding{"secret " + s.Name, stateOK, "from " + s.From, "goes to the tools whose sources name it, and is redacted everywhere else"}
		if s.Err != nil {
			one.State, one.Detail = stateFailed, tool.AsError(s.Err).Message
		}
		findings = append(findings, one)
	}
	for _, s := range n.Sources() {
		findings = append(findings, sourceFinding(ctx, n.Catalog(), s))
	}
	return findings
}

// storeFinding opens the store, which also makes it.
func storeFinding(ctx context.Context, cfg *config.Config) finding {
	f := finding{Name: "store", State: stateOK, Means: "keeps the record of every call, sessions, leases, tokens and jobs"}
	db, o, err := node.OpenStore(cfg)
	if err == nil && db == nil {
		f.State, f.Detail = stateMissing, "none, without a config or where it says so: nothing is recorded, and there are no jobs and tokens"
		return f
	}
	if err == nil {
		_, err = db.Jobs().All(ctx, "", 1)
		err = cmp.Or(err, db.Close())
	}
	if err != nil {
		f.State, f.Detail = stateFailed, tool.AsError(err).Message
		return f
	}
	scheme, file, _ := strings.Cut(o.URL, ":")
	if f.Detail = file; scheme != "sqlite" { // a URL may have a password in it
		f.Detail = scheme
	}
	return f
}

func sourceFinding(ctx context.Context, c tool.Catalog, s node.Status) finding {
	f := finding{Name: "source " + s.Name, State: stateOK, Means: "brings tools that speak " + clean(s.Protocol)}
	if s.Err != nil {
		f.State, f.Detail = stateFailed, tool.AsError(s.Err).Message
		return f
	}
	var names []string
	for spec, err := range c.Specs(ctx, me()) {
		switch {
		case spec.Source != s.Name:
		case err != nil:
			f.State = stateFailed
			names = append(names, spec.Name+" (unavailable: "+tool.AsError(err).Message+")")
		default:
			names = append(names, spec.Name)
		}
	}
	f.Detail = strings.Join(names, ", ")
	return f
}
