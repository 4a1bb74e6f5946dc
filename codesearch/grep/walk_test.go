package grep

import (
	"os"
	"testing"

	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// BenchmarkTree searches the tree that TOOLPOST_TREE names.
func BenchmarkTree(b *testing.B) {
	dir := os.Getenv("TOOLPOST_TREE")
	if dir == "" {
		b.Skip("TOOLPOST_TREE names no folder")
	}
	ws := kit.Must(workspace.Open(dir, workspace.Options{}))(b)
	defer ws.Close()
	for _, c := range benchPatterns() {
		b.Run(c.name, func(b *testing.B) {
			p := kit.Must(Compile(c.expr, false))(b)
			var st Stats
			for b.Loop() {
				s := NewSearch(b.Context(), p, Options{MaxBytes: 1 << 30}, func(File) error { return nil })
				kit.OK(b, s.Walk(ws.View(&tool.Call{}), "", workspace.WalkOptions{Recursive: true, Ignore: true}, plain))
				st = s.Stats()
			}
			b.ReportMetric(float64(st.Matches), "lines")
			b.ReportMetric(float64(st.Files), "files")
		})
	}
}

func plain(below string) string { return below }
