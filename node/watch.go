package node

import (
	"context"
	"os"
	"slices"
	"time"

	"toolpost/host/notice"
	"toolpost/host/offlimits"
	"toolpost/tool"
)

// How often Watch looks. A change is taken when two looks in a row saw the same: editors write in steps, and so does a
// checkout. What never comes to rest is taken after mostUnrest, as it is then.
const (
	lookPause  = 200 * time.Millisecond
	lookShare  = 50 // a look may take one part in so many of the time
	slowLook   = 800 * time.Millisecond
	mostUnrest = 2 * time.Second
)

// Waits for a source whose files change each time it is opened, such as one that keeps its log among them: it would be
// opened without end.
const (
	restless    = 3 * time.Second // within which it counts as such
	restlessFor = 3               // times in a row that are nobody's fault
	restPause   = 5 * time.Second // at the most
)

// Watch takes the config and the files that sources start from as they are whenever they change, and at once when now
// sends, until ctx ends. What cannot be taken, or a config that somebody else could have written, is logged, and the
// node goes on with what it has.
//
// The files of a source need no such check: what they say runs with the walls and the rights that the config gives
// them, and many sources read them anew at each call.
func (n *Node) Watch(ctx context.Context, now <-chan os.Signal) {
	w := &watch{n: n, of: map[*source]*attention{}}
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-now:
			n.tasks.Go(func() { _, _ = n.Refresh(ctx) }) // it logs what it does
		case began := <-time.After(lookPause):
			w.lookAtConfig(ctx) // however many files sources have: it says who may call
			if began.Before(next) {
				continue
			}
			began = time.Now()
			w.look()
			next = time.Now().Add(min(time.Since(began)*lookShare, slowLook) - lookPause)
		}
	}
}

// A watch is what Watch remembers from one look to the next.
type watch struct {
	n      *Node
	config attention
	of     map[*source]*attention
}

func (w *watch) lookAtConfig(ctx context.Context) {
	if sight := w.n.lookAtConfig(); w.config.due(*w.n.seen.Load(), *sight) {
		w.n.seen.Store(sight)
		w.n.tasks.Go(func() { _, _ = w.n.reloadFile(ctx) })
	}
}

// look looks at all sources once. Whatever is to be opened is not waited for: a source that hangs delays no other.
func (w *watch) look() {
	n := w.n
	n.mu.Lock()
	sources := slices.Clone(n.sources)
	n.mu.Unlock()
	for s := range w.of {
		if !slices.Contains(sources, s) {
			delete(w.of, s)
		}
	}
	for _, s := range sources {
		if w.of[s] == nil {
			w.of[s] = &attention{}
		}
		if s.opening.TryLock() { // else it is being opened, and looked at when that is over
			w.lookAt(s, w.of[s])
		}
	}
}

// lookAt looks at the files of a source, and opens it again where they have changed. It gives opening back.
func (w *watch) lookAt(s *source, a *attention) {
	n, at := w.n, w.n.standing(s)
	sight := n.look(at.claim)
	if sight.Cut && !a.warned {
		a.warned = true
		n.o.Log.Warn("a source starts from more files than are looked at; what changes in the rest is not noticed",
			"source", s.Name, "files", notice.Most)
	}
	// What is wrong with the files themselves stays wrong until they change.
	again := at.stale != nil && tool.CodeOf(at.stale) != tool.CodeInvalidInput &&
		time.Since(a.taken) > min(firstRetry<<min(at.retries, 8), lastRetry)
	switch due := a.due(at.sight, sight); {
	case due && at.dead: // somebody opens it as soon as it can be opened
		select {
		case s.wake <- struct{}{}:
		default:
		}
	case due || again:
		a.taken = time.Now()
		n.tasks.Go(func() {
			defer s.opening.Unlock()
			n.openAgain(s)
		})
		return
	}
	s.opening.Unlock()
}

// An attention is paid to some files.
type attention struct {
	last   notice.Sight
	since  time.Time // when they were first seen to have changed; zero: they have not
	taken  time.Time // when they were last taken
	streak int       // how often in a row they changed as soon as they were taken
	warned bool
}

// due reports whether files are to be taken as they are: they are others than those that were taken, and have come to
// rest.
func (a *attention) due(taken, sight notice.Sight) bool {
	now := time.Now()
	moved := a.since.IsZero() || sight != a.last
	a.last = sight
	switch {
	case sight == taken:
		a.since = time.Time{}
		return false
	case a.since.IsZero():
		a.since = now
	}
	if moved && now.Sub(a.since) < mostUnrest || now.Sub(a.taken) < a.rest() {
		return false
	}
	if a.streak++; a.since.Sub(a.taken) > restless {
		a.streak = 0
	}
	a.taken, a.since = now, time.Time{}
	return true
}

// rest is how long files are left alone after they were taken.
func (a *attention) rest() time.Duration {
	if a.streak < restlessFor {
		return 0
	}
	return min(time.Second<<min(a.streak-restlessFor, 8), restPause)
}

// look looks at the files that a source starts from.
func (n *Node) look(c offlimits.Claim) notice.Sight {
	if !n.o.Watch {
		return notice.Sight{}
	}
	return notice.Look(c.Starts)
}

func (n *Node) lookAtConfig() *notice.Sight {
	sight := notice.Sight{}
	if n.cfg.Path != "" {
		sight = notice.Look([]string{n.cfg.Path})
	}
	return &sight
}

// A standing is how it stands with a source and its files.
type standing struct {
	claim   offlimits.Claim
	sight   notice.Sight // of the files as they were taken
	dead    bool
	stale   error // why they were not taken
	retries int
}

func (n *Node) standing(s *source) standing {
	n.mu.Lock()
	defer n.mu.Unlock()
	return standing{claim: s.claim, sight: s.sight, dead: !alive(s), stale: s.stale, retries: s.retries}
}
