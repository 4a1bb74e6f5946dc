package catalogue

import (
	"bytes"
	"context"
	"os"
	"slices"
	"time"

	"toolpost/config/offlimits"
	"toolpost/host/notice"
	"toolpost/tool"
)

// How often Watch looks. A change is adopted when two looks in a row see the same: editors write in steps, and so does a
// checkout. Files that keep changing are adopted after mostUnrest, as they are then.
const (
	lookPause  = 200 * time.Millisecond
	lookShare  = 50 // a pause is this many times as long as the look, up to slowLook
	slowLook   = 800 * time.Millisecond
	mostUnrest = 2 * time.Second
	mostTries  = 6 // to open a source for the first time while its files change
)

// Waits for a source whose files change each time it is opened, such as one that keeps its log among them: it would be
// reopened endlessly.
const (
	restless    = 3 * time.Second // a change within this time counts as such
	restlessFor = 3               // times in a row that are tolerated
	restPause   = 5 * time.Second // at most
)

// Watch adopts the config and the files that sources start from whenever they change, and at once when now sends, until ctx
// ends. If they cannot be adopted, or another user could have written the config, that is logged, and the node continues
// with what it has.
//
// The files of a source need no such check: they run with the walls and the rights that the config grants, and many sources
// read them anew at each call.
func (c *Catalogue) Watch(ctx context.Context, now <-chan os.Signal) {
	w := &watch{c: c, of: map[*source]*attention{}}
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-now:
			c.tasks.Go(func() { _, _ = c.Refresh(ctx) }) // it logs what it does
		case began := <-time.After(lookPause):
			w.lookAtConfig(ctx) // at every look, however many files sources have: the config decides who may call
			if began.Before(next) {
				continue
			}
			began = time.Now()
			w.look()
			next = time.Now().Add(min(time.Since(began)*lookShare, slowLook) - lookPause)
		}
	}
}

// A watch is what Watch remembers between looks.
type watch struct {
	c      *Catalogue
	config attention
	of     map[*source]*attention
}

func (w *watch) lookAtConfig(ctx context.Context) {
	if sight := w.c.lookAtConfig(); w.config.due(*w.c.seen.Load(), *sight) {
		w.c.seen.Store(sight)
		w.c.tasks.Go(func() { _, _ = w.c.reloadFile(ctx) })
	}
}

// look checks all sources once. It does not wait for one to open: a source that hangs delays no other.
func (w *watch) look() {
	c := w.c
	c.mu.Lock()
	sources := slices.Clone(c.sources)
	c.mu.Unlock()
	for s := range w.of {
		if !slices.Contains(sources, s) {
			delete(w.of, s)
		}
	}
	for _, s := range sources {
		if w.of[s] == nil {
			w.of[s] = &attention{}
		}
		if s.opening.TryLock() { // otherwise it is being opened, and checked afterwards
			w.lookAt(s, w.of[s])
		}
	}
}

// lookAt checks the files of a source, and reopens it if they have changed. It releases opening.
func (w *watch) lookAt(s *source, a *attention) {
	c, at := w.c, w.c.standing(s)
	sight := c.look(at.claim)
	if sight.Cut && !a.warned {
		a.warned = true
		c.env.Log.Warn("a source starts from more files than are looked at; what changes in the rest is not noticed",
			"source", s.Name, "files", notice.Most)
	}
	// Errors in the files themselves stay until the files change.
	again := at.stale != nil && tool.CodeOf(at.stale) != tool.CodeInvalidInput &&
		time.Since(a.taken) > min(firstRetry<<min(at.retries, 8), lastRetry)
	switch due := a.due(at.sight, sight); {
	case due && at.dead: // retry opens it as soon as possible
		select {
		case s.wake <- struct{}{}:
		default:
		}
	case due || again:
		a.taken = time.Now()
		c.tasks.Go(func() {
			defer s.opening.Unlock()
			c.openAgain(s)
		})
		return
	}
	s.opening.Unlock()
}

// An attention tracks the changes of some files.
type attention struct {
	last   notice.Sight
	since  time.Time // when a change was first seen; zero if there is none
	taken  time.Time // when they were last adopted
	streak int       // how often in a row they changed right after they were adopted
	warned bool
}

// due reports whether the files should be adopted: they differ from those that were adopted, and no longer change.
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

// rest returns how long files are left alone after they were adopted.
func (a *attention) rest() time.Duration {
	if a.streak < restlessFor {
		return 0
	}
	return min(time.Second<<min(a.streak-restlessFor, 8), restPause)
}

// look takes a snapshot of the files that a source starts from.
func (c *Catalogue) look(claim offlimits.Claim) notice.Sight {
	if !c.env.Watch {
		return notice.Sight{}
	}
	return notice.Look(claim.Starts)
}

func (c *Catalogue) lookAtConfig() *notice.Sight {
	sight := notice.Sight{}
	if c.env.Config.Path != "" {
		sight = notice.Look([]string{c.env.Config.Path})
	}
	return &sight
}

// lookAtLoaded looks at the config file; the sight is zero, so that Watch reads the file again, if it has changed since it
// was loaded: opening the store may have taken long.
func (c *Catalogue) lookAtLoaded() *notice.Sight {
	sight := c.lookAtConfig()
	if text, err := os.ReadFile(c.env.Config.Path); err == nil && !bytes.Equal(text, c.env.Config.Text()) {
		return &notice.Sight{}
	}
	return sight
}

// A standing is the state of a source and its files.
type standing struct {
	opened
	sight   notice.Sight // of the files as they were adopted
	dead    bool
	stale   error // why they were not adopted
	retries int
}

func (c *Catalogue) standing(s *source) standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return standing{opened: s.opened, sight: s.sight, dead: !alive(s), stale: s.stale, retries: s.retries}
}
