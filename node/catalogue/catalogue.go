// Package catalogue opens the sources of a config and offers their tools to the engine. It reloads the config, watches the
// files that sources start from, retries sources that failed, and compares upstream tools with their pins.
package catalogue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine"
	"toolpost/engine/pin"
	"toolpost/host/notice"
	"toolpost/host/secret"
	"toolpost/protocol/all"
	"toolpost/tool"
)

// An Env has what a catalogue is made of.
type Env struct {
	Config    *config.Config // of the start
	Protocols []all.Protocol
	Log       *slog.Logger
	Redactor  *secret.Redactor // learns the values of all secrets
	Pins      *pin.Registry    // the memory of upstream tools

	Watch   bool // track the files that sources start from, for Watch
	Own     bool // open no source of the config
	Offline bool // open only sources that start no program and send no request to a server
	Lazy    bool // open a source on first use
	Early   bool // start before the sources are open; each follows when it is

	Only func(config.Source) bool // open only these; nil means all

	// Read reads the settings of a config, before its sources are opened. Nothing changes before Announce and Publish.
	Read func(*config.Config) (Settings, error)
	// Connections describes the connections of each source of a config, without values.
	Connections func(*config.Config) (map[string][]*tool.Credential, error)
	// Claims returns the files that no tool sees or changes because other parts of a config use them.
	Claims func(*config.Config) []offlimits.Claim
	// Remote returns the sources that other nodes of the fleet bring.
	Remote func() []engine.Binding
	// Misplaced returns which setting does not fit the published tools, or nil.
	Misplaced func() error
}

// Settings are the parts of a config that are not about sources.
type Settings struct {
	// Restart lists the parts that changed and take effect at the next start.
	Restart []string
	// Announce is called before secrets and sources are opened, which may take a long time.
	Announce func(context.Context)
	// Publish puts the settings in place, and calls bind once, which publishes the tools that they are for.
	Publish func(bind func())
}

// A Catalogue has the sources of the current config.
type Catalogue struct {
	env    Env
	engine *engine.Engine
	own    engine.Binding // the source that no config names; its name is reserved
	inside config.Engine  // for tools that call other tools

	checker offlimits.Checker            // what no tool sees or changes
	seen    atomic.Pointer[notice.Sight] // the config file when it was last read

	life    context.Context // ends with End
	end     context.CancelFunc
	born    time.Time
	start   context.Context // with Early, ends when all sources were tried, or after startPause; else it has ended
	started context.CancelFunc
	tasks   sync.WaitGroup // retries, and opens that finished too late
	loading sync.Mutex     // one Reload at a time

	mu      sync.Mutex
	late    bool      // start has ended, or is about to
	now     wanted    // the config that was loaded last
	sources []*source // in the order of the config
	secrets map[string]secret.From
	vault   *secret.Vault // nil if the config has no secrets
}

// New makes a catalogue without sources, until Start. It lives until End, though ctx may end before.
func New(ctx context.Context, env Env) *Catalogue {
	c := &Catalogue{env: env, born: time.Now(), late: !env.Early}
	c.life, c.end = context.WithCancel(context.WithoutCancel(ctx))
	if c.start, c.started = context.WithCancel(c.life); c.late {
		c.started()
	}
	c.seen.Store(c.lookAtLoaded())
	return c
}

// Start reads the config and publishes its sources and own. It opens sources concurrently, each within its timeout;
// inside is for those of their tools that call other tools.
func (c *Catalogue) Start(ctx context.Context, e *engine.Engine, own engine.Binding, inside config.Engine) error {
	c.engine, c.own, c.inside = e, own, inside
	c.loading.Lock()
	defer c.loading.Unlock()
	to, err := c.read(ctx, c.env.Config)
	if err != nil {
		return err
	}
	if c.env.Own {
		to.sources = nil
	}
	if c.env.Offline {
		to.sources = slices.DeleteFunc(slices.Clone(to.sources), c.connects)
	}
	if only := c.env.Only; only != nil {
		to.sources = slices.DeleteFunc(slices.Clone(to.sources), func(src config.Source) bool { return !only(src) })
	}
	if c.env.Lazy {
		c.await(ctx, to)
	} else {
		c.replace(ctx, to, alive, 0)
	}
	if c.env.Early {
		c.tasks.Go(c.endStart)
	}
	if c.env.Pins.Lasting {
		c.tasks.Go(func() { c.watchPins(c.life) })
	}
	return errors.Join(ctx.Err(), c.env.Misplaced())
}

// Current returns the config that was loaded last, and when it was read.
func (c *Catalogue) Current() (*config.Config, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now.cfg, c.now.taken
}

// Running returns the digest of the config whose tools are in place, or "" while another is being loaded.
func (c *Catalogue) Running() string {
	if !c.loading.TryLock() {
		return ""
	}
	defer c.loading.Unlock()
	now, _ := c.Current()
	return now.Digest()
}

// OffLimits returns the list of what no tool sees or changes.
func (c *Catalogue) OffLimits() *offlimits.Checker { return &c.checker }

// endStart ends the start once every source was tried, or after startPause. Until then, names and lists wait for the
// sources that could change them, so that they do not depend on which source is the quickest. Later, they are what the
// open sources make them: a source that hangs delays no other.
func (c *Catalogue) endStart() {
	soon, cancel := context.WithTimeout(c.life, startPause)
	defer cancel()
	arrived(soon, c.waiting(nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.started() // when it is published: waiting calls look again
	if c.late = true; c.life.Err() != nil {
		return
	}
	c.bind(c.life)
	c.warnMisplaced()
}

// Rebind publishes the sources again, with those that the fleet has now.
func (c *Catalogue) Rebind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine != nil && c.life.Err() == nil {
		c.bind(c.life)
	}
}

func (c *Catalogue) warnMisplaced() {
	if err := c.env.Misplaced(); err != nil {
		c.env.Log.Warn("a rule of limits.cache does nothing", "error", message(err))
	}
}

// Settle waits until every source was opened or has failed, but not for long after the start.
func (c *Catalogue) Settle(ctx context.Context) {
	soon, cancel := context.WithDeadline(ctx, c.born.Add(readyPause))
	defer cancel()
	arrived(soon, c.waiting(nil))
}

// End stops retries and reloads, and waits for a publication in progress: none follows it. It holds no lock when it
// returns, since a call that is waited for may be one that reloads.
func (c *Catalogue) End() {
	c.end()
	c.loading.Lock()
	defer c.loading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
}

// Wait waits, after End, for sources that are still being opened or closed.
func (c *Catalogue) Wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { c.tasks.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("some sources are still being opened: %w", ctx.Err())
	}
}
