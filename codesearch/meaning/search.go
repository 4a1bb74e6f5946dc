package meaning

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"

	"toolpost/codesearch/split"
	"toolpost/tool"
)

// A Hit is a chunk that answers a question.
type Hit struct {
	Path       string
	Line, Last int // the lines of the chunk
	Define     int // the line of its name
	Kind       split.Kind
	Name       string
	Hash       uint32 // of its lines when they were indexed; see Hash
	// Similarity is between 0 and 1 and comparable between questions: a mix of Lexical and Semantic.
	Similarity float64
	// Lexical is the share of the question's words that the chunk has, with more weight on rare words: the BM25 score as
	// a share of the highest possible score of the question.
	Lexical float64
	// Semantic is the cosine between the question and the chunk, or 0 if it is negative.
	Semantic float64
}

// Limits of a question.
const (
	MaxQuery = 1000
	MaxLimit = 1000
)

// candidates is how many chunks each of the two rankings proposes for a closer look.
const candidates = 2000

// BM25's two parameters are the usual ones. The share of words in the mix was chosen by `make eval` in steps of a tenth;
// between 0.3 and 0.6 it hardly matters.
const (
	bm25K1   = 1.2
	bm25B    = 0.75
	mixWords = 0.4
)

// A Mode selects what a ranking is based on.
type Mode int

// The modes. The tools use Mixed; the evaluation compares it with the others.
const (
	Mixed Mode = iota
	LexicalOnly
	SemanticOnly
)

// Search returns the chunks that answer a question best, best first. wanted selects the files that may be among them; nil
// means all. If the embedder fails, the ranking uses words alone, and an error beside the hits reports that.
func (x *Index) Search(ctx context.Context, question string, limit int, wanted func(path string) bool) ([]Hit, error) {
	return x.SearchBy(ctx, Mixed, question, limit, wanted)
}

// SearchBy is like Search, with one of the modes.
func (x *Index) SearchBy(
	ctx context.Context, mode Mode, question string, limit int, wanted func(path string) bool,
) ([]Hit, error) {
	switch {
	case len(question) > 4*MaxQuery:
		return nil, tool.Errorf(tool.CodeInvalidInput, "the query is longer than %d characters; ask for less at once",
			MaxQuery)
	case limit < 1 || limit > MaxLimit:
		return nil, tool.Errorf(tool.CodeInvalidInput, "limit must be between 1 and %d, not %d", MaxLimit, limit)
	}
	q := &query{snapshot: x.current.Load(), mode: mode}
	q.bag.FillText([]byte(question))
	err := x.direct(ctx, q, question)
	q.pick(wanted)
	q.score()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.propose()
	return q.best(limit), err
}

// direct computes the vector of the question.
func (x *Index) direct(ctx context.Context, q *query, question string) error {
	if q.mode == LexicalOnly {
		return nil
	}
	if x.o.Embedder != nil {
		v, err := x.o.Embedder.vectors(ctx, []string{question})
		if err != nil {
			return err
		}
		q.vector = v[0]
	} else {
		q.vector = make([]float32, x.table.dims)
		x.table.embed(q.bag.Terms, x.table.query, q.vector)
	}
	if !normalise(q.vector) {
		q.vector = nil
	}
	return nil
}

// normalise scales a vector to length 1. It returns false for one that is zero or not finite.
func normalise(v []float32) bool {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 || math.IsInf(sum, 0) || math.IsNaN(sum) {
		return false
	}
	f := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= f
	}
	return true
}

// A query is one search in progress.
type query struct {
	*snapshot
	mode   Mode
	bag    Bag
	vector []float32
	live   []bool    // by chunk of all segments: it may be a hit
	words  []float32 // the BM25 scores
	most   float64   // the highest possible score of the question
	marked []bool    // the candidates
}

// pick selects the chunks that may be hits. Chunks of unwanted files still count in the word statistics of the codebase.
func (q *query) pick(wanted func(path string) bool) {
	total := q.base[len(q.segs)]
	q.live, q.marked, q.words = make([]bool, total), make([]bool, total), make([]float32, total)
	for n, g := range q.segs {
		for file, e := range q.owner[n] {
			if e < 0 || wanted != nil && !wanted(q.files[e].path) {
				continue
			}
			for c := g.files[file]; c < g.files[file+1]; c++ {
				q.live[q.base[n]+int(c)] = true
			}
		}
	}
}

// score sums the BM25 scores. A word's weight is its rarity among the chunks of this state, so an index that grew in
// steps ranks like one that was built at once.
func (q *query) score() {
	for _, t := range q.bag.Terms {
		have := 0
		for n, g := range q.segs {
			g.postings(t.Token, func(c, _ int) {
				if q.owner[n][g.chunks[c].file] >= 0 {
					have++
				}
			})
		}
		idf := math.Log(1 + (float64(q.chunks)-float64(have)+0.5)/(float64(have)+0.5))
		q.most += idf * (bm25K1 + 1)
		if have == 0 || q.mode == SemanticOnly {
			continue
		}
		for n, g := range q.segs {
			live, words := q.live[q.base[n]:], q.words[q.base[n]:]
			g.postings(t.Token, func(c, count int) {
				if live[c] {
					tf, long := float64(count), float64(g.chunks[c].length)/q.mean
					words[c] += float32(idf * tf * (bm25K1 + 1) / (tf + bm25K1*(1-bm25B+bm25B*long)))
				}
			})
		}
	}
}

// propose marks the chunks that are worth a closer look: those with the highest scores, and those whose signs differ
// least from the question's.
func (q *query) propose() {
	const steps = 1024
	top := float32(0)
	for _, w := range q.words {
		top = max(top, w)
	}
	if top > 0 {
		q.mark(steps, func(n, c int) int {
			w := q.words[q.base[n]+c]
			if w == 0 {
				return -1
			}
			return int((1 - w/top) * (steps - 1))
		})
	}
	if q.vector != nil {
		signs := signsOf(q.vector)
		q.mark(len(q.vector)+1, func(n, c int) int { return q.segs[n].distance(c, signs) })
	}
}

// mark marks the candidates with the lowest steps; -1 excludes a chunk.
func (q *query) mark(steps int, step func(n, c int) int) {
	counts := make([]int, steps)
	at := make([]int16, len(q.live))
	for n := range q.segs {
		first := q.base[n]
		for i := first; i < q.base[n+1]; i++ {
			at[i] = -1
			if q.live[i] {
				if s := step(n, i-first); s >= 0 {
					at[i] = int16(s)
					counts[s]++
				}
			}
		}
	}
	last, sum := 0, counts[0]
	for last+1 < steps && sum+counts[last+1] <= candidates {
		last++
		sum += counts[last]
	}
	if sum == 0 && last+1 < steps {
		last++
	}
	for i, s := range at {
		if s >= 0 && int(s) <= last {
			q.marked[i] = true
		}
	}
}

// best scores the candidates exactly and keeps the best.
func (q *query) best(limit int) []Hit {
	var hits []Hit
	for n, g := range q.segs {
		for c := range g.chunks {
			if q.marked[q.base[n]+c] {
				if h := q.hit(n, g, c); h.Similarity > 0 {
					hits = append(hits, h)
				}
			}
		}
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), strings.Compare(a.Path, b.Path),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Last, b.Last))
	})
	return hits[:min(limit, len(hits))]
}

func (q *query) hit(n int, g *segment, i int) Hit {
	c := &g.chunks[i]
	h := Hit{
		Path: q.files[q.owner[n][c.file]].path, Line: int(c.line), Last: int(c.last), Define: int(c.define),
		Kind: c.kind, Name: c.name, Hash: c.hash,
	}
	if q.most > 0 {
		h.Lexical = float64(q.words[q.base[n]+i]) / q.most
	}
	if q.vector != nil {
		h.Semantic = max(0, float64(g.cosine(i, q.vector)))
	}
	switch {
	case q.mode == SemanticOnly:
		h.Similarity = h.Semantic
	case q.mode == LexicalOnly || q.vector == nil:
		h.Similarity = h.Lexical
	default:
		h.Similarity = mixWords*h.Lexical + (1-mixWords)*h.Semantic
	}
	h.Similarity = min(1, max(0, h.Similarity))
	return h
}

// FilesNaming lists the files with a function, a type or a section whose name matches, in the order of their paths.
func (x *Index) FilesNaming(match func(name string) bool) []string {
	return x.current.Load().filesWhere(func(_ int, c *chunk) bool { return c.kind != split.Block && match(c.name) })
}

// FilesWith lists the files with a chunk that contains all words of a text, in the order of their paths. A text without
// words matches all files.
func (x *Index) FilesWith(text string) []string {
	s := x.current.Load()
	var bag Bag
	bag.FillText([]byte(text))
	have := make([]uint16, s.base[len(s.segs)])
	for n, g := range s.segs {
		for _, t := range bag.Terms {
			g.postings(t.Token, func(c, _ int) { have[s.base[n]+c]++ })
		}
	}
	return s.filesWhere(func(i int, _ *chunk) bool { return int(have[i]) == len(bag.Terms) })
}

// filesWhere lists the files with a wanted chunk. Chunks are numbered across all segments.
func (s *snapshot) filesWhere(wants func(i int, c *chunk) bool) []string {
	found := map[string]bool{}
	for n, g := range s.segs {
		for i := range g.chunks {
			if e := s.owner[n][g.chunks[i].file]; e >= 0 && wants(s.base[n]+i, &g.chunks[i]) {
				found[s.files[e].path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
