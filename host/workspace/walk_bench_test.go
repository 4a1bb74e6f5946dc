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

// deniesNone is a scope that has to be asked about every file.
type deniesNone struct{}

func (deniesNone) Path(string, bool) error { return nil }

func BenchmarkClosed(b *testing.B) {
	dir := os.Getenv("TOOLPOST_TREE")
	if dir == "" {
		b.Skip("TOOLPOST_TREE names no folder")
	}
	for name, scope := range map[string]tool.Scope{"names": nil, "policy": deniesNone{}} {
		b.Run(name, func(b *testing.B) {
			w := kit.Must(Open(dir, Options{Roots: []RootOptions{{Path: ".", Write: true}}}))(b)
			defer w.Close()
			for b.Loop() {
				if _, err := w.View(&tool.Call{Scope: scope}).Closed(b.Context(), w.Roots()[0].Dir, false, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
