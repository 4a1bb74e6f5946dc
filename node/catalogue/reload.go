package catalogue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"toolpost/builtin/reload"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/tool"
)

// Reload switches to the sources, the secrets and the settings of another config, all at once. Unchanged sources with
// unchanged secrets keep their runner and their calls; calls in flight on the others end normally, under the policy that
// admitted them. Changes of parts that hold from start to end take effect at the next start. If a config cannot be read,
// that is logged, and the previous one stays.
func (c *Catalogue) Reload(ctx context.Context, cfg *config.Config) {
	_, _ = c.reload(ctx, func() (*config.Config, error) { return cfg, nil })
}

// reloadFile reads the config again. Unlike at a start, no person is watching, and the config decides what runs on this
// machine. So it is only accepted if other users cannot write it.
func (c *Catalogue) reloadFile(ctx context.Context) (reload.Report, error) {
	return c.reload(ctx, func() (cfg *config.Config, err error) {
		if c.env.Config.Path == "" {
			return c.env.Config, nil
		}
		// Half of a config may be a valid config: a file that is being saved is read again when it no longer changes.
		for range 2 * int(mostUnrest/lookPause) {
			before := c.lookAtConfig()
			c.seen.Store(before)
			cfg, err = config.LoadTrusted(c.env.Config.Path)
			if !tool.Sleep(ctx, lookPause) || *c.lookAtConfig() == *before {
				break
			}
		}
		return cfg, err
	})
}

// Refresh reads the config again, and adopts the current files of the sources: it does at once what Watch does when it
// notices a change.
func (c *Catalogue) Refresh(ctx context.Context) (reload.Report, error) {
	did, err := c.reloadFile(ctx)
	if err != nil {
		return did, err
	}
	did.Changes = append(did.Changes, c.takeFiles()...)
	for _, s := range c.Sources() {
		if why := cmp.Or(s.Err, s.Stale); why != nil {
			did.Failed = append(did.Failed, reload.Failed{Source: s.Name, Error: message(why), Stays: s.Err == nil})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		for _, why := range s.broken() {
			did.Failed = append(did.Failed, reload.Failed{Source: s.Name, Error: why, Partly: true})
		}
	}
	return did, nil
}

func (c *Catalogue) reload(ctx context.Context, load func() (*config.Config, error)) (did reload.Report, err error) {
	c.loading.Lock()
	defer c.loading.Unlock()
	cfg, err := load()
	var to wanted
	if err == nil {
		to, err = c.read(ctx, cfg)
	}
	if err != nil {
		c.env.Log.Error("the config was not reloaded; the one before it stays", "error", message(err))
		return did, err
	}
	did = reload.Report{
		Config: cfg.Path, Changes: []tool.Change{}, Failed: []reload.Failed{}, Restart: to.Restart,
	}
	if len(did.Restart) > 0 {
		c.env.Log.Warn("parts of the config changed that are read only at the start; restart to apply them",
			"parts", did.Restart)
	}
	did.Changes = append(did.Changes, c.replace(ctx, to, alive, openTimeout)...)
	for _, change := range did.Changes {
		c.env.Log.Info("the tools of a source changed", "source", change.Source, "tools", change.String())
	}
	c.warnMisplaced()
	c.env.Log.Info("config reloaded", "sources", len(cfg.Sources))
	return did, nil
}

// takeFiles reopens every source whose files have changed, and returns the changes of their tools.
func (c *Catalogue) takeFiles() (changes []tool.Change) {
	c.mu.Lock()
	sources := slices.Clone(c.sources)
	c.mu.Unlock()
	each := make([]tool.Change, len(sources))
	var opening sync.WaitGroup
	for i, s := range sources {
		opening.Go(func() {
			s.opening.Lock() // Watch may be opening it: after a reload the tools must be in place
			defer s.opening.Unlock()
			if at := c.standing(s); !at.dead && (at.stale != nil || c.look(at.claim) != at.sight) {
				each[i] = c.openAgain(s)
			}
		})
	}
	opening.Wait()
	return slices.DeleteFunc(each, tool.Change.Empty)
}

// openAgain reopens a source with its current files, and returns the changes of its tools. Calls in flight end on the
// previous runner. If it cannot be opened, the previous runner stays, and Stale has the reason. The caller holds opening.
func (c *Catalogue) openAgain(s *source) tool.Change {
	c.mu.Lock()
	claim := c.claimed(s.Source)
	s.trying = &claim
	c.limit()
	c.mu.Unlock()
	o := c.open(s.ctx, s.Source, claim)
	return c.settle(s, o, o.runner != nil && c.unfinished(s, o))
}

// unfinished reports whether o was read from files that were being saved. They may be incomplete without being invalid. So
// if a source has lost tools, its files must not change for a while. Errors that are not in the files do not wait for that.
func (c *Catalogue) unfinished(s *source, o opened) (changed bool) {
	if o.err != nil && tool.CodeOf(o.err) != tool.CodeInvalidInput || !o.fewer(c.standing(s).opened) {
		return false
	}
	const looks = 4 // an empty file looks like none, and may have been saved and emptied again since the last look
	for range looks {
		tool.Sleep(s.ctx, lookPause/looks)
		changed = changed || c.look(o.claim) != o.began
	}
	return changed
}

// settle adopts the result of reopening a source. If it is unfinished, the source is reopened when its files rest.
func (c *Catalogue) settle(s *source, o opened, unfinished bool) (did tool.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.limit()
	s.trying = nil
	if s.ctx.Err() != nil || unfinished {
		c.tasks.Go(func() { c.discard(s.Name, o.runner) })
		return did
	}
	s.sight = o.began
	dead, was := s.runner == nil, cmp.Or(s.stale, s.err)
	if err := o.loses(s.opened); err != nil {
		poorer := o.runner
		c.tasks.Go(func() { c.discard(s.Name, poorer) })
		o = opened{err: err}
	}
	switch again := was != nil && o.err != nil && message(was) == message(o.err); {
	case again: // already logged
		s.retries++
	case o.err != nil && dead:
		s.opened = o
		c.bind(s.ctx)
		c.env.Log.Warn("a source is still not available", "source", s.Name, "error", message(o.err))
	case o.err != nil:
		s.stale, s.retries = o.err, 0
		c.env.Log.Warn("the files of a source changed and are not used; its tools stay as they were", "source", s.Name,
			"error", message(o.err))
	default:
		return c.take(s, o, dead)
	}
	return did
}

// take replaces a source by its reopened form. The caller holds mu.
func (c *Catalogue) take(s *source, o opened, dead bool) (did tool.Change) {
	s.opened, s.stale, s.retries = o, nil, 0
	c.limit()
	s.list = c.checker.Now() // when it was opened, all of this was off limits, and also what was before
	did.Source = s.Name
	for _, change := range c.bind(s.ctx) {
		if change.Source == s.Name {
			did = change
		}
	}
	if dead {
		s.since = time.Now()
		c.env.Log.Info("a source is available again", "source", s.Name)
	} else {
		c.env.Log.Info("the files of a source changed", "source", s.Name, "tools", did.String())
	}
	for _, why := range s.broken() {
		c.env.Log.Warn("a part of a source cannot be used", "source", s.Name, "error", why)
	}
	outdated := func(s *source) bool { return s.claim.Outdates(s.list, c.checker.Now()) }
	if slices.ContainsFunc(c.sources, outdated) {
		c.tasks.Go(c.rebuild)
	}
	return did
}

// rebuild reopens the sources whose rooms were built with another list of what is off limits.
func (c *Catalogue) rebuild() {
	c.loading.Lock()
	defer c.loading.Unlock()
	c.mu.Lock()
	to := c.now
	c.mu.Unlock()
	to.Publish = func(bind func()) { bind() } // its settings are in place
	c.replace(c.life, to, func(*source) bool { return true }, openTimeout)
}

// loses returns why callable tools would disappear or stop being callable by mistake, such as when one of several skills was
// saved with half of its manifest. It returns nil if nothing is lost, if tools were removed on purpose, and if they are
// denied: a tool that is no longer vouched for must not go on running.
func (o opened) loses(before opened) error {
	if o.err != nil || before.runner == nil {
		return nil
	}
	if !o.fewer(before) {
		return nil
	}
	known, problems := before.problems(), o.problems()
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		why := tool.AsError(problems[name])
		if known[name] == nil && why.Code != tool.CodeAccessDenied {
			return tool.Errorf(why.Code, "%s: %s", tool.VisibleName(name), why.Message)
		}
	}
	return nil
}

// fewer reports whether a tool that was callable before is gone, or can no longer be called.
func (o opened) fewer(before opened) bool {
	left := o.callable()
	return slices.ContainsFunc(before.callable(), func(name string) bool { return !slices.Contains(left, name) })
}

// problems returns the reasons why some of the tools cannot be called.
func (o opened) problems() map[string]error {
	all := map[string]error{}
	for _, spec := range o.specs {
		if why := engine.Unavailable(o.runner, spec.Name); why != nil {
			all[spec.Name] = why
		}
	}
	return all
}

// broken says which tools cannot be called, and why.
func (o opened) broken() (list []string) {
	problems := o.problems()
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		list = append(list, tool.VisibleName(name)+" cannot be called: "+message(problems[name]))
	}
	return list
}

// callable lists the tools that can be called.
func (o opened) callable() (names []string) {
	problems := o.problems()
	for _, spec := range o.specs {
		if problems[spec.Name] == nil {
			names = append(names, spec.Name)
		}
	}
	return names
}
