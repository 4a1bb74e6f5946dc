// Package codesearch answers questions about code: which lines match a pattern, which functions are about something,
// where a name is defined and used, and what depends on what. A codebase is a root of a workspace; a caller sees its
// own and no others, and of each what its call may read. The indexes that make the answers quick are made when they
// are first needed and kept up to date.
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

// Options say how much a library takes on. The zero value has useful limits.
type Options struct {
	Rate     int           `yaml:"rate" schema:"default=100" doc:"expensive operations per caller, codebase and minute; -1: unlimited"`
	MaxFile  int64         `yaml:"max_file" schema:"default=67108864" doc:"bytes of the largest file that is searched"`
	MaxLines int           `yaml:"max_lines" schema:"default=10000" doc:"lines that one grep returns at most, whatever its own limit says"`
	Index    IndexOptions  `yaml:"index" doc:"the index that makes searching fast"`
	Search   SearchOptions `yaml:"search" doc:"search by meaning"`
}

// IndexOptions are the quotas of a codebase.
type IndexOptions struct {
	Off      bool  `yaml:"off" doc:"search without an index, and write nothing to disk"`
	MaxFiles int   `yaml:"max_files" schema:"default=1000000" doc:"files and folders in a codebase; a larger one gets no index"`
	MaxBytes int64 `yaml:"max_bytes" schema:"default=4294967296" doc:"bytes of a codebase that are indexed; the rest is read on every search"`
}

const (
	defaultRate     = 100
	defaultMaxLines = 10_000
)

// A Call is one that asks something. Out gets its progress: to make an index takes a while. Nil: nobody wants to know.
type Call struct {
	*tool.Call
	Out tool.Sink
}

// A Library answers questions about the codebases of a workspace, which stays its owner's. Every question names the
// call that asks it: who may see what, and how often, is decided here and not by the tools in front.
type Library struct {
	ws       *workspace.Workspace
	o        Options
	stateDir string
	log      *slog.Logger
	rates    rates
	indexes  indexes
	meanings *meanings
	embedder *meaning.Service // nil: the table that comes with the program
	reranker *meaning.Service // nil: none
}

// Open makes a library. What it keeps lies in stateDir, a folder for each codebase.
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

// Close ends what is under way and closes the indexes. The workspace is its owner's to close.
func (l *Library) Close() error {
	l.meanings.close()
	return l.indexes.close()
}

// Where says where a question looks. What is asked has the names and the documentation of the tools' arguments, which
// may say the codebase by either name.
type Where struct {
	Path      string `json:"path" schema:"minLength=1" doc:"A folder or a file to look into, relative to the codebase. Left out: everything."`
	Codebase  string `json:"codebase_id" schema:"minLength=1" doc:"Which codebase to look into, by its id of listCodebases. Left out: all of them."`
	Codebase2 string `json:"codebaseId" schema:"minLength=1" doc:"The same as codebase_id."`
}

// Looks returns where a question looks.
func (w Where) Looks() Where { return w }

// Locate returns the absolute paths where a call looks, and those where its path may be too.
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

// asked is a question under way, with what its call sees of the workspace.
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

// rates bound how often a caller does what is expensive, on each codebase.
type rates struct {
	perMinute int // -1: any number

	mu       sync.Mutex
	limiters map[rateKey]*rate.Limiter
}

type rateKey struct{ caller, codebase string }

// maxLimiters is how many are kept before those are forgotten that would let anything through.
const maxLimiters = 4096

// charge counts one expensive operation, or refuses it and says when it is allowed.
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

// forget drops the limiters that are full again.
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
		delete(r.limiters, k) // so many callers in a minute: memory comes first
	}
}
