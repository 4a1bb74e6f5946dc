package trigram

import (
	"os"
	"testing"
	"time"

	"toolpost/codesearch/grep"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// BenchmarkTree builds the index of the tree that TOOLPOST_TREE names, and queries it.
func BenchmarkTree(b *testing.B) {
	dir := os.Getenv("TOOLPOST_TREE")
	if dir == "" {
		b.Skip("TOOLPOST_TREE names no folder")
	}
	ws := kit.Must(workspace.Open(dir, workspace.Options{}))(b)
	defer ws.Close()
	view := ws.View(&tool.Call{})
	x := kit.Must(Open(b.TempDir(), view, Options{Pause: time.Hour}))(b)
	defer x.Close()
	began := time.Now()
	kit.OK(b, x.Refresh(b.Context()))
	files, size := x.Size()
	b.Logf("%d files, index of %d MB in %d segments after %v", files, size>>20, len(x.snap.segs), time.Since(began))
	b.Run("refresh", func(b *testing.B) {
		for b.Loop() {
			kit.OK(b, x.Refresh(b.Context()))
		}
	})
	for _, expr := range []string{"ErrUnexpectedEOF", "(?i)unexpected end", "ReaderFrom|WriterTo|ByteScanner|RuneReader", `[A-Z][a-z]+Err[a-z]*\(`, "return", "zzyzzx_q", `^type [A-Z]\w+ interface`, `func.*context\.Context.*error`} {
		b.Run(expr, func(b *testing.B) {
			p, err := grep.Compile(expr, false)
			kit.OK(b, err)
			var sel Selection
			var st grep.Stats
			for b.Loop() {
				if sel, err = x.Select(b.Context(), "", p.Need()); err != nil {
					b.Fatal(err)
				}
				s := grep.NewSearch(b.Context(), p, grep.Options{MaxBytes: 1 << 30}, func(grep.File) error { return nil })
				kit.OK(b, search(s, view, sel.Picks))
				st = s.Stats()
			}
			b.ReportMetric(float64(len(sel.Picks)), "candidates")
			b.ReportMetric(float64(st.Matches), "lines")
			b.ReportMetric(float64(st.Bytes>>20), "MB")
		})
	}
}
