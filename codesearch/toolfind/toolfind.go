// Package toolfind finds tools by what they are for: by the words that their names, descriptions and arguments share with
// a question, and by the meaning of these words. It ranks as code search does, and needs no service and no network.
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

// A Finder searches lists of tools. It indexes a list on its first use and keeps the indexes that were used last; callers
// that see the same tools share one. An index of all tools for all callers was considered, but its ranking would reveal
// to a caller which words are common among tools that it does not see. The zero value is ready for use.
type Finder struct {
	seed  maphash.Seed
	begun sync.Once

	mu   sync.Mutex
	kept []*indexed // the most recently used first
}

// maxKept is the number of lists kept. An index of ten thousand tools takes about 20 MB.
const maxKept = 8

// An indexed list is a list with its index, which its first user builds.
type indexed struct {
	sum   uint64
	once  sync.Once
	index *meaning.Index
	err   error
}

// Tools that have nothing to do with the question are left out. Found by trial: below these scores are tools that share
// only a word like "of" with it, or that resemble it by chance.
const (
	least     = 0.05 // of a tool that shares words with the question
	leastMute = 0.12 // of a tool that shares none
	share     = 0.35 // of the best score: a caller who found a good match does not want far worse ones
)

// Search returns the tools that answer a question best, best first.
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

// named scores how well a tool's name matches the question, in whole or in part, so that a caller who knows the name or
// its beginning finds the tool.
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

// indexOf returns the index of a list, or a new entry for it.
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

// build makes an index in memory. It takes no context, because other callers wait for the index too.
func build(specs []*tool.Spec) (*meaning.Index, error) {
	x, err := meaning.Open("", meaning.Options{})
	if err != nil {
		return nil, err
	}
	_, err = x.Update(context.Background(), pages(specs))
	return x, err
}

// pages returns each tool as a page with one heading, its name. Paths are numbers, because names may be anything.
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

// pathOf writes a number with a dot between its digits: single digits are not searchable words.
func pathOf(n int) string { return strings.Join(strings.Split(strconv.Itoa(n), ""), ".") + "/a.md" }

func numberOf(file string) (int, bool) {
	n, err := strconv.Atoi(strings.ReplaceAll(path.Dir(file), ".", ""))
	return n, err == nil
}

// maxPage bounds how much of one tool is indexed.
const maxPage = 16 << 10

// page returns the searchable text of a tool. Headings and line breaks of a description would cut it into several
// answers.
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

// spelled appends the other common spelling of words with capitals inside: code search takes GitHub for two words, as it
// would getHub, and github for one.
func spelled(text string) string {
	var more []string
	for _, word := range strings.Fields(text) {
		if low := strings.ToLower(word); low[min(1, len(low)):] != word[min(1, len(word)):] {
			more = append(more, low)
		}
	}
	return strings.Join(append([]string{text}, more...), " ")
}

// Brief returns the first sentence of a tool's description, on one line.
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
