package meaning_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
	"toolpost/internal/kit"
)

// sources reads the sources of Go's library and of the module cache, up to a number of bytes.
func sources(b *testing.B, most int) (files []meaning.File, size int64) {
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		b.Skip("no go command")
	}
	dirs := strings.Fields(string(out))
	dirs[0] = filepath.Join(dirs[0], "src")
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !split.IsSource(path) || size >= int64(most) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil || len(text) > 1<<20 {
				return nil
			}
			size += int64(len(text))
			files = append(files, meaning.File{
				Path: path, Size: int64(len(text)), ModTime: time.Unix(1e9, 0),
				Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
			})
			return nil
		})
	}
	return files, size
}

func seq(files []meaning.File) iter.Seq2[meaning.File, error] {
	return func(yield func(meaning.File, error) bool) {
		for _, f := range files {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// BenchmarkIndex makes an index on disk. It reports megabytes of source per second, and the index's share of the source's
// size.
func BenchmarkIndex(b *testing.B) {
	files, size := sources(b, 64<<20)
	b.SetBytes(size)
	for b.Loop() {
		dir := b.TempDir()
		x := open(b, dir, meaning.Options{})
		s := update(b, x, seq(files))
		disk := kit.Must(x.Size())(b)
		b.ReportMetric(float64(disk)/float64(size), "disk/source")
		b.ReportMetric(float64(s.Chunks), "chunks")
	}
}

// BenchmarkSearch100k searches at least 100,000 chunks; the median is what counts.
func BenchmarkSearch100k(b *testing.B) {
	files, size := sources(b, 150<<20)
	x := open(b, "", meaning.Options{})
	chunks := update(b, x, seq(files)).Chunks
	if chunks < 100_000 {
		for n := 1; chunks < 100_000; n++ { // a small machine has few sources: add them again under other names
			for _, f := range files[:len(files):len(files)] {
				f.Path = fmt.Sprintf("%d/%s", n, f.Path)
				files = append(files, f)
			}
			chunks = update(b, x, seq(files)).Chunks
		}
	}
	b.Logf("%d chunks of %d MB", chunks, size>>20)
	questions := []string{
		"read a file into memory", "parse the header of an HTTP request", "retry with exponential backoff", "compute the checksum of a block", "open a database connection",
		"returns the number of bytes that were written", "convert a string to lower case", "walk a syntax tree", "wait for all goroutines to finish", "marshal a value as JSON",
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		if hits := search(b, x, questions[i%len(questions)], 10); len(hits) == 0 {
			b.Fatal("nothing was found")
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(chunks), "chunks")
}

// BenchmarkUnchanged updates an index of unchanged files.
func BenchmarkUnchanged(b *testing.B) {
	files, _ := sources(b, 16<<20)
	x := open(b, b.TempDir(), meaning.Options{})
	update(b, x, seq(files))
	for b.Loop() {
		update(b, x, seq(files))
	}
}
