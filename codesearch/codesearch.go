// Package codesearch answers questions about code: which lines match a pattern, which functions are about something,
// where a name is defined and used, and what depends on what. A codebase is a root of a workspace. A caller sees only its
// own codebases, and in each of them only the files that its call may read. The indexes that make the answers quick are
// built on first use and kept up to date.
//
// The parts are packages of their own: grep matches lines, trigram finds the files that can match, meaning ranks,
// split cuts files into functions and sections, symbol reads names, imports and manifests, and disk keeps the files of
// the indexes.
package codesearch

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"toolpost/codesearch/meaning"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// Options limit the work of a library. The zero value has useful limits.
type Options struct {
	Rate     int           `yaml:"rate" schema:"default=100" doc:"expensive operations per caller, codebase and minute; -1: unlimited"`
	MaxFile  int64         `yaml:"max_file" kind:"bytes" schema:"default=67108864" doc:"bytes of the largest file that is searched"`
	MaxLines int           `yaml:"max_lines" schema:"default=10000" doc:"lines that one grep returns at most, whatever its own limit says"`
	Index    IndexOptions  `yaml:"index" doc:"the index that makes searching fast"`
	Search   SearchOptions `yaml:"search" doc:"search by meaning"`
}

// IndexOptions are the quotas of a codebase.
type IndexOptions struct {
	Off      bool  `yaml:"off" doc:"search without an index, and write nothing to disk"`
	MaxFiles int   `yaml:"max_files" schema:"default=1000000" doc:"files and folders in a codebase; a larger one gets no index"`
	MaxBytes int64 `yaml:"max_bytes" kind:"bytes" schema:"default=4294967296" doc:"bytes of a codebase that are indexed; the rest is read on every search"`
}

const (
	defaultRate     = 100
	defaultMaxLines = 10_000
)

// A Call is a call that asks a question. Out receives its progress, since building an index takes a while; nil discards
// it.
type Call struct {
	*tool.Call
	Out tool.Sink
}

// A Library answers questions about the codebases of a workspace, which its owner closes. Every question names the call
// that asks it: the library, not the tools in front of it, decides what that call may see and how often it may ask.
type Library struct {
	ws       *workspace.Workspace
	o        Options
	stateDir string
	log      *slog.Logger
	rates    rates
	indexes  indexes
	meanings *meanings
	embedder *meaning.Service // nil means the table embedded in the program
	reranker *meaning.Service // nil if there is none
}

// Open makes a library. It keeps its files in stateDir, in one folder per codebase.
func Open(ws *workspace.Workspace, o Options, stateDir string, log *slog.Logger) (*Library, error) {
	if o.Rate < -1 || o.MaxFile < 0 || o.MaxLines < 0 || o.Index.MaxFiles < 0 || o.Index.MaxBytes < 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"a limit of the code tools is negative; give a positive number, or leave it out")
	}
	o.Rate = cmp.Or(o.Rate, defaultRate)
	o.MaxLines = cmp.Or(o.MaxLines, defaultMaxLines)
	l := &Library{
		ws: ws, o: o, stateDir: stateDir, log: log, meanings: newMeanings(),
		rates:   rates{perMinute: o.Rate, limiters: map[rateKey]*rate.Limiter{}},
		indexes: indexes{open: map[string]*indexed{}},
	}
	var err error
	if l.embedder, err = o.Search.Embeddings.service("embeddings"); err != nil {
		return nil, err
	}
	if l.reranker, err = o.Search.Reranker.service("reranker"); err != nil {
		return nil, err
	}
	return l, nil
}

// Close stops the running updates and closes the indexes. It leaves the workspace open.
func (l *Library) Close() error {
	l.meanings.close()
	return l.indexes.close()
}

// Where limits a question to a path and a codebase. Its fields have the names and the documentation of the tools'
// arguments, in which the codebase has two names.
type Where struct {
	Path      string `json:"path" schema:"minLength=1" doc:"A folder or a file to look into, relative to the codebase. Left out: everything."`
	Codebase  string `json:"codebase_id" schema:"minLength=1" doc:"Which codebase to look into, by its id from listCodebases. Left out: all of them."`
	Codebase2 string `json:"codebaseId" schema:"minLength=1" doc:"The same as codebase_id."`
}

// Looks returns w.
func (w Where) Looks() Where { return w }

// Locate returns the absolute paths that a call looks at, and the others that its path may also mean.
func (l *Library) Locate(c *tool.Call, w Where) (looks, others []string, err error) {
	v, err := l.ws.View(c).Codebase(w.codebase())
	switch {
	case err != nil:
		return nil, nil, err
	case w.Path == "":
		for _, r := range v.Roots() {
			looks = append(looks, r.Dir)
		}
		return looks, nil, nil
	}
	name, _ := v.AtCodebase(w.Path)
	here, others, err := v.Here(name, false)
	return []string{here}, others, err
}

// asked is a question in progress, with its call's view of the workspace.
type asked struct {
	context.Context
	call *tool.Call
	out  tool.Sink
	view *workspace.View
}

func (l *Library) ask(ctx context.Context, c Call) *asked {
	if c.Out == nil {
		c.Out = tool.Discard
	}
	return &asked{ctx, c.Call, c.Out, l.ws.View(c.Call)}
}

// rates limit how often a caller may run an expensive operation on each codebase.
type rates struct {
	perMinute int // -1 means unlimited

	mu       sync.Mutex
	limiters map[rateKey]*rate.Limiter
}

type rateKey struct{ caller, codebase string }

// maxLimiters is how many limiters are kept before the full ones, which limit nothing, are dropped.
const maxLimiters = 4096

// charge counts one expensive operation, or refuses it with an error that says when to retry.
func (r *rates) charge(caller, codebase string) error {
	if r.perMinute < 0 {
		return nil
	}
	now := time.Now()
	res := r.limiter(rateKey{caller, codebase}, now).ReserveN(now, 1)
	wait := res.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	res.CancelAt(now)
	return tool.Errorf(tool.CodeQuotaExceeded,
		"more than %d searches of codebase %s in a minute; try again in %v, or let `rate` of the code tools allow more",
		r.perMinute, codebase, wait.Round(time.Millisecond)).Because("rate").RetryAfter(wait)
}

func (r *rates) limiter(key rateKey, now time.Time) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.limiters[key]
	if !ok {
		if len(r.limiters) >= maxLimiters {
			r.forget(now)
		}
		l = rate.NewLimiter(rate.Limit(float64(r.perMinute)/60), r.perMinute)
		r.limiters[key] = l
	}
	return l
}

// forget drops the limiters that are full again, and if these are too few, others.
func (r *rates) forget(now time.Time) {
	for k, l := range r.limiters {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(r.limiters, k)
		}
	}
	for k := range r.limiters {
		if len(r.limiters) < maxLimiters {
			break
		}
		delete(r.limiters, k) // so many callers within a minute: bounding memory matters more
	}
}
