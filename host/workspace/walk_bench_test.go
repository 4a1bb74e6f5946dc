package workspace

import (
	"os"
	"sync/atomic"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func BenchmarkWalk(b *testing.B) {
	dir := os.Getenv("TOOLPOST_TREE")
	if dir == "" {
		b.Skip("TOOLPOST_TREE names no folder")
	}
	for name, parallel := range map[string]int{"in-order": 1, "parallel": 2} {
		b.Run(name, func(b *testing.B) {
			w := kit.Must(Open(dir, Options{}))(b)
			defer w.Close()
			var n atomic.Int64
			for b.Loop() {
				n.Store(0)
				err := w.View(&tool.Call{}).Walk(b.Context(), "", WalkOptions{Recursive: true, Ignore: true, Parallel: parallel}, func(e *Entry) error {
					n.Add(1)
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n.Load()), "entries")
		})
	}
}
