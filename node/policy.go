package node

import (
	"path/filepath"
	"time"

	"toolpost/config"
	"toolpost/engine/lease"
	"toolpost/engine/policy"
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
	sources := []string{ownSource}
	for _, s := range cfg.Sources {
		sources = append(sources, s.Name)
	}
	return policy.New(o, policy.Env{
		Dir: cfg.Dir, Config: configFiles(cfg), Doors: doorNames(n.o.Protocols), Sources: sources, Tier: lease.Tier, Log: n.o.Log,
	})
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
