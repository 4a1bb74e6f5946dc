package alphahuman

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// BenchmarkWarmCall measures a call to a warm skill against a bare round trip over the pipes of the same
// program, in turns. Ratio is the call over the round trip; the target is under 2.
//
//	go test -run '^$' -bench WarmCall ./protocol/alphahuman
func BenchmarkWarmCall(b *testing.B) {
	r, _ := open(b, Options{Skill: "testdata/first"})
	kit.Must(r.Tools(b.Context()))(b)
	bare := startBare(b)
	const turn = 200
	var ours, theirs time.Duration
	n := 0
	for b.Loop() {
		theirs += timed(func() {
			for range turn {
				bare(b)
			}
		})
		ours += timed(func() {
			for range turn {
				c := &tool.Call{Tool: "say", Args: json.RawMessage(`{"text":"hello"}`)}
				if res, err := r.Invoke(b.Context(), c, tool.Discard); err != nil || !res.OK {
					b.Fatal(res, err)
				}
			}
		})
		n += turn
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(n), "us/call")
	b.ReportMetric(float64(theirs.Microseconds())/float64(n), "us/bare")
	b.ReportMetric(ours.Seconds()/theirs.Seconds(), "ratio")
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// startBare starts the skill's program and returns a function that makes one round trip with it.
func startBare(b *testing.B) func(testing.TB) {
	cmd := exec.Command("python3", "skill.py")
	cmd.Dir, cmd.Stderr = "testdata/first", os.Stderr
	in := kit.Must(cmd.StdinPipe())(b)
	out := kit.Must(cmd.StdoutPipe())(b)
	kit.OK(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines, id := bufio.NewReader(out), 0
	return func(t testing.TB) {
		id++
		kit.Must(fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"say","arguments":{"text":"hello"}}}`+"\n", id))(t)
		kit.Must(lines.ReadSlice('\n'))(t)
	}
}
