package trigram

import (
	"os"
	"testing"
	"time"

	"toolpost/codesearch/grep"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// BenchmarkTree builds the index of the tree that TOOLPOST_TREE names, and queries it.
func BenchmarkTree(b *testing.B) {
	dir := os.Getenv("TOOLPOST_TREE")
	if dir == "" {
		b.Skip("TOOLPOST_TREE names no folder")
	}
	ws, err := workspace.Open(dir, workspace.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer ws.Close()
	view := ws.View(&tool.Call{})
	x, err := Open(b.TempDir(), view, Options{Pause: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	began := time.Now()
	if err := x.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	files, size := x.Size()
	b.Logf("%d files, index of %d MB in %d segments after %v", files, size>>20, len(x.snap.segs), time.Since(began))
	b.Run("refresh", func(b *testing.B) {
		for b.Loop() {
			if err := x.Refresh(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, expr := range []string{"ErrUnexpectedEOF", "(?i)unexpected end", "ReaderFrom|WriterTo|ByteScanner|RuneReader", `[A-Z][a-z]+Err[a-z]*\(`, "return", "zzyzzx_q", `^type [A-Z]\w+ interface`, `func.*context\.Context.*error`} {
		b.Run(expr, func(b *testing.B) {
			p, err := grep.Compile(expr, false)
			if err != nil {
				b.Fatal(err)
			}
			var sel Selection
			var st grep.Stats
			for b.Loop() {
				if sel, err = x.Select(b.Context(), "", p.Need()); err != nil {
					b.Fatal(err)
				}
				s := grep.NewSearch(b.Context(), p, grep.Options{MaxBytes: 1 << 30}, func(grep.File) error { return nil })
				if err := search(s, view, sel.Picks); err != nil {
					b.Fatal(err)
				}
				st = s.Stats()
			}
			b.ReportMetric(float64(len(sel.Picks)), "candidates")
			b.ReportMetric(float64(st.Matches), "lines")
			b.ReportMetric(float64(st.Bytes>>20), "MB")
		})
	}
}
