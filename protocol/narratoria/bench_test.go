package narratoria_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/protocol/narratoria"
	"toolpost/tool"
)

// BenchmarkEvents pushes small events through the runner, and through the loop that a program without it would use: a
// bufio.Scanner and the standard library's decoder. Both read the pipe of a `cat` of the same file. ratio is the runner's
// rate over the loop's.
//
//	go test -run '^$' -bench Events -benchtime 1000000x ./protocol/narratoria
func BenchmarkEvents(b *testing.B) {
	file := eventFile(b, b.N)
	r := newRunner(b, narratoria.Options{Tool: "torch", Command: []string{"cat", file}})
	b.ReportAllocs()
	b.ResetTimer()
	runner := timed(func() { throughRunner(b, r, b.N) })
	b.StopTimer()
	loop := timed(func() { throughLoop(b, file, b.N) })
	b.ReportMetric(float64(b.N)/runner.Seconds(), "events/s")
	b.ReportMetric(float64(b.N)/loop.Seconds(), "loop-events/s")
	b.ReportMetric(loop.Seconds()/runner.Seconds(), "ratio")
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

func eventFile(b *testing.B, count int) string {
	path := filepath.Join(b.TempDir(), "events.ndjson")
	f := kit.Must(os.Create(path))(b)
	w := bufio.NewWriter(f)
	for n := range count {
		fmt.Fprintf(w, `{"version":"0","type":"log","level":"info","message":"step %d","fields":{"n":%d}}`+"\n", n, n)
	}
	fmt.Fprintln(w, `{"version":"0","type":"done","ok":true}`)
	kit.OK(b, w.Flush())
	kit.OK(b, f.Close())
	return path
}

func throughRunner(b *testing.B, r tool.Handler, want int) {
	got := 0
	sink := tool.SinkFunc(func(tool.Event) error { got++; return nil })
	if _, err := r.Invoke(b.Context(), &tool.Call{ID: "bench", Tool: "torch"}, sink); err != nil || got != want {
		b.Fatalf("%d events of %d, %v", got, want, err)
	}
}

func throughLoop(b *testing.B, file string, want int) {
	cmd := exec.Command("cat", file)
	out := kit.Must(cmd.StdoutPipe())(b)
	kit.OK(b, cmd.Start())
	got := 0
	for s := bufio.NewScanner(out); s.Scan(); got++ {
		var event struct {
			Version string          `json:"version"`
			Type    string          `json:"type"`
			Level   string          `json:"level"`
			Message string          `json:"message"`
			Fields  json.RawMessage `json:"fields"`
		}
		kit.OK(b, json.Unmarshal(s.Bytes(), &event))
	}
	if err := cmd.Wait(); err != nil || got != want+1 {
		b.Fatalf("%d lines of %d, %v", got, want+1, err)
	}
}
