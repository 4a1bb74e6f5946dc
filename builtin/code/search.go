package code

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"toolpost/codesearch/meaning"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// What a search gives where its arguments say nothing, and how much of a chunk it shows.
const (
	defaultHits   = 10
	maxHits       = 100
	searchTimeout = 30 * time.Second
	snippetLines  = 40
	snippetBytes  = 2000
)

// SearchOptions are for search by meaning. The zero value needs no service.
type SearchOptions struct {
	MaxChunks  int             `yaml:"max_chunks" doc:"functions and sections of a codebase that are indexed; with more it is not searched by meaning; default: 1,000,000"`
	Embeddings *ServiceOptions `yaml:"embeddings" doc:"an OpenAI-compatible embeddings service in place of the table that comes with the program"`
	Reranker   *ServiceOptions `yaml:"reranker" doc:"a service that puts the best hits into a better order"`
}

// ServiceOptions say where a service is.
type ServiceOptions struct {
	URL        string        `yaml:"url" doc:"the whole address, such as the one that ends in /v1/embeddings"`
	Model      string        `yaml:"model" doc:"which model to ask for"`
	TokenEnv   string        `yaml:"token_env" doc:"name of the environment variable that holds its token"`
	Dimensions int           `yaml:"dimensions" doc:"of the vectors that the embeddings service gives"`
	Timeout    time.Duration `yaml:"timeout" doc:"for one request; default: 20s"`
}

func (o *ServiceOptions) service(what string) (*meaning.Service, error) {
	if o == nil {
		return nil, nil
	}
	if o.URL == "" || what == "embeddings" && (o.Dimensions < 1 || o.Dimensions > 4096) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s of code search needs a url and, for embeddings, dimensions from 1 to 4096", what)
	}
	s := &meaning.Service{URL: o.URL, Model: o.Model, Dimensions: o.Dimensions, Timeout: o.Timeout}
	if o.TokenEnv != "" {
		if s.Key = os.Getenv(o.TokenEnv); s.Key == "" {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the environment variable %s, which holds the token of %s, is not set", o.TokenEnv, what)
		}
	}
	return s, nil
}

type searchArgs struct {
	Query     string   `json:"query"`
	Limit     int      `json:"limit"`
	Path      string   `json:"path"`
	Globs     []string `json:"globs"`
	Codebase  string   `json:"codebase_id"`
	Codebase2 string   `json:"codebaseId"`
	Least     float64  `json:"min_similarity"`
}

// A hit is one piece of the answer.
type hit struct {
	Path       string  `json:"path"`
	Line       int     `json:"line"`
	EndLine    int     `json:"end_line"`
	Name       string  `json:"name,omitempty"`
	Kind       string  `json:"kind"`
	Snippet    string  `json:"snippet"`
	Similarity float64 `json:"similarity"`
}

func searchSpec() *tool.Spec {
	return &tool.Spec{
		Name:  "searchCode",
		Title: "Find code by what it does",
		Description: "Finds the functions, types and sections of documents that answer a question in plain words, such as \"retry a request with backoff\", " +
			"and gives path, line, the beginning of the text and a similarity from 0 to 1, the best first. It needs no exact words; use grepCode to find these.",
		Aliases: []string{"code.search"},
		Timeout: searchTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "query": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "What the code does, in plain words or with names that may be in it."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10, "description": "How many hits to give at most."},
    "min_similarity": {"type": "number", "minimum": 0, "maximum": 1, "default": 0, "description": "Leave out hits that are less similar than this."},
    "globs": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 256}, "maxItems": 64, "description": "Which files to look into, such as *.go; with ! in front, which to leave out."},` + targetSchema + `
  },
  "required": ["query"],
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "array",
  "items": {
    "type": "object",
    "properties": {
      "path": {"type": "string"},
      "line": {"type": "integer", "minimum": 1},
      "end_line": {"type": "integer", "minimum": 1},
      "name": {"type": "string"},
      "kind": {"enum": ["function", "type", "section", "block"]},
      "snippet": {"type": "string", "description": "The text from that line on. A long one is cut, with … at its end."},
      "similarity": {"type": "number", "minimum": 0, "maximum": 1, "description": "Means the same for every query."}
    },
    "required": ["path", "line", "snippet", "similarity"]
  }
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func (t *Tools) searchTouches(v *workspace.View, a searchArgs) ([]string, error) {
	return abs(targets(v, cmp.Or(a.Codebase, a.Codebase2), a.Path))
}

func (t *Tools) search(r *request, a searchArgs) (*tool.Result, error) {
	if a.Limit == 0 {
		a.Limit = defaultHits
	}
	if a.Limit < 1 || a.Limit > maxHits || strings.TrimSpace(a.Query) == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the query must say something, and limit is 1 to %d", maxHits)
	}
	globs, err := workspace.NewGlobs(a.Globs)
	if err != nil {
		return nil, err
	}
	s := &searching{request: r, tools: t, args: a, globs: globs, hits: []hit{}}
	if err := eachTarget(r.view, cmp.Or(a.Codebase, a.Codebase2), a.Path, s.one); err != nil {
		return nil, err
	}
	s.order()
	output, err := strictjson.Marshal(s.hits)
	return &tool.Result{OK: true, Output: output, Summary: s.summary(), Trace: tool.Trace{Details: map[string]any{"search": s.stats}}}, err
}

// A searching is one search under way.
type searching struct {
	*request
	tools *Tools
	args  searchArgs
	globs *workspace.Globs
	hits  []hit
	stats searchStats
	notes []string
}

// searchStats tell how a search went.
type searchStats struct {
	Files   int `json:"files"`
	Chunks  int `json:"chunks"`
	Indexed int `json:"indexed"` // files that had changed
}

func (s *searching) summary() string {
	return strings.Join(append([]string{count(len(s.hits), "hit")}, s.notes...), "; ")
}

func (s *searching) one(t target) error {
	scope, err := s.tools.within(s.request, t, s.globs)
	if err != nil {
		return err
	}
	x, stats, err := s.tools.meanings.fresh(s.request, s.tools, t.root)
	if x == nil {
		return err
	}
	s.note(err)
	s.stats.Files += stats.Files
	s.stats.Chunks += stats.Chunks
	s.stats.Indexed += stats.Indexed
	// Some hits fall out when their files are looked at; a reranker chooses among more than are asked for.
	found, err := x.Search(s, s.args.Query, min(2*s.args.Limit+20, meaning.MaxLimit), scope.wants)
	if found == nil && err != nil {
		return err
	}
	s.note(err)
	most := s.args.Limit
	if s.tools.reranker != nil {
		most = 2 * s.args.Limit
	}
	for _, h := range found {
		if text, ok := scope.snippet(h); ok && most > 0 {
			most--
			s.hits = append(s.hits, hit{
				Path: scope.shown(h.Path), Line: h.Line, EndLine: h.Last, Name: h.Name, Kind: string(h.Kind), Snippet: text, Similarity: round(h.Similarity),
			})
		}
	}
	return s.Err()
}

// note keeps what went wrong without stopping the search.
func (s *searching) note(err error) {
	if err != nil {
		s.tools.log.Warn("code search goes on without a part", "why", err)
		s.notes = append(s.notes, tool.AsError(err).Message)
	}
}

func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// order puts the hits of all codebases into one order and keeps as many as were asked for.
func (s *searching) order() {
	byBest := func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	}
	slices.SortFunc(s.hits, byBest)
	if r := s.tools.reranker; r != nil && len(s.hits) > 0 {
		texts := make([]string, len(s.hits))
		for i, h := range s.hits {
			texts[i] = h.Snippet
		}
		scores, err := r.Rerank(s, s.args.Query, texts)
		s.note(err)
		for i, score := range scores {
			s.hits[i].Similarity = round(score)
		}
		slices.SortStableFunc(s.hits, byBest)
	}
	s.hits = slices.DeleteFunc(s.hits, func(h hit) bool { return h.Similarity < s.args.Least })
	s.hits = s.hits[:min(len(s.hits), s.args.Limit)]
}

// within is what a call may see of a target, as the indexes ask for it.
type within struct {
	target
	filter filter
}

// within prepares a search of a target: it has to be there, and the caller may not do this too often.
func (t *Tools) within(r *request, at target, g *workspace.Globs) (*within, error) {
	w := &within{target: at, filter: filter{start: len(at.below()), globs: g, root: at.root.Dir, scope: r.call.Scope, folders: map[string]bool{}}}
	folder, err := at.view.OpenDir(at.name)
	if err != nil && tool.AsError(err).Reason != "not_a_folder" {
		return nil, err
	}
	if err == nil {
		folder.Close()
	}
	return w, t.rates.charge(r.call.Caller.ID, at.root.Codebase)
}

// wants reports whether a file of the codebase lies in the target, and whether the call may read it.
func (w *within) wants(rel string) bool {
	if rel == w.rel { // the target is this file
		return w.filter.scope == nil || w.filter.scope.Path(w.root.Dir+"/"+rel, false) == nil
	}
	if !strings.HasPrefix(rel, w.below()) || !w.filter.wants(rel) {
		return false
	}
	return w.filter.scope == nil || w.filter.scope.Path(w.root.Dir+"/"+rel, false) == nil
}

// shown gives the path that the caller sees of a file of the codebase.
func (w *within) shown(rel string) string {
	if rel == w.rel {
		return w.path
	}
	return w.target.shown(rel[len(w.below()):])
}

// read reads a file of the codebase as the call may see it.
func (w *within) read(rel string) ([]byte, error) {
	f, err := w.view.Open(rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Abs() != w.root.Dir+"/"+rel {
		return nil, tool.Errorf(tool.CodeNotFound, "%s is a link", w.shown(rel))
	}
	return f.ReadAll(maxIndexed)
}

// snippet reads the lines of a hit. It is not ok where they are not what was indexed any more, or not the call's to see.
func (w *within) snippet(h meaning.Hit) (string, bool) {
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
