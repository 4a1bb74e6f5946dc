package machine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"toolpost/config"
	"toolpost/node"
	"toolpost/node/catalogue"
	"toolpost/node/storage"
	"toolpost/tool"
)

// Config is the finding about a config, or the error of reading it.
func Config(cfg *config.Config, err error) Finding {
	path := ""
	if err == nil {
		path = cmp.Or(cfg.Path, "none; the defaults are used")
	}
	return Probe("config", err, Failed, path, "lists the sources of tools; `toolpost init` writes one")
}

// Node checks what a config names: its store, doors, secrets and sources, whose tools are those of a caller.
func Node(ctx context.Context, cfg *config.Config, n *node.Node, who tool.Principal) []Finding {
	findings := storeFindings(ctx, cfg)
	for _, d := range slices.Sorted(maps.Keys(n.Anonymous())) {
		findings = append(findings, Probe("door "+d, nil, "", n.Anonymous()[d].String(),
			"lets in clients that cannot show credentials, with the rights of that caller"))
	}
	for _, s := range n.Secrets() {
		findings = append(findings, Probe("secret "+s.Name, s.Err, Failed, "from "+s.From,
			"goes to the tools whose sources name it, and is redacted everywhere else"))
	}
	for _, s := range n.Sources() {
		findings = append(findings, sourceFinding(ctx, n, s, who))
	}
	if some, lasting := n.Pins(); some && !lasting {
		findings = append(findings, Finding{
			Name: "pins", State: Missing, Detail: "there is no store: they last as long as a program",
			Means: "hold back upstream tools that change what they say of themselves",
		})
	}
	return findings
}

// storeFindings opens the store, and creates it if it is missing.
func storeFindings(ctx context.Context, cfg *config.Config) []Finding {
	const keeps = "keeps the record of every call, sessions, leases, tokens and jobs"
	db, o, err := storage.Open(cfg)
	if err == nil && db == nil {
		return []Finding{{Name: "store", State: Missing, Means: keeps,
			Detail: "none, without a config or where it says so: nothing is recorded, and there are no jobs and tokens"}}
	}
	wrong, can := "", false
	if err == nil {
		if _, err = db.Jobs().All(ctx, "", 1); err == nil {
			wrong, can, err = db.Standby(ctx)
		}
		err = cmp.Or(err, db.Close())
	}
	_, where, _ := storage.Place(o.URL)
	findings := []Finding{Probe("store", err, Failed, where, keeps)}
	if can && err == nil {
		standby := Finding{Name: "standby", State: OK, Detail: "the server has a synchronous standby",
			Means: "has every acknowledged write; a fail-over without it loses the last ones: records, used leases, ends of jobs"}
		if wrong != "" {
			standby.State, standby.Detail = Missing, wrong
		}
		findings = append(findings, standby)
	}
	return findings
}

func sourceFinding(ctx context.Context, n *node.Node, s catalogue.Status, who tool.Principal) Finding {
	f := Probe("source "+s.Name, s.Err, Failed, "", "brings tools that speak "+tool.VisibleName(s.Protocol))
	var names []string
	for spec, err := range n.Catalog().Specs(ctx, who) {
		switch {
		case spec.Source != s.Name || s.Err != nil:
		case err != nil:
			f.State = Failed
			names = append(names, spec.Name+" (unavailable: "+tool.AsError(err).Message+")")
		default:
			names = append(names, spec.Name)
		}
	}
	for _, h := range n.Held() {
		if h.Now.Source == s.Name && s.Err == nil {
			f.State = Failed
			names = append(names, tool.VisibleName(h.Now.Name)+" (held back: "+tool.AsError(h.Why).Message+")")
		}
	}
	if s.Lacks != nil {
		f.State = Failed
		names = append(names, "without "+tool.AsError(s.Lacks).Message)
	}
	f.Detail += strings.Join(names, ", ")
	return f
}
