// Package toolfind finds tools by what they are for: by the words that their names, descriptions and arguments share
// with a question, and by where these words point. It ranks as code search does, and needs no service and no network.
package toolfind

import (
	"bytes"
	"cmp"
	"context"
	"hash/maphash"
	"io"
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolpost/codesearch/meaning"
	"toolpost/tool"
	"toolpost/wire/schema"
)

// A Hit is a tool that answers a question.
type Hit struct {
	Spec  *tool.Spec
	Score float64 // between 0 and 1
}

// A Finder searches lists of tools. It makes an index of a list when it is first asked about it, and keeps those that
// were asked about last: callers who see the same tools share one. An index of all tools for all callers was
// considered, and would tell a caller by its ranking which words are common among tools that it does not see. The zero
// value is ready for use.
type Finder struct {
	seed  maphash.Seed
	begun sync.Once

	mu   sync.Mutex
	kept []*indexed // the one asked about last comes first
}

// maxKept is how many lists are kept in mind. An index of ten thousand tools takes about 20 MB.
const maxKept = 8

// An indexed list is one with its index, which is made by the first who needs it.
type indexed struct {
	sum   uint64
	once  sync.Once
	index *meaning.Index
	err   error
}

// What is not about the question at all is left out. Found by trying: below these are tools that share a word like "of"
// with it, or that point the same way by chance.
const (
	least     = 0.05 // of one that has words of the question
	leastMute = 0.12 // of one that has none
	share     = 0.35 // of the best: who found what fits does not want what fits far less
)

// Search gives the tools that answer a question best, the best first.
func (f *Finder) Search(ctx context.Context, specs []*tool.Spec, question string, limit int) ([]Hit, error) {
	if strings.TrimSpace(question) == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the query is empty: say in a few words what the tool should do")
	}
	x := f.indexOf(specs)
	x.once.Do(func() { x.index, x.err = build(specs) })
	if x.err != nil {
		return nil, x.err
	}
	found, err := x.index.Search(ctx, spelled(question), min(4*limit+20, meaning.MaxLimit), nil)
	if err != nil {
		return nil, err
	}
	scores := make(map[int]float64, len(found))
	for _, h := range found {
		if h.Similarity < least || h.Lexical == 0 && h.Similarity < leastMute {
			continue
		}
		if n, ok := numberOf(h.Path); ok && n < len(specs) {
			scores[n] = max(scores[n], h.Similarity)
		}
	}
	for n, s := range specs {
		if literal := named(s, question); literal > scores[n] {
			scores[n] = literal
		}
	}
	var hits []Hit
	best := slices.Max(append(slices.Collect(maps.Values(scores)), 0))
	for n, score := range scores {
		if score >= share*best {
			hits = append(hits, Hit{specs[n], score})
		}
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Spec.Name, b.Spec.Name))
	})
	return hits[:min(limit, len(hits))], nil
}

// named is how well a tool is called what the question says, in whole or in part: somebody who knows the name, or what
// it begins with, finds the tool.
func named(s *tool.Spec, question string) (score float64) {
	asked := strings.ToLower(strings.TrimSpace(question))
	for _, name := range append([]string{s.Name, s.Own}, s.Aliases...) {
		name = strings.ToLower(name)
		switch {
		case name == asked:
			return 1
		case len(asked) > 1 && strings.Contains(name, asked):
			score = max(score, 0.9*float64(len(asked))/float64(len(name)))
		}
	}
	return score
}

// indexOf finds the index of a list, or the place for it.
func (f *Finder) indexOf(specs []*tool.Spec) *indexed {
	f.begun.Do(func() { f.seed = maphash.MakeSeed() })
	var h maphash.Hash
	h.SetSeed(f.seed)
	for _, s := range specs {
		for _, text := range [...]string{s.Name, s.Title, s.Description, s.Source, string(s.Input)} {
			_, _ = h.WriteString(text) // it never fails
			_ = h.WriteByte(0)
		}
		for _, alias := range s.Aliases {
			_, _ = h.WriteString(alias)
			_ = h.WriteByte(1)
		}
	}
	sum := h.Sum64()
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.kept, func(x *indexed) bool { return x.sum == sum })
	x := &indexed{sum: sum}
	if i >= 0 {
		x = f.kept[i]
		f.kept = slices.Delete(f.kept, i, i+1)
	}
	f.kept = slices.Insert(f.kept, 0, x)
	f.kept = f.kept[:min(len(f.kept), maxKept)]
	return x
}

// build makes an index in memory. Nobody's context ends it: others wait for it too.
func build(specs []*tool.Spec) (*meaning.Index, error) {
	x, err := meaning.Open("", meaning.Options{})
	if err != nil {
		return nil, err
	}
	_, err = x.Update(context.Background(), pages(specs))
	return x, err
}

// pages gives each tool as a page with one heading, its name. Paths are numbers: names may be anything.
func pages(specs []*tool.Spec) iter.Seq2[meaning.File, error] {
	return func(yield func(meaning.File, error) bool) {
		for n, s := range specs {
			text := page(s)
			file := meaning.File{
				Path: pathOf(n), Size: int64(len(text)), ModTime: time.Unix(1, 0),
				Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
			}
			if !yield(file, nil) {
				return
			}
		}
	}
}

// pathOf writes a number with a dot between its digits: single digits are no words that could be searched for.
func pathOf(n int) string { return strings.Join(strings.Split(strconv.Itoa(n), ""), ".") + "/a.md" }

func numberOf(file string) (int, bool) {
	n, err := strconv.Atoi(strings.ReplaceAll(path.Dir(file), ".", ""))
	return n, err == nil
}

// maxPage bounds what is read of one tool.
const maxPage = 16 << 10

// page is what is searched of a tool. Headings and line breaks of a description would cut it into several answers.
func page(s *tool.Spec) []byte {
	var b bytes.Buffer
	line := func(text string) {
		b.WriteString(strings.Join(strings.Fields(text), " "))
		b.WriteByte('\n')
	}
	b.WriteString("# ")
	line(s.Name)
	line(" " + spelled(s.Title))
	line(" " + spelled(s.Description))
	line(" " + strings.Join(s.Aliases, " ") + " " + s.Source)
	for _, p := range schema.Properties(s.Input) {
		line(" " + p.Name + " " + p.Description)
	}
	return b.Bytes()[:min(b.Len(), maxPage)]
}

// spelled adds to a text its words with capitals inside in the other way that people write them: code search takes
// GitHub for two words, as it would getHub, and github for one.
func spelled(text string) string {
	var more []string
	for _, word := range strings.Fields(text) {
		if low := strings.ToLower(word); low[min(1, len(low)):] != word[min(1, len(word)):] {
			more = append(more, low)
		}
	}
	return strings.Join(append([]string{text}, more...), " ")
}

// Brief is the first sentence of what a tool says of itself, on one line.
func Brief(s *tool.Spec) string {
	const most = 160
	text := strings.Join(strings.Fields(cmp.Or(s.Description, s.Title)), " ")
	if head, _, ok := strings.Cut(text, ". "); ok {
		text = head + "."
	}
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}
