package node

import (
	"encoding/json"
	"path/filepath"
	"time"

	"toolpost/config"
	"toolpost/engine/audit"
	"toolpost/engine/policy"
	"toolpost/engine/quota"
	"toolpost/protocol/all"
	"toolpost/tool"
)

// ByTool is the rule of a decision that the tool itself made, not the policy.
const ByTool = policy.ByTool

// ownSource is the source of the tools that Toolpost itself brings; no source of a config is called so.
const ownSource = "toolpost"

// readPolicy reads the policy section.
func (n *Node) readPolicy(cfg *config.Config) (*policy.Policy, error) {
	var o policy.Options
	if err := cfg.Policy.Decode(&o); err != nil {
		return nil, err
	}
	return policy.New(o, policy.Env{
		Dir: cfg.Dir, Config: configFiles(cfg), Doors: doorNames(n.o.Protocols), Sources: sourceNames(cfg), Log: n.o.Log,
		Redact: func(args json.RawMessage) json.RawMessage {
			return n.redactor.JSON(audit.Redacted(args, n.storing.Audit.Redact))
		},
	})
}

// readQuotas reads limits.quotas.
func (n *Node) readQuotas(cfg *config.Config) ([]quota.Rule, error) {
	var rules []quota.Rule
	if err := cfg.Limits.Quotas.Decode(&rules); err != nil {
		return nil, err
	}
	return rules, quota.Env{Doors: doorNames(n.o.Protocols), Sources: sourceNames(cfg)}.Check(rules)
}

// sourceNames lists the sources that a rule can speak of.
func sourceNames(cfg *config.Config) []string {
	names := []string{ownSource}
	for _, s := range cfg.Sources {
		names = append(names, s.Name)
	}
	return names
}

// configFiles lists the files that say what tools may do, now or at the next start in this folder.
func configFiles(cfg *config.Config) []string {
	files := []string{filepath.Join(cfg.Dir, config.FileName)}
	if cfg.Path != "" && cfg.Path != files[0] {
		files = append(files, cfg.Path)
	}
	return files
}

// doorNames lists the doors that a call can have come in by: those of a config, the command line, and each
// protocol that can be spoken on stdin and stdout.
func doorNames(protocols []Protocol) []string {
	names := []string{"cli"}
	for _, d := range all.DoorParts() {
		names = append(names, d.Name)
	}
	for _, p := range protocols {
		names = append(names, p.Name)
	}
	return names
}

// Explain says what the policy decides about a call, as of a time, and why.
func (n *Node) Explain(c *tool.Call, at time.Time) (Explanation, error) {
	e, err := n.engine.Explain(c, at)
	return e, n.redactor.Error(err)
}

// ParseRecord reads a line of the file that policy.record names.
func ParseRecord(line []byte) (DecisionRecord, error) { return policy.ParseRecord(line) }

// Spec finds a tool for whoever runs the node, also where the policy hides it from them.
func (n *Node) Spec(name string) (*tool.Spec, error) { return n.engine.Spec(name) }
