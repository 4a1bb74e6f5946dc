package codesearch

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"toolpost/codesearch/meaning"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// Defaults of a search, and how much of a chunk it shows.
const (
	defaultHits  = 10
	maxHits      = 100
	snippetLines = 40
	snippetBytes = 2000
)

// SearchOptions configure semantic search. The zero value needs no service.
type SearchOptions struct {
	MaxChunks  int             `yaml:"max_chunks" schema:"default=1000000" doc:"functions and sections in a codebase; a larger one cannot be searched by meaning"`
	Embeddings *ServiceOptions `yaml:"embeddings" doc:"an OpenAI-compatible embeddings service, used instead of the built-in table of word vectors"`
	Reranker   *ServiceOptions `yaml:"reranker" doc:"a service that reorders the best hits"`
}

// ServiceOptions configure a remote service.
type ServiceOptions struct {
	URL        string        `yaml:"url" doc:"full URL, such as one that ends in /v1/embeddings"`
	Model      string        `yaml:"model" doc:"the model to ask for"`
	TokenEnv   string        `yaml:"token_env" doc:"environment variable with the service's token"`
	Dimensions int           `yaml:"dimensions" doc:"length of the vectors that the service returns"`
	Timeout    time.Duration `yaml:"timeout" schema:"default=20s" doc:"time limit of one request"`
}

func (o *ServiceOptions) service(what string) (*meaning.Service, error) {
	if o == nil {
		return nil, nil
	}
	if o.URL == "" || what == "embeddings" && (o.Dimensions < 1 || o.Dimensions > 4096) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s of code search needs a url and, for embeddings, dimensions "+
			"from 1 to 4096", what)
	}
	s := &meaning.Service{URL: o.URL, Model: o.Model, Dimensions: o.Dimensions, Timeout: o.Timeout}
	if o.TokenEnv != "" {
		if s.Key = os.Getenv(o.TokenEnv); s.Key == "" {
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"the environment variable %s, which holds the token of %s, is not set", o.TokenEnv, what)
		}
	}
	return s, nil
}

// A SearchQuery asks for code by what it does.
type SearchQuery struct {
	Query string   `json:"query" schema:"required minLength=1 maxLength=1000" doc:"What the code does, in plain words or with names that may be in it."`
	Limit int      `json:"limit" schema:"minimum=1 maximum=100 default=10" doc:"How many hits to give at most."`
	Least float64  `json:"min_similarity" schema:"minimum=0 maximum=1 default=0" doc:"Leave out hits that are less similar than this."`
	Globs []string `json:"globs" schema:"items.minLength=1 items.maxLength=256 maxItems=64" doc:"Which files to look into, such as *.go; with ! in front, which to leave out."`
	Where
}

// A Hit is a function, a type or a section that answers a query.
type Hit struct {
	Path       string  `json:"path"`
	Line       int     `json:"line" schema:"minimum=1"`
	EndLine    int     `json:"end_line" schema:"minimum=1"`
	Name       string  `json:"name,omitempty"`
	Kind       string  `json:"kind" schema:"enum=function|type|section|block"`
	Snippet    string  `json:"snippet" doc:"The text from that line on. A long one is cut, with … at its end."`
	Similarity float64 `json:"similarity" schema:"minimum=0 maximum=1" doc:"Means the same for every query."`
}

// SearchStats report how a search went.
type SearchStats struct {
	Files   int `json:"files"`
	Chunks  int `json:"chunks"`
	Indexed int `json:"indexed"` // files that were indexed again because they had changed
}

// Found is the result of a search, best first.
type Found struct {
	Hits  []Hit
	Stats SearchStats
	Notes []string // errors that did not stop the search
}

// Search finds code by what it does.
func (l *Library) Search(ctx context.Context, c Call, q SearchQuery) (*Found, error) {
	q.Limit = cmp.Or(q.Limit, defaultHits)
	if q.Limit < 1 || q.Limit > maxHits || strings.TrimSpace(q.Query) == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the query must say something, and limit is 1 to %d", maxHits)
	}
	globs, err := workspace.NewGlobs(q.Globs)
	if err != nil {
		return nil, err
	}
	s := &searching{asked: l.ask(ctx, c), library: l, q: q, globs: globs, Found: Found{Hits: []Hit{}}}
	if err := eachTarget(s.view, q.Where, s.one); err != nil {
		return nil, err
	}
	s.order()
	return &s.Found, nil
}

// A searching is one search in progress.
type searching struct {
	*asked
	Found
	library *Library
	q       SearchQuery
	globs   *workspace.Globs
}

func (s *searching) one(t target) error {
	w, err := s.library.open(s.asked, t, s.globs)
	if w == nil {
		return err
	}
	s.note(err)
	s.Stats.Files += w.stats.Files
	s.Stats.Chunks += w.stats.Chunks
	s.Stats.Indexed += w.stats.Indexed
	// Some hits are dropped when their files are read, and a reranker chooses among more hits than were requested.
	found, err := w.index.Search(s, s.q.Query, min(2*s.q.Limit+20, meaning.MaxLimit), w.wants)
	if found == nil && err != nil {
		return err
	}
	s.note(err)
	most := s.q.Limit
	if s.library.reranker != nil {
		most = 2 * s.q.Limit
	}
	for _, h := range found {
		if text, ok := w.snippet(h); ok && most > 0 {
			most--
			s.Hits = append(s.Hits, Hit{
				Path: w.shown(h.Path), Line: h.Line, EndLine: h.Last, Name: h.Name, Kind: string(h.Kind),
				Snippet: text, Similarity: round(h.Similarity),
			})
		}
	}
	return s.Err()
}

// note records an error that does not stop the search.
func (s *searching) note(err error) {
	if err != nil {
		s.library.log.Warn("code search goes on without a part", "why", err)
		s.Notes = append(s.Notes, tool.AsError(err).Message)
	}
}

func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// order sorts the hits of all codebases together and keeps as many as were requested.
func (s *searching) order() {
	byBest := func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), strings.Compare(a.Path, b.Path),
			cmp.Compare(a.Line, b.Line))
	}
	slices.SortFunc(s.Hits, byBest)
	if r := s.library.reranker; r != nil && len(s.Hits) > 0 {
		texts := make([]string, len(s.Hits))
		for i, h := range s.Hits {
			texts[i] = h.Snippet
		}
		scores, err := r.Rerank(s, s.q.Query, texts)
		s.note(err)
		for i, score := range scores {
			s.Hits[i].Similarity = round(score)
		}
		slices.SortStableFunc(s.Hits, byBest)
	}
	s.Hits = slices.DeleteFunc(s.Hits, func(h Hit) bool { return h.Similarity < s.q.Least })
	s.Hits = s.Hits[:min(len(s.Hits), s.q.Limit)]
}

// enter begins a look into a target: it must exist, and the caller must be within its rate limit.
func (l *Library) enter(r *asked, at target) (isFolder bool, err error) {
	folder, err := at.view.OpenDir(at.name)
	if err == nil {
		isFolder = true
		folder.Close()
	} else if tool.AsError(err).Reason != "not_a_folder" {
		return false, err
	}
	return isFolder, l.rates.charge(r.call.Caller.ID, at.root.Codebase)
}

// A scoped target is the part of a target that a call may see, in the form that the indexes need.
type scoped struct {
	target
	filter filter
	index  *meaning.Index
	stats  meaning.Stats
}

// open enters a target and updates the index of its codebase. If only the embeddings failed, it returns both the target
// and an error.
func (l *Library) open(r *asked, at target, g *workspace.Globs) (*scoped, error) {
	if _, err := l.enter(r, at); err != nil {
		return nil, err
	}
	x, stats, err := l.meanings.fresh(r, l, at.root)
	if x == nil {
		return nil, err
	}
	return &scoped{at, newFilter(r, at, g), x, stats}, err
}

// visible reports whether the call may read a file of the codebase, inside or outside the target.
func (w *scoped) visible(rel string) bool {
	return w.filter.scope == nil || w.filter.scope.Path(w.root.Dir+"/"+rel, false) == nil
}

// wants reports whether a file of the codebase is in the target and the call may read it.
func (w *scoped) wants(rel string) bool {
	return (rel == w.rel || strings.HasPrefix(rel, w.below()) && w.filter.wants(rel)) && w.visible(rel)
}

// files returns files of the codebase with their texts: those in the target that exist and that the call may read, up to
// maxFiles.
func (w *scoped) files(rels []string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		looked := 0
		for _, rel := range rels {
			if !w.wants(rel) {
				continue
			}
			if looked++; looked > maxFiles {
				return
			}
			if src, err := w.read(rel); err == nil && !yield(rel, src) {
				return
			}
		}
	}
}

// shown returns the path that the caller sees of a file of the codebase.
func (w *scoped) shown(rel string) string {
	if rel == w.rel {
		return w.path
	}
	return w.target.shown(rel[len(w.below()):])
}

// read reads a file of the codebase with the rights of the call.
func (w *scoped) read(rel string) ([]byte, error) {
	f, err := w.view.Open(rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Abs() != w.root.Dir+"/"+rel {
		return nil, tool.Errorf(tool.CodeNotFound, "%s is a link", w.shown(rel))
	}
	return f.ReadAll(meaning.MaxFile)
}

// snippet reads the lines of a hit. It returns false if they have changed since they were indexed, or if the call may not
// see them.
func (w *scoped) snippet(h meaning.Hit) (string, bool) {
	src, err := w.read(h.Path)
	if err != nil {
		return "", false
	}
	lines := bytes.SplitN(src, []byte{'\n'}, h.Last+1)
	if len(lines) < h.Last {
		return "", false
	}
	lines = lines[h.Line-1 : h.Last]
	if meaning.Hash(bytes.Join(lines, []byte{'\n'})) != h.Hash {
		return "", false
	}
	cut := len(lines) > snippetLines
	text := bytes.Join(lines[:min(len(lines), snippetLines)], []byte{'\n'})
	if len(text) > snippetBytes {
		text, cut = text[:snippetBytes], true
	}
	s := strings.ToValidUTF8(string(text), "")
	if cut {
		s += "…"
	}
	return s, true
}
