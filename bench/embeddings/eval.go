package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
)

// The questions for each language.
const (
	questions = 1000 // at most
	depth     = 10   // MRR@10
	target    = 1.3  // mixed over words alone, in the mean of the languages
)

// A corpus is the held-out sources of a language, and the functions to search for.
type corpus struct {
	sources   []source
	questions []pair
}

// A score is the quality of the three rankings, by words, by the table and mixed: the mean of one over the rank of the
// right function, or 0 beyond the tenth.
type score [3]float64

// eval indexes the held-out packages, language by language, without their documentation, and searches for each function
// by its first sentence.
func (prog *program) eval(ctx context.Context, packages []pkg) {
	attempt.Check(prog.fetcher.fetch(ctx, packages))
	corpora := prog.corpora(packages)
	fmt.Printf("MRR@%d on functions of %d packages that the table was not trained on; query: the first sentence "+
		"of the\n", depth, len(packages))
	fmt.Printf("documentation without the name; documentation is stripped from what is indexed\n\n")
	fmt.Printf("%-12s %8s %8s %8s %8s %8s %8s\n", "language", "chunks", "queries", "BM25", "table", "mixed", "ratio")
	var sum score
	worse := 0
	for _, l := range slices.Sorted(maps.Keys(corpora)) {
		s, chunks := prog.measure(ctx, corpora[l])
		fmt.Printf("%-12s %8d %8d %8.3f %8.3f %8.3f %8.2f\n", l, chunks, len(corpora[l].questions), s[0], s[1], s[2],
			s[2]/s[0])
		if s[2] <= max(s[0], s[1]) {
			worse++
		}
		sum.add(s, float64(len(corpora)))
	}
	fmt.Printf("%-12s %17s %8.3f %8.3f %8.3f %8.2f\n\n", "mean", "", sum[0], sum[1], sum[2], sum[2]/sum[0])
	if worse > 0 || sum[2] < target*sum[0] {
		attempt.Check(fmt.Errorf(
			"mixed must beat both others in every language (not in %d) and BM25 by %.1f in the mean", worse, target))
	}
	fmt.Printf("mixed beats both others in every language, and BM25 by more than %.1f in the mean\n", target)
}

// add adds another score to the mean of n.
func (s *score) add(o score, n float64) {
	for way := range s {
		s[way] += o[way] / n
	}
}

// corpora sorts the sources by language. It leaves out languages with few questions, which would prove little.
func (prog *program) corpora(packages []pkg) map[split.Language]*corpus {
	all := map[split.Language]*corpus{}
	asked := map[string]int{}
	for _, p := range packages {
		for _, s := range attempt.Must(sourcesOf(prog.fetcher.archive(p))) {
			l := kin(s.language)
			if all[l] == nil {
				all[l] = &corpus{}
			}
			s.path = p.name + "/" + s.path
			all[l].add(s, asked)
		}
	}
	for l, c := range all {
		c.drop(asked)
		if len(c.questions) < questions/4 {
			delete(all, l)
		}
	}
	return all
}

// add adds a source with its documentation blanked out, and questions for its functions.
func (c *corpus) add(s source, asked map[string]int) {
	if minified(s.text) {
		return
	}
	bare := bytes.Clone(s.text)
	for _, p := range split.Parts(s.language, s.text) {
		if q, ok := pairOf(s, p); ok {
			asked[q.query]++
			c.questions = append(c.questions, q)
		}
		for i := p.DocStart; i < p.DocEnd; i++ {
			if bare[i] != '\n' {
				bare[i] = ' '
			}
		}
	}
	s.text = bare
	c.sources = append(c.sources, s)
}

// drop removes sentences that describe several functions, and keeps an even choice of the others.
func (c *corpus) drop(asked map[string]int) {
	unique := slices.DeleteFunc(c.questions, func(q pair) bool { return asked[q.query] != 1 })
	c.questions = thin(unique, questions)
}

func (c *corpus) files() iter.Seq2[meaning.File, error] {
	return func(yield func(meaning.File, error) bool) {
		for _, s := range c.sources {
			f := meaning.File{
				Path: s.path, Size: int64(len(s.text)),
				Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(s.text)), nil },
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

func (prog *program) measure(ctx context.Context, c *corpus) (s score, chunks int) {
	x := attempt.Must(meaning.Open("", meaning.Options{Workers: prog.cores}))
	stats := attempt.Must(x.Update(ctx, c.files()))
	ranks := make([]score, len(c.questions))
	var g errgroup.Group
	g.SetLimit(prog.cores)
	for i, q := range c.questions {
		g.Go(func() error {
			for m, mode := range []meaning.Mode{meaning.LexicalOnly, meaning.SemanticOnly, meaning.Mixed} {
				hits, err := x.SearchBy(ctx, mode, q.query, depth, nil)
				if err != nil {
					return err
				}
				ranks[i][m] = reciprocal(hits, q)
			}
			return nil
		})
	}
	attempt.Check(g.Wait())
	for _, r := range ranks {
		s.add(r, float64(len(ranks)))
	}
	return s, stats.Chunks
}

// reciprocal returns one over the rank of the wanted function. The pieces of a long function count as one.
func reciprocal(hits []meaning.Hit, q pair) float64 {
	for i, h := range hits {
		if h.Path == q.path && h.Define == q.part.Define {
			return 1 / float64(i+1)
		}
	}
	return 0
}
