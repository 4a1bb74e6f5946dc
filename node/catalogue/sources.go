package catalogue

import (
	"cmp"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine"
	"toolpost/host/notice"
	"toolpost/host/secret"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// Waits for sources. A dead one is retried after firstRetry, then after twice as long each time.
const (
	startPause   = time.Second // in which most sources open; names do not wait for slower ones
	openTimeout  = 10 * time.Second
	callTimeout  = 30 * time.Second // in which a call waits for its source, unless limits.timeout is set
	closeTimeout = 10 * time.Second
	lastWord     = 100 * time.Millisecond // for a source that is given up
	readyPause   = 5 * time.Second        // after the start, in which all sources should be known before doors are announced
	firstRetry   = time.Second
	lastRetry    = 30 * time.Second
)

// Settling is how long after a start sources may still appear. Work that continues from before the start waits that long for
// them.
const Settling = openTimeout + lastRetry

// A source is a configured source: with its runner, or with the reason why it has none.
type source struct {
	config.Source
	opened
	since time.Time       // when it was opened, or failed
	lent  *lent           // its secrets
	ctx   context.Context // ends when the source is replaced
	stop  context.CancelFunc

	opening   sync.Mutex       // one attempt at a time, after the first
	trying    *offlimits.Claim // of its replacement that is being opened; nil if there is none
	sight     notice.Sight     // of its files, when it was last opened or tried
	waits     bool             // it is opened on first use, or is being opened for the first time
	attempted chan struct{}    // closed when the first attempt to open it has ended
	wake      chan struct{}    // signals that a dead source should be retried at once
	stale     error            // why its current files are not used; nil if they are
	retries   int              // of those files
}

// An opened is the result of opening a source.
type opened struct {
	runner tool.Runner
	specs  []*tool.Spec
	err    error
	claim  offlimits.Claim // of its files, as they were
	list   *offlimits.List // what was off limits
	began  notice.Sight    // of its files, before they were read: later changes are noticed
}

// A Status describes one source.
type Status struct {
	Name     string
	Protocol string
	Err      error         // why it is unavailable; nil if it is available
	Opening  bool          // it is unavailable because it is still being opened
	Since    time.Time     // when it entered this state
	Workers  *tool.Workers // that its runner keeps; nil if it keeps none
	Lacks    error         // which part of it is missing; nil if none is
	Stale    error         // why its current files are not used, and its tools are the previous ones; nil if they are used
}

// Opening lists the sources that are being opened for the first time.
func (c *Catalogue) Opening() (names []string) {
	for _, s := range c.Sources() {
		if s.Opening {
			names = append(names, s.Name)
		}
	}
	return names
}

// Sources describes every source, in the order of the config.
func (c *Catalogue) Sources() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Status
	for _, s := range c.sources {
		one := Status{Name: s.Name, Protocol: s.Protocol, Err: c.env.Redactor.Error(s.err), Since: s.since, Stale: c.env.Redactor.Error(s.stale)}
		if one.Opening = s.waits && c.env.Early; one.Opening {
			one.Err = tool.Errorf(tool.CodeUnavailable, "it is still being opened")
		}
		if staffed, ok := s.runner.(tool.Staffed); ok {
			w := staffed.Workers()
			one.Workers = &w
		}
		if partial, ok := s.runner.(interface{ Lacks() error }); ok {
			one.Lacks = c.env.Redactor.Error(partial.Lacks())
		}
		list = append(list, one)
	}
	return list
}

// wanted is a config that was read and is not in place yet.
type wanted struct {
	Settings
	cfg     *config.Config
	taken   time.Time // when it was read
	sources []config.Source
	secrets map[string]secret.From
	vault   *secret.Vault
}

// read reads a config, and the secrets that it names. If it cannot be read, nothing has changed.
func (c *Catalogue) read(ctx context.Context, cfg *config.Config) (to wanted, err error) {
	to = wanted{cfg: cfg, sources: cfg.Sources, taken: time.Now()}
	if to.Settings, err = c.env.Read(cfg); err == nil {
		err = cfg.Secrets.Decode(&to.secrets)
	}
	if err == nil {
		to.sources, err = c.connected(cfg)
	}
	if err != nil {
		return to, err
	}
	to.Announce(ctx)
	to.vault = c.openVault(ctx, cfg, to.secrets)
	return to, nil
}

// connected returns the sources of a config with what describes their connections.
func (c *Catalogue) connected(cfg *config.Config) ([]config.Source, error) {
	described, err := c.env.Connections(cfg)
	sources := slices.Clone(cfg.Sources)
	for i := range sources {
		sources[i].Credentials = described[sources[i].Name]
	}
	return sources, err
}

// replace switches to other sources, secrets and settings, and returns the changes of the tools. It opens
// sources that are new or changed, and those that keep rejects. With Early, sources that take longer than pause follow
// later. The caller holds loading.
func (c *Catalogue) replace(ctx context.Context, to wanted, keep func(*source) bool, pause time.Duration) []tool.Change {
	if c.life.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)() // Close does not wait for a source that hangs
	if !c.env.Early {
		pause = math.MaxInt64
	}
	waits, enough := context.WithTimeout(ctx, pause)
	defer enough()
	c.mu.Lock()
	c.now = to
	c.limit() // before anything is opened, and for the sources that stay too
	c.mu.Unlock()
	next := make([]*source, len(to.sources))
	var fresh []*source
	for i, w := range to.sources {
		if next[i] = c.kept(w, to, keep); next[i] == nil {
			next[i] = c.newSource(w, to)
			c.mu.Lock()
			before, _ := c.before(w)
			next[i].waits, next[i].opened = true, opened{specs: before.specs, claim: c.claimed(w), list: c.checker.Now()}
			c.mu.Unlock()
			fresh = append(fresh, next[i])
			c.tasks.Go(func() { c.openFirst(next[i]) })
		}
	}
	arrived(waits, fresh)
	return c.publish(ctx, next, to)
}

// arrived waits until sources were opened for the first time; it returns false if ctx ended before.
func arrived(ctx context.Context, sources []*source) bool {
	for _, s := range sources {
		select {
		case <-s.attempted:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// openFirst opens a source for the first time, perhaps in place of one before it, which takes calls meanwhile. If its files
// do not rest, it adopts the attempt that has the most tools. If it was published meanwhile, it is published again.
func (c *Catalogue) openFirst(s *source) {
	s.opening.Lock()
	defer s.opening.Unlock()
	o := c.open(s.ctx, s.Source, s.claim)
	for again, tries := c.unfinished(s, o), 1; again && tries < mostTries; tries++ {
		other := c.open(s.ctx, s.Source, s.claim)
		if again = c.unfinished(s, other); !again || !other.fewer(o) {
			o, other = other, o
		}
		c.discard(s.Name, other.runner)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(s.attempted) // after it is published: waiting calls look again
	if s.ctx.Err() != nil {
		late := o.runner // o changes below, while the task runs
		c.tasks.Go(func() { c.discard(s.Name, late) })
		o = o.failed(context.Cause(s.ctx))
	}
	s.opened, s.sight, s.since, s.waits = o, o.began, time.Now(), false
	if s.ctx.Err() == nil && slices.Contains(c.sources, s) {
		c.limit()
		c.bind(s.ctx)
		c.retryDead(s)
		if c.late && o.err == nil {
			c.env.Log.Info("a source was opened after the start", "source", s.Name, "tools", c.engine.Listed(s.Name))
		}
	}
}

// newSource makes a source that is not opened yet.
func (c *Catalogue) newSource(w config.Source, to wanted) *source {
	s := &source{
		Source: w, lent: &lent{vault: to.vault, asked: map[string]bool{}}, wake: make(chan struct{}, 1),
		attempted: make(chan struct{}), since: time.Now(),
	}
	s.Secrets, s.Redact, s.OffLimits = s.lent, c.env.Redactor.Add, &c.checker
	s.Engine = c.inside
	s.ctx, s.stop = context.WithCancel(c.life)
	return s
}

// kept finds the source with the same config and secrets as w, if its rooms are still up to date and keep accepts it.
func (c *Catalogue) kept(w config.Source, to wanted, keep func(*source) bool) *source {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sourceOf(w)
	now := c.checker.Now()
	if s == nil || !keep(s) || !reflect.DeepEqual(s.Credentials, w.Credentials) || s.claim.Outdates(s.list, now) || now.Guard(s.claim) != nil || !s.lent.renew(to.vault) {
		return nil
	}
	return s
}

// sourceOf finds the source that was opened for w, or nil. The caller holds mu.
func (c *Catalogue) sourceOf(w config.Source) *source {
	for _, s := range c.sources {
		if s.Name == w.Name && s.Equal(w) {
			return s
		}
	}
	return nil
}

// alive selects the sources that a reload need not reopen.
func alive(s *source) bool { return s.runner != nil || s.waits }

// publish adds the new sources with the settings of their config, removes the old ones, and starts to retry the dead.
func (c *Catalogue) publish(ctx context.Context, next []*source, to wanted) []tool.Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.sources
	c.sources, c.secrets, c.vault = next, to.secrets, to.vault
	c.limit()
	var changes []tool.Change
	to.Publish(func() { changes = c.bind(ctx) })
	for _, s := range next {
		if !slices.Contains(old, s) {
			c.retryDead(s)
		}
	}
	for _, s := range old {
		if !slices.Contains(next, s) {
			s.stop()
		}
	}
	return changes
}

// retryDead starts to retry a source that could not be opened.
func (c *Catalogue) retryDead(s *source) {
	if s.err != nil && s.ctx.Err() == nil {
		c.env.Log.Warn("a source is not available; it is tried again", "source", s.Name, "error", message(s.err))
		c.tasks.Go(func() { c.retry(s) })
	}
}

// bind gives the engine the current sources, and returns the changes of the tools. The caller holds mu.
func (c *Catalogue) bind(ctx context.Context) []tool.Change {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	bindings := []engine.Binding{c.own}
	for _, s := range c.sources {
		b := engine.Binding{
			Name: s.Name, Protocol: s.Protocol, Runner: s.runner, Err: s.err, Upstream: c.upstream(s.Source), Connections: s.Connections,
		}
		if b.Waits = s.waits || len(c.inFront(s)) > 0; b.Waits {
			b.Runner, b.Err, b.Comes, b.Connects = nil, nil, c.env.Early && c.late, c.connects(s.Source)
		}
		bindings = append(bindings, b)
	}
	return c.engine.Replace(ctx, c.withRemote(bindings))
}

// withRemote adds the sources of other nodes. One that this node has too is its own while it is open: a call goes to another
// machine only if it has to.
func (c *Catalogue) withRemote(bindings []engine.Binding) []engine.Binding {
	for _, remote := range c.env.Remote() {
		i := slices.IndexFunc(bindings, func(b engine.Binding) bool { return b.Name == remote.Name })
		switch {
		case i < 0:
			bindings = append(bindings, remote)
		case bindings[i].Err != nil:
			bindings[i] = remote
		}
	}
	return bindings
}

// inFront lists the sources that are still being opened and that s is published after or with. At the start, upstream
// sources are published in the order of the config: which one was seen first decides about their names for good. The
// caller holds mu.
func (c *Catalogue) inFront(s *source) (list []*source) {
	if c.late || !c.upstream(s.Source) {
		return nil
	}
	for _, other := range c.sources[:slices.Index(c.sources, s)] {
		if other.waits && c.upstream(other.Source) {
			list = append(list, other)
		}
	}
	return list
}

// retry reopens a dead source repeatedly until it is open or replaced.
func (c *Catalogue) retry(s *source) {
	for delay := firstRetry; s.ctx.Err() == nil && c.standing(s).runner == nil; delay = min(2*delay, lastRetry) {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			delay = firstRetry
		case <-time.After(delay):
		}
		s.opening.Lock()
		c.openAgain(s)
		s.opening.Unlock()
	}
}

// open binds a source and asks it for its tools, within openTimeout or the timeout of its protocol. A source that answers
// later is closed again.
func (c *Catalogue) open(ctx context.Context, src config.Source, claim offlimits.Claim) opened {
	o := opened{claim: claim, list: c.checker.Now(), began: c.look(claim)}
	p, err := c.protocol(src.Protocol)
	if err != nil {
		return o.failed(err)
	}
	limit := openTimeout
	if p.Opens != nil {
		limit = max(limit, p.Opens(src))
	}
	late := tool.Errorf(tool.CodeUnavailable, "it did not open within %v; if this machine is busy, try again", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit-lastWord, late)
	defer cancel()
	done := make(chan opened, 1)
	c.tasks.Go(func() { done <- c.try(ctx, p, src, o) })
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
	}
	select {
	case last := <-done:
		c.tasks.Go(func() { c.discard(src.Name, last.runner) })
		if said, ok := errors.AsType[*tool.Error](last.err); ok { // it says what it waited for
			return o.failed(said)
		}
		return o.failed(context.Cause(ctx))
	case <-time.After(lastWord):
		c.tasks.Go(func() { c.discard(src.Name, (<-done).runner) })
		return o.failed(context.Cause(ctx))
	}
}

// failed returns o as a failure to open.
func (o opened) failed(err error) opened {
	return opened{err: err, claim: o.claim, list: o.list, began: o.began}
}

func (c *Catalogue) try(ctx context.Context, p all.Protocol, src config.Source, o opened) opened {
	if err := o.list.Guard(o.claim); err != nil {
		return o.failed(err)
	}
	var err error
	if o.runner, err = p.OpenSource(ctx, src, c.env.Log.With("source", src.Name)); err != nil {
		return o.failed(err)
	}
	if lister, ok := o.runner.(tool.Source); ok {
		if o.specs, err = lister.Tools(ctx); err != nil {
			c.discard(src.Name, o.runner)
			return o.failed(err)
		}
	}
	return o
}

// discard closes a runner that is not used.
func (c *Catalogue) discard(name string, r tool.Runner) {
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		c.env.Log.Warn("a source did not close cleanly", "source", name, "error", err)
	}
}

func (c *Catalogue) protocol(name string) (all.Protocol, error) {
	var names []string
	for _, p := range c.env.Protocols {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	hint := cmp.Or(nearest.Hint(name, names), "; this build speaks "+strings.Join(names, ", "))
	return all.Protocol{}, tool.Errorf(tool.CodeInvalidInput, "unknown protocol %q%s", name, hint)
}

// message returns the text of an error for people.
func message(err error) string { return tool.AsError(err).Message }

// limit updates what no tool sees or changes. That includes both what a source is about to start from, and what it still
// runs from. The caller holds mu.
func (c *Catalogue) limit() {
	l := c.offLimits(c.now.cfg, c.now.secrets, func(w config.Source) offlimits.Claim {
		// Not the claim of its current files: a half-saved file would expose what the other half protects.
		if s := c.sourceOf(w); s != nil {
			return s.claim
		}
		return c.claimed(w)
	})
	for _, s := range c.sources {
		if s.trying != nil {
			l.Add(*s.trying)
		}
	}
	if !l.Same(c.checker.Now()) {
		c.checker.Set(l)
	}
}

// offLimits lists what no tool of a config sees or changes. It covers the whole config, since a folder that one source may
// write can contain what another starts from. Unreadable options start nothing; the code that needs them reports the error.
func (c *Catalogue) offLimits(
	cfg *config.Config, from map[string]secret.From, claim func(config.Source) offlimits.Claim,
) *offlimits.List {
	l := offlimits.Default(cfg.Dir)
	l.Config = cfg.Path
	l.Add(offlimits.Claim{Keeps: []string{cfg.StateDir() + "/"}})
	l.Add(secret.Claim(cfg.Dir, from))
	for _, claim := range c.env.Claims(cfg) {
		l.Add(claim)
	}
	for _, src := range cfg.Sources {
		l.Add(claim(src))
	}
	return l
}

// claim returns the files that a source claims, as far as its entry can be read.
func (c *Catalogue) claim(src config.Source) offlimits.Claim {
	claim, _ := c.readClaim(src) // a source whose options cannot be read is not opened
	return claim
}

// readClaim returns the files that a source claims, and why its entry cannot be read.
func (c *Catalogue) readClaim(src config.Source) (offlimits.Claim, error) {
	p, err := c.protocol(src.Protocol)
	if err != nil || p.Claim == nil {
		return offlimits.Claim{}, err
	}
	claim, err := p.Claim(src)
	claim.Source = src.Name
	return claim, err
}

// claimed returns the files that a source claims which is about to be opened. If its entry cannot be read, they are those
// of the source of this name before it: a typo neither exposes what that source protects, nor reopens the sources around
// it. The caller holds mu.
func (c *Catalogue) claimed(w config.Source) offlimits.Claim {
	claim, err := c.readClaim(w)
	if before, ok := c.before(w); ok && err != nil {
		return before.claim
	}
	return claim
}

// before returns the present source of the name of w, if there is one. The caller holds mu.
func (c *Catalogue) before(w config.Source) (o opened, ok bool) {
	i := slices.IndexFunc(c.sources, func(s *source) bool { return s.Name == w.Name })
	if i < 0 {
		return o, false
	}
	return c.sources[i].opened, true
}
