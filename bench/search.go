package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"time"

	"toolpost/bench/attempt"
	"toolpost/codesearch/meaning"
	"toolpost/codesearch/toolfind"
	"toolpost/tool"
)

// files offers the sources of the tree up to so many bytes.
func (t *codeTree) files(ctx context.Context, most int64) iter.Seq2[meaning.File, error] {
	return func(yield func(meaning.File, error) bool) {
		err := filepath.WalkDir(t.dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			f := meaning.File{
				Path: path[len(t.dir):], Size: info.Size(), ModTime: info.ModTime(),
				Open: func() (io.ReadCloser, error) { return os.Open(path) },
			}
			if most -= f.Size; most < 0 || ctx.Err() != nil || !yield(f, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(meaning.File{}, err)
		}
	}
}

// indexing builds both indexes of the tree, one after the other, and looks at what they take on the disk.
func indexing(ctx context.Context, l *lab) row {
	t := l.openTree(ctx)
	words := t.index(l, "index-words")
	forWords := attempt.Must(clock(func() error { return words.Refresh(ctx) })())
	meanings := attempt.Must(meaning.Open(filepath.Join(l.dir, "index-meaning"), meaning.Options{}))
	var stats meaning.Stats
	forMeaning := attempt.Must(clock(func() (err error) {
		stats, err = meanings.Update(ctx, t.files(ctx, math.MaxInt64))
		return err
	})())
	_, wordBytes := words.Size()
	var source int64
	for f, err := range t.files(ctx, math.MaxInt64) {
		attempt.Check(err)
		source += f.Size
	}
	speed := func(took time.Duration) float64 { return float64(source) / 1e6 / took.Seconds() }
	disk := float64(wordBytes+attempt.Must(meanings.Size())) / float64(source)
	slower := min(speed(forWords), speed(forMeaning))
	return row{
		measured:  fmt.Sprintf("%.0f MB/s for grep, %.0f MB/s by meaning", speed(forWords), speed(forMeaning)),
		reference: fmt.Sprintf("%.0f MB, %d chunks", float64(source)/1e6, stats.Chunks),
		ratio:     fmt.Sprintf("%.2f of the source on disk", disk),
		target:    ">= 20 MB/s each, <= 1.0",
		pass:      slower >= 20 && disk <= 1,
	}
}

// searching asks an index of as much of the tree as gives 100,000 chunks.
func searching(ctx context.Context, l *lab) row {
	t := l.openTree(ctx)
	x := attempt.Must(meaning.Open("", meaning.Options{}))
	const wanted = 100_000
	var stats meaning.Stats
	for most := int64(64 << 20); stats.Chunks < wanted; most += 16 << 20 {
		before := stats.Files
		if stats = attempt.Must(x.Update(ctx, t.files(ctx, most))); stats.Files == before {
			attempt.Check(fmt.Errorf("the tree has only %d chunks", stats.Chunks))
		}
	}
	questions := []string{
		"read a file into memory", "parse the header of an HTTP request", "retry with exponential backoff",
		"compute the checksum of a block",
		"open a database connection", "convert a string to lower case", "walk a syntax tree",
		"wait for all goroutines to finish",
	}
	var took []time.Duration
	for i := range 25 * len(questions) {
		ask := func() error { _, err := x.Search(ctx, questions[i%len(questions)], 10, nil); return err }
		took = append(took, attempt.Must(clock(ask)()))
	}
	m := median(took)
	return row{
		measured: ms(m), reference: fmt.Sprintf("%d chunks", stats.Chunks), ratio: "-", target: "< 20 ms",
		pass: m < 20*time.Millisecond,
	}
}

// findingTools asks for tools among 10,000, as the MCP door does where there are too many to list: the first question
// waits for the index.
func findingTools(ctx context.Context, _ *lab) row {
	const wanted = 10_000
	does := []string{"Reads", "Writes", "Lists", "Deletes", "Copies", "Counts", "Sends", "Translates", "Draws", "Compares"}
	what := []string{
		"the issues of a repository", "files in a folder", "rows of a table", "the weather of a city", "mail of a customer",
		"pictures", "invoices", "events of a calendar", "the members of a team", "lines of a log",
	}
	specs := make([]*tool.Spec, wanted)
	for i := range specs {
		specs[i] = &tool.Spec{
			Name: fmt.Sprintf("tool_%d", i), Source: "bench",
			Description: fmt.Sprintf("%s %s. Number %d of its kind.", does[i%10], what[i/10%10], i/100),
			Input:       []byte(`{"type":"object","properties":{"name":{"type":"string","description":"which one is meant"}}}`),
		}
	}
	var f toolfind.Finder
	ask := func(question string) func() error {
		return func() error { _, err := f.Search(ctx, specs, question, 10); return err }
	}
	first := attempt.Must(clock(ask("send mail"))())
	var took []time.Duration
	for i := range 200 {
		took = append(took, attempt.Must(clock(ask(does[i%10]+" "+what[i%7]))()))
	}
	m := median(took)
	return row{
		measured: ms(m), reference: fmt.Sprintf("%d tools", wanted), ratio: ms(first) + " the first time",
		target: "< 20 ms", pass: m < 20*time.Millisecond,
	}
}
