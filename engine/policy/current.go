package policy

import (
	"path/filepath"
	"sync/atomic"

	"toolpost/config"
)

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{Name: "policy", Doc: "who may call what; default: everything is allowed", Options: Options{}}
}

// Current is the policy of the config as it is now. Until one is applied, everything is allowed.
type Current struct {
	env Env
	now atomic.Pointer[Policy]
}

// NewCurrent makes a Current for configs whose rules are about env. What a config itself says of that, its folder, its
// files and its sources, is taken from it.
func NewCurrent(env Env) *Current { return &Current{env: env} }

// Load returns the policy.
func (c *Current) Load() *Policy { return c.now.Load() }

// Read reads the policy of a config; apply goes over to it.
func (c *Current) Read(cfg *config.Config) (apply func(), err error) {
	var o Options
	if err := cfg.Section(Section().Name).Decode(&o); err != nil {
		return nil, err
	}
	env := c.env
	env.Dir, env.Config, env.Sources = cfg.Dir, configFiles(cfg), cfg.SourceNames()
	p, err := New(o, env)
	return func() { c.now.Store(p) }, err
}

// configFiles lists the files that say what tools may do, now or at the next start in this folder.
func configFiles(cfg *config.Config) []string {
	files := []string{filepath.Join(cfg.Dir, config.FileName)}
	if cfg.Path != "" && cfg.Path != files[0] {
		files = append(files, cfg.Path)
	}
	return files
}
