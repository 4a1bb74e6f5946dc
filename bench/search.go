package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/bench/attempt"
	"toolpost/codesearch/grep"
	"toolpost/codesearch/meaning"
	"toolpost/codesearch/toolfind"
	"toolpost/codesearch/trigram"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// treeFiles is the number of files in the searched tree.
const treeFiles = 50_000

// grepPatterns returns typical searches: one for each path through a search engine.
func grepPatterns() []string {
	return []string{
		`ErrUnexpectedEOF`,                           // a literal
		`(?i)unexpected end`,                         // in any case
		`ReaderFrom|WriterTo|ByteScanner|RuneReader`, // an alternation
		`[A-Z][a-z]+Err[a-z]*\(`,                     // classes around a short literal
		`[a-z]{3}[0-9]{2}\s[A-Z]`,                    // no literal
		`^type [A-Z]\w+ interface`,                   // anchored
		`return`,                                     // many matches
		`zzyzzx_q`,                                   // none
		`func.*context\.Context.*error`,              // two literals
		`\bmu\.(R?Lock|Unlock)\(\)`,                  // words
	}
}

// A codeTree is a folder of sources from the module cache.
type codeTree struct {
	dir  string
	view *workspace.View
}

// openTree makes the tree, if no row has made it yet, and opens it.
func (l *lab) openTree(ctx context.Context) *codeTree {
	dir := l.once("tree", func(dir string) { copySources(ctx, dir) })
	ws := attempt.Must(workspace.Open(dir, workspace.Options{}))
	l.atEnd(ws.Close)
	return &codeTree{dir, ws.View(&tool.Call{})}
}

// index opens an index for grep over the tree.
func (t *codeTree) index(l *lab, name string) *trigram.Index {
	x := attempt.Must(trigram.Open(filepath.Join(l.dir, name), t.view, trigram.Options{Pause: time.Hour}))
	l.atEnd(x.Close)
	return x
}

// copySources copies modules from the module cache, and copies them again under another name if there are too few.
func copySources(ctx context.Context, dir string) {
	out := attempt.Must(exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output())
	from, left := strings.TrimSpace(string(out)), treeFiles
	for round := 0; left > 0; round++ {
		before := left
		attempt.Check(filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && path == filepath.Join(from, "cache"): // archives, not sources
				return fs.SkipDir
			case left == 0:
				return fs.SkipAll
			case !e.Type().IsRegular():
				return nil
			}
			left--
			return copyFile(path, filepath.Join(dir, fmt.Sprint("round", round), path[len(from):]))
		}))
		if left == before {
			attempt.Check(fmt.Errorf("the module cache %s has no files", from))
		}
	}
}

func copyFile(from, to string) error {
	attempt.Check(os.MkdirAll(filepath.Dir(to), 0o755))
	return os.WriteFile(to, attempt.Must(os.ReadFile(from)), 0o644)
}

// grepCold compares searching the tree without an index with ripgrep.
func grepCold(ctx context.Context, l *lab) row {
	need("rg")
	t := l.openTree(ctx)
	return t.againstRipgrep(ctx, 1.5, func(p *grep.Pattern) (grep.Stats, error) { return t.walk(ctx, p) })
}

// grepWarm does the same with an index.
func grepWarm(ctx context.Context, l *lab) row {
	need("rg")
	t := l.openTree(ctx)
	x := t.index(l, "trigram")
	time.Sleep(3 * time.Second) // newly written files are searched each time
	attempt.Check(x.Refresh(ctx))
	return t.againstRipgrep(ctx, 0.3, func(p *grep.Pattern) (grep.Stats, error) {
		sel, err := x.Select(ctx, "", p.Need())
		if errors.Is(err, trigram.ErrNotReady) {
			return t.walk(ctx, p) // a pattern without a literal
		}
		if err != nil {
			return grep.Stats{}, err
		}
		// ripgrep skips hidden files.
		shown := slices.DeleteFunc(sel.Picks, func(p trigram.Pick) bool { return strings.Contains("/"+p.Path, "/.") })
		s := grep.NewSearch(ctx, p, allLines(), ignoreFile)
		err = s.Files(len(shown), func(i int) (*workspace.File, []grep.Part) {
			f, err := t.view.Open(shown[i].Path)
			if err != nil {
				return nil, nil
			}
			return f, shown[i].Parts(f)
		}, func(i int) string { return shown[i].Path })
		return s.Stats(), err
	})
}

func allLines() grep.Options { return grep.Options{MaxBytes: math.MaxInt} }

func ignoreFile(grep.File) error { return nil }

func (t *codeTree) walk(ctx context.Context, p *grep.Pattern) (grep.Stats, error) {
	s := grep.NewSearch(ctx, p, allLines(), ignoreFile)
	err := s.Walk(t.view, "", workspace.WalkOptions{Recursive: true, Ignore: true},
		func(below string) string { return below })
	return s.Stats(), err
}

// againstRipgrep searches for each pattern in turns with ripgrep, and takes the geometric mean of the ratios.
func (t *codeTree) againstRipgrep(
	ctx context.Context, limit float64, search func(*grep.Pattern) (grep.Stats, error),
) row {
	var ours, theirs time.Duration
	logs := 0.0
	for _, expr := range grepPatterns() {
		p := attempt.Must(grep.Compile(expr, false))
		var lines, want int
		m, r := compare(3,
			clock(func() error { st, err := search(p); lines = st.Matches; return err }),
			clock(func() (err error) { want, err = t.ripgrep(ctx, expr); return err }))
		if math.Abs(float64(lines-want)) > 0.001*float64(want) { // the two differ about where a file stops being text
			attempt.Check(fmt.Errorf("%s: %d lines, ripgrep finds %d", expr, lines, want))
		}
		ours, theirs, logs = ours+m, theirs+r, logs+math.Log(float64(m)/float64(r))
	}
	mean := math.Exp(logs / float64(len(grepPatterns())))
	return row{
		measured: ms(ours), reference: ms(theirs), ratio: fmt.Sprintf("%.2fx as long", mean),
		target: fmt.Sprintf("<= %gx", limit), pass: mean <= limit,
	}
}

// ripgrep counts the lines that it finds. It writes to a pipe: with /dev/null it would stop at a file's first match.
func (t *codeTree) ripgrep(ctx context.Context, expr string) (int, error) {
	var lines lineCount
	cmd := exec.CommandContext(ctx, "rg", "--no-config", "--line-number", "--no-heading", "--regexp", expr, ".")
	cmd.Dir, cmd.Stdout = t.dir, &lines
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 { // nothing found
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("ripgrep: %w", err)
	}
	return int(lines), nil
}

// lineCount counts the lines that are written to it.
type lineCount int

func (n *lineCount) Write(b []byte) (int, error) {
	*n += lineCount(bytes.Count(b, []byte{'\n'}))
	return len(b), nil
}

// files returns the sources of the tree up to a number of bytes.
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

// indexing builds both indexes of the tree, one after the other, and measures their size on disk.
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
		measured:  fmt.Sprintf("%.0f and %.0f MB/s", speed(forWords), speed(forMeaning)),
		reference: fmt.Sprintf("%.0f MB", float64(source)/1e6),
		ratio:     fmt.Sprintf("%.2f of it on disk", disk),
		target:    ">= 20",
		note:      fmt.Sprintf("for grep and by meaning, %d chunks; at most 1.0 of the source on disk", stats.Chunks),
		pass:      slower >= 20 && disk <= 1,
	}
}

// searching queries an index of as much of the tree as makes 100,000 chunks.
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
	asked := 0
	m := alone(25*len(questions), clock(func() error {
		asked++
		_, err := x.Search(ctx, questions[asked%len(questions)], 10, nil)
		return err
	}))
	return within(m, 20*time.Millisecond, row{reference: fmt.Sprintf("%d chunks", stats.Chunks), ratio: "-"})
}

// findingTools searches among 10,000 tools, as the MCP door does if there are too many to list: the first question waits
// for the index.
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
	asked := 0
	ask := clock(func() error {
		asked++
		_, err := f.Search(ctx, specs, does[asked%10]+" "+what[asked%7], 10)
		return err
	})
	first := attempt.Must(ask())
	m := alone(200, ask)
	return within(m, 20*time.Millisecond, row{
		reference: fmt.Sprintf("%d tools", wanted), ratio: "-", note: ms(first) + " the first time",
	})
}
