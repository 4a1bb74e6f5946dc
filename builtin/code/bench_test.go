package code

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/codesearch"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// BenchmarkGrep greps the tree that TOOLPOST_TREE names: without an index, with one, and with ripgrep if it is installed.
// Beside the time it reports the processor time, which other work on the machine disturbs less.
func BenchmarkGrep(b *testing.B) {
	dir := os.Getenv("TOOLPOST_TREE")
	if dir == "" {
		b.Skip("TOOLPOST_TREE names no folder")
	}
	ws := kit.Must(workspace.Open(dir, workspace.Options{}))(b)
	defer ws.Close()
	cold := benchTools(b, ws, codesearch.Options{Rate: -1, MaxLines: 1 << 30, Index: codesearch.IndexOptions{Off: true}})
	warm := benchTools(b, ws, codesearch.Options{Rate: -1, MaxLines: 1 << 30})
	kit.OK(b, warm.library.Refresh(b.Context(), &tool.Call{}, ws.Roots()[0].Codebase))
	for _, expr := range []string{
		"ErrUnexpectedEOF", "(?i)unexpected end", "ReaderFrom|WriterTo|ByteScanner|RuneReader", `[A-Z][a-z]+Err[a-z]*\(`, `[a-z]{3}[0-9]{2}\s[A-Z]`,
		`\b[a-z]+_[a-z]+_[A-Z]+\b`, `^type [A-Z]\w+ interface`, "return", "zzyzzx_q", `func.*context\.Context.*error`,
	} {
		for name, tools := range map[string]*Tools{"cold": cold, "warm": warm} {
			b.Run(name+"/"+expr, func(b *testing.B) {
				began := cpuTime(unix.RUSAGE_SELF)
				for b.Loop() {
					args, _ := json.Marshal(map[string]any{"pattern": expr, "limit": 1 << 30})
					r, err := tools.Invoke(b.Context(), &tool.Call{Args: args, Spec: &tool.Spec{Name: "grepCode"}}, tool.Discard)
					kit.OK(b, err)
					st := r.Trace.Details["grep"].(codesearch.GrepStats)
					b.ReportMetric(float64(st.Matches), "lines")
					b.ReportMetric(float64(st.Files), "files")
				}
				b.ReportMetric(float64(cpuTime(unix.RUSAGE_SELF)-began)/float64(b.N)/1e6, "cpu-ms/op")
			})
		}
		b.Run("rg/"+expr, func(b *testing.B) {
			began := cpuTime(unix.RUSAGE_CHILDREN)
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), "rg", "-n", "--no-heading", expr, ".")
				cmd.Dir = dir
				out, _ := cmd.Output()
				b.ReportMetric(float64(bytes.Count(out, []byte("\n"))), "lines")
			}
			b.ReportMetric(float64(cpuTime(unix.RUSAGE_CHILDREN)-began)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}

func benchTools(b *testing.B, ws *workspace.Workspace, o codesearch.Options) *Tools {
	tools := kit.Must(New(ws, o, b.TempDir(), slog.New(slog.DiscardHandler)))(b)
	b.Cleanup(func() { tools.Close(context.Background()) })
	return tools
}

func cpuTime(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
