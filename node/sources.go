package node

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/host/notice"
	"toolpost/host/offlimits"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/plan/planner"
	"toolpost/protocol/all"
	"toolpost/store/sqlite"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// Waits for sources. A dead one is retried after firstRetry, then after twice as long each time.
const (
	startPause   = time.Second // in which most sources open; slower ones follow later
	openTimeout  = 10 * time.Second
	closeTimeout = 10 * time.Second
	lastWord     = 100 * time.Millisecond // for a source that is given up
	readyPause   = 4 * time.Second        // in which all sources should be known before an open door is announced
	firstRetry   = time.Second
	lastRetry    = 30 * time.Second
)

// settling is how long after a start sources may still appear. Work that continues from before the start waits that long for
// them.
const settling = openTimeout + lastRetry

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

// Sources describes every source, in the order of the config.
func (n *Node) Sources() []Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []Status
	for _, s := range n.sources {
		one := Status{Name: s.Name, Protocol: s.Protocol, Err: n.redactor.Error(s.err), Since: s.since, Stale: n.redactor.Error(s.stale)}
		if one.Opening = s.waits && n.o.Early; one.Opening {
			one.Err = tool.Errorf(tool.CodeUnavailable, "it is still being opened")
		}
		if staffed, ok := s.runner.(tool.Staffed); ok {
			w := staffed.Workers()
			one.Workers = &w
		}
		if partial, ok := s.runner.(interface{ Lacks() error }); ok {
			one.Lacks = n.redactor.Error(partial.Lacks())
		}
		list = append(list, one)
	}
	return list
}

// wanted is the part of a config that concerns tools.
type wanted struct {
	cfg     *config.Config
	taken   time.Time // when it was read
	sources []config.Source
	stages  []func() // each switches one stage to the config's settings
	callers *identity.Callers
	secrets map[string]secret.From
	vault   *secret.Vault
}

// read reads the part of a config that concerns tools, and the secrets that it names.
func (n *Node) read(ctx context.Context, cfg *config.Config) (wanted, error) {
	to, err := n.understand(cfg)
	if err == nil {
		n.coming.Store(to.callers)
		n.dismiss(ctx, to.callers)
		to.secrets, to.vault, err = n.readSecrets(ctx, cfg)
	}
	if err != nil {
		n.coming.Store(nil)
	}
	return to, err
}

// understand is read without the secrets: it looks only at the config.
func (n *Node) understand(cfg *config.Config) (wanted, error) {
	if err := cfg.Only(stageSections()); err != nil {
		return wanted{}, err
	}
	if err := cfg.KeepStateIn(n.cfg.StateDir()); err != nil { // the state folder is fixed at the start
		return wanted{}, err
	}
	stages, err := n.readStages(cfg)
	if err != nil {
		return wanted{}, err
	}
	callers, err := n.readCallers(cfg)
	if err != nil {
		return wanted{}, err
	}
	if _, err := all.Check(cfg, callers.Lists); err != nil {
		return wanted{}, err
	}
	return wanted{cfg: cfg, sources: cfg.Sources, stages: stages, callers: callers, taken: time.Now()}, nil
}

// replace switches to other sources, stage settings, callers and secrets, and returns the changes of the tools. It opens
// sources that are new or changed, and those that keep rejects. With Early, sources that take longer than pause follow
// later. The caller holds loading.
func (n *Node) replace(ctx context.Context, to wanted, keep func(*source) bool, pause time.Duration) []tool.Change {
	if n.life.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.life, cancel)() // Close does not wait for a source that hangs
	if !n.o.Early {
		pause = math.MaxInt64
	}
	waits, enough := context.WithTimeout(ctx, pause)
	defer enough()
	n.mu.Lock()
	n.now = to
	n.limit() // before anything is opened, and for the sources that stay too
	n.mu.Unlock()
	next := make([]*source, len(to.sources))
	var fresh []*source
	for i, w := range to.sources {
		if next[i] = n.kept(w, to, keep); next[i] == nil {
			next[i] = n.newSource(w, to)
			n.mu.Lock()
			next[i].waits, next[i].claim, next[i].list = true, n.claimed(w), n.checker.Now()
			n.mu.Unlock()
			fresh = append(fresh, next[i])
			n.tasks.Go(func() { n.openFirst(next[i]) })
		}
	}
	arrived(waits, fresh)
	return n.publish(ctx, next, to)
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

// openFirst opens a source for the first time. If it was published meanwhile, it is published again.
func (n *Node) openFirst(s *source) {
	s.opening.Lock()
	defer s.opening.Unlock()
	sight := n.look(s.claim)
	o := n.open(s.ctx, s.Source, s.claim)
	n.mu.Lock()
	defer n.mu.Unlock()
	defer close(s.attempted) // after it is published: waiting calls look again
	if s.ctx.Err() != nil {
		n.tasks.Go(func() { n.discard(s.Name, o.runner) })
		o = o.failed(context.Cause(s.ctx))
	}
	s.opened, s.sight, s.since, s.waits = o, sight, time.Now(), false
	if s.ctx.Err() == nil && slices.Contains(n.sources, s) {
		n.limit()
		n.bind(s.ctx)
		n.retryDead(s)
		n.o.Log.Info("a source was opened after the start", "source", s.Name, "tools", len(o.specs))
	}
}

// newSource makes a source that is not opened yet.
func (n *Node) newSource(w config.Source, to wanted) *source {
	s := &source{
		Source: w, lent: &lent{vault: to.vault, asked: map[string]bool{}}, wake: make(chan struct{}, 1),
		attempted: make(chan struct{}),
	}
	s.Secrets, s.Redact, s.OffLimits = s.lent, n.redactor.Add, &n.checker
	s.Engine = n.inside()
	s.ctx, s.stop = context.WithCancel(n.life)
	return s
}

// kept finds the source with the same config and secrets as w, if its rooms are still up to date and keep accepts it.
func (n *Node) kept(w config.Source, to wanted, keep func(*source) bool) *source {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sourceOf(w)
	now := n.checker.Now()
	if s == nil || !keep(s) || s.claim.Outdates(s.list, now) || now.Guard(s.claim) != nil || !s.lent.renew(to.vault) {
		return nil
	}
	return s
}

// sourceOf finds the source that was opened for w, or nil. The caller holds mu.
func (n *Node) sourceOf(w config.Source) *source {
	for _, s := range n.sources {
		if s.Name == w.Name && s.Equal(w) {
			return s
		}
	}
	return nil
}

// alive selects the sources that a reload need not reopen.
func alive(s *source) bool { return s.runner != nil || s.waits }

// publish adds the new sources behind their stages, removes the old ones, and starts to retry the dead.
func (n *Node) publish(ctx context.Context, next []*source, to wanted) []tool.Change {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.sources
	n.sources, n.secrets, n.vault = next, to.secrets, to.vault
	n.limit()
	for _, apply := range to.stages { // bind publishes them together with the sources
		apply()
	}
	changes := n.bind(ctx)
	n.callers.Store(to.callers) // new callers come in under the new policy
	n.coming.Store(nil)
	for _, s := range next {
		if !slices.Contains(old, s) {
			n.retryDead(s)
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
func (n *Node) retryDead(s *source) {
	if s.err != nil && s.ctx.Err() == nil {
		n.o.Log.Warn("a source is not available; it is tried again", "source", s.Name, "error", message(s.err))
		n.tasks.Go(func() { n.retry(s) })
	}
}

// bind gives the engine the current sources, and returns the changes of the tools. The caller holds mu.
func (n *Node) bind(ctx context.Context) []tool.Change {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	bindings := slices.Clone(n.own)
	for _, s := range n.sources {
		bindings = append(bindings, engine.Binding{
			Name: s.Name, Protocol: s.Protocol, Runner: s.runner, Err: s.err, Upstream: n.upstream(s.Source),
			Waits: s.waits, Comes: s.waits && n.o.Early, Connects: s.waits && n.connects(s.Source),
		})
	}
	return n.engine.Replace(ctx, bindings)
}

// retry reopens a dead source repeatedly until it is open or replaced.
func (n *Node) retry(s *source) {
	for delay := firstRetry; !n.settled(s); delay = min(2*delay, lastRetry) {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			delay = firstRetry
		case <-time.After(delay):
		}
		s.opening.Lock()
		n.openAgain(s)
		s.opening.Unlock()
	}
}

// settled reports whether there is nothing left to retry.
func (n *Node) settled(s *source) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return s.runner != nil || s.ctx.Err() != nil
}

// open binds a source and asks it for its tools, within openTimeout or the timeout of its protocol. A source that answers
// later is closed again.
func (n *Node) open(ctx context.Context, src config.Source, claim offlimits.Claim) opened {
	o := opened{claim: claim, list: n.checker.Now()}
	p, err := n.protocol(src.Protocol)
	if err != nil {
		return o.failed(err)
	}
	limit := openTimeout
	if p.Opens != nil {
		limit = max(limit, p.Opens(src))
	}
	late := tool.Errorf(tool.CodeUnavailable, "it did not open within %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit-lastWord, late)
	defer cancel()
	done := make(chan opened, 1)
	n.tasks.Go(func() { done <- n.try(ctx, p, src, o) })
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
	}
	select {
	case last := <-done:
		n.tasks.Go(func() { n.discard(src.Name, last.runner) })
		if said, ok := errors.AsType[*tool.Error](last.err); ok { // it says what it waited for
			return o.failed(said)
		}
		return o.failed(context.Cause(ctx))
	case <-time.After(lastWord):
		n.tasks.Go(func() { n.discard(src.Name, (<-done).runner) })
		return o.failed(context.Cause(ctx))
	}
}

// failed returns o as a failure to open.
func (o opened) failed(err error) opened { return opened{err: err, claim: o.claim, list: o.list} }

func (n *Node) try(ctx context.Context, p Protocol, src config.Source, o opened) opened {
	if err := o.list.Guard(o.claim); err != nil {
		return o.failed(err)
	}
	var err error
	if o.runner, err = p.Open(ctx, src, n.o.Log.With("source", src.Name)); err != nil {
		return o.failed(err)
	}
	if lister, ok := o.runner.(tool.Source); ok {
		if o.specs, err = lister.Tools(ctx); err != nil {
			n.discard(src.Name, o.runner)
			return o.failed(err)
		}
	}
	return o
}

// discard closes a runner that is not used.
func (n *Node) discard(name string, r tool.Runner) {
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		n.o.Log.Warn("a source did not close cleanly", "source", name, "error", err)
	}
}

func (n *Node) protocol(name string) (Protocol, error) {
	var names []string
	for _, p := range n.o.Protocols {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	hint := cmp.Or(nearest.Hint(name, names), "; this build speaks "+strings.Join(names, ", "))
	return Protocol{}, tool.Errorf(tool.CodeInvalidInput, "unknown protocol %q%s", name, hint)
}

// message returns the text of an error for people.
func message(err error) string { return tool.AsError(err).Message }

// limit updates what no tool sees or changes. That includes both what a source is about to start from, and what it still
// runs from. The caller holds mu.
func (n *Node) limit() {
	l := n.offLimits(n.now.cfg, n.now.secrets, func(w config.Source) offlimits.Claim {
		// Not the claim of its current files: a half-saved file would expose what the other half protects.
		if s := n.sourceOf(w); s != nil {
			return s.claim
		}
		return n.claimed(w)
	})
	for _, s := range n.sources {
		if s.trying != nil {
			l.Add(*s.trying)
		}
	}
	if !l.Same(n.checker.Now()) {
		n.checker.Set(l)
	}
}

// offLimits lists what no tool of a config sees or changes. It covers the whole config, since a folder that one source may
// write can contain what another starts from. Unreadable options start nothing; the code that needs them reports the error.
func (n *Node) offLimits(
	cfg *config.Config, from map[string]secret.From, claim func(config.Source) offlimits.Claim,
) *offlimits.List {
	l := offlimits.Default(cfg.Dir)
	l.Config = cfg.Path
	l.Add(offlimits.Claim{Keeps: []string{cfg.StateDir() + "/"}})
	l.Add(storeClaim(cfg))
	l.Add(secret.Claim(cfg.Dir, from))
	var callers identity.Options
	_ = cfg.Callers.Decode(&callers)
	for _, issuer := range callers.JWT {
		if !strings.Contains(issuer.JWKS, "://") {
			l.Add(offlimits.Claim{Starts: offlimits.Given(cfg.Dir, issuer.JWKS)})
		}
	}
	for _, d := range cfg.Doors {
		claim, _ := all.DoorClaim(d, cfg.Dir)
		l.Add(claim)
	}
	if socket, ok := strings.CutPrefix(n.o.Listen, "unix:"); ok { // from the command line, so relative to the working folder
		if path, err := filepath.Abs(socket); err == nil {
			l.Add(offlimits.Claim{Keeps: []string{path}})
		}
	}
	for _, claim := range planner.Claims(cfg) {
		l.Add(claim)
	}
	for _, src := range cfg.Sources {
		l.Add(claim(src))
	}
	return l
}

// claim returns the files that a source claims.
func (n *Node) claim(src config.Source) offlimits.Claim {
	p, err := n.protocol(src.Protocol)
	if err != nil || p.Claim == nil {
		return offlimits.Claim{}
	}
	claim, _ := p.Claim(src) // a source whose options cannot be read is not opened
	claim.Source = src.Name
	return claim
}

// claimed returns the files that a source claims which is about to be opened. If its entry cannot be read, they are those
// of the source of this name before it: a typo neither exposes what that source protects, nor reopens the sources around
// it. The caller holds mu.
func (n *Node) claimed(w config.Source) offlimits.Claim {
	i := slices.IndexFunc(n.sources, func(s *source) bool { return s.Name == w.Name })
	if i >= 0 && n.unreadable(w) != nil {
		return n.sources[i].claim
	}
	return n.claim(w)
}

// storeClaim returns the files of the store: the key of its log, and the files of SQLite, which come and go. Some of those
// are beside the target of a link.
func storeClaim(cfg *config.Config) offlimits.Claim {
	var o StoreOptions
	_ = cfg.Store.Decode(&o)
	c := postgresClaim(o.URL)
	c.Keeps = append(c.Keeps, offlimits.Given(cfg.Dir, o.Audit.Key)...)
	file, ok := strings.CutPrefix(o.URL, "sqlite:")
	if !ok || file == "" {
		return c
	}
	file = offlimits.Under(cfg.Dir, file)
	if real, err := filepath.EvalSymlinks(file); err == nil && real != filepath.Clean(file) {
		c.Keeps = append(c.Keeps, sqlite.Files(real)...)
	}
	if !offlimits.Within(filepath.Clean(file), cfg.StateDir()) { // otherwise the folder is kept as a whole
		c.Keeps = append(c.Keeps, sqlite.Files(file)...)
	}
	return c
}

// postgresClaim returns the files in a PostgreSQL URL, which are relative to the working folder of this program.
func postgresClaim(text string) (c offlimits.Claim) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return c
	}
	dir, err := os.Getwd()
	if err != nil {
		return c
	}
	q := u.Query()
	c.Keeps = offlimits.Given(dir, q.Get("sslkey"), q.Get("passfile"), q.Get("servicefile"))
	c.Starts = offlimits.Given(dir, q.Get("sslcert"))
	if root := q.Get("sslrootcert"); root != "system" { // not a file, but the machine's own
		c.Starts = append(c.Starts, offlimits.Given(dir, root)...)
	}
	return c
}
