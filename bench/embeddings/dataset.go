package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
)

// Sizes of the training data.
const (
	rows        = 30000 // words of the table
	perLanguage = 90000 // pairs, so that no language outweighs the others
	sameQuery   = 2     // how often one sentence may occur in a language
	maxTerms    = 160   // of a function
)

// An example is a pair as words, from which the trainer learns.
type example struct {
	language split.Language
	pkg      int
	sentence uint64 // hash of the query
	query    []meaning.Term
	code     []meaning.Term
}

// gather reads packages, one at a time on each core, and passes their pairs on in the order of the list.
func gather(f *fetcher, packages []pkg, cores int, each func(n int, pairs []pair)) {
	mined := make([][]pair, len(packages))
	var g errgroup.Group
	g.SetLimit(cores)
	step, end := f.steps("reading packages", len(packages))
	for i, p := range packages {
		g.Go(func() error {
			s, err := sourcesOf(f.archive(p))
			if err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
			mined[i] = mine(s)
			step()
			return nil
		})
	}
	err := g.Wait()
	end()
	attempt.Check(err)
	for i, pairs := range mined {
		each(i, pairs)
	}
}

// examples makes examples of pairs, without those of the evaluation: another package may hold a copy of a function.
func examples(f *fetcher, train, eval []pkg, cores int) []example {
	held := map[uint64]bool{}
	gather(f, eval, cores, func(_ int, pairs []pair) {
		for _, p := range pairs {
			held[meaning.Digest(p.code)] = true
			held[meaning.Digest([]byte(p.part.Name+" "+p.query))] = true
		}
	})
	var all []example
	seen := map[uint64]int{}
	var bag meaning.Bag
	gather(f, train, cores, func(n int, pairs []pair) {
		for _, p := range pairs {
			code, sentence := meaning.Digest(p.code), meaning.Digest([]byte(string(p.language)+p.query))
			if held[code] || held[meaning.Digest([]byte(p.part.Name+" "+p.query))] || seen[code] > 0 ||
				seen[sentence] >= sameQuery {
				continue
			}
			seen[code]++
			seen[sentence]++
			all = append(all, exampleOf(&bag, n, sentence, p))
		}
	})
	return balance(all)
}

func exampleOf(bag *meaning.Bag, n int, sentence uint64, p pair) example {
	e := example{language: kin(p.language), pkg: n, sentence: sentence}
	bag.FillText([]byte(p.query))
	e.query = slices.Clone(bag.Terms)
	whole := p.part
	whole.Start, whole.End, whole.DocStart, whole.DocEnd = 0, len(p.code), 0, 0
	bag.Fill(p.path, whole, p.code)
	e.code = slices.Clone(bag.Terms[:min(maxTerms, len(bag.Terms))])
	return e
}

// kin groups languages that are searched alike.
func kin(l split.Language) split.Language {
	switch l {
	case split.TypeScript:
		return split.JavaScript
	case split.CPP:
		return split.C
	}
	return l
}

// balance keeps at most perLanguage examples of each language, evenly over its packages.
func balance(all []example) []example {
	count := map[split.Language]int{}
	for _, e := range all {
		count[e.language]++
	}
	at := map[split.Language]int{}
	kept := all[:0]
	for _, e := range all {
		n, i := count[e.language], at[e.language]
		at[e.language]++
		if n <= perLanguage || i*perLanguage/n != (i+1)*perLanguage/n {
			kept = append(kept, e)
		}
	}
	return kept
}

// vocabulary chooses the words of the table: those in the most examples, of at least two packages.
func vocabulary(all []example) []meaning.Token {
	type use struct {
		token  meaning.Token
		count  int
		pkg    int
		shared bool
	}
	uses := map[meaning.Token]*use{}
	for _, e := range all {
		for _, t := range slices.Concat(e.query, e.code) {
			u := uses[t.Token]
			if u == nil {
				u = &use{token: t.Token, pkg: e.pkg}
				uses[t.Token] = u
			}
			u.count++
			u.shared = u.shared || u.pkg != e.pkg
		}
	}
	rare := func(u *use) bool { return !u.shared || u.count < 4 }
	list := slices.DeleteFunc(slices.Collect(maps.Values(uses)), rare)
	slices.SortFunc(list, func(a, b *use) int { return cmp.Or(b.count-a.count, cmp.Compare(a.token, b.token)) })
	words := make([]meaning.Token, 0, rows)
	for _, u := range list[:min(rows, len(list))] {
		words = append(words, u.token)
	}
	return words
}
