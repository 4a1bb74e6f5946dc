package namel3ss

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/tool"
)

const benchCode = "def run(payload):\n    return {'message': 'Hello ' + payload['name']}\n"

// BenchmarkWarmCall runs a warm call and, as the reference, a plain interpreter for the same function, in turns. It reports
// how many times as fast the warm call is.
func BenchmarkWarmCall(b *testing.B) {
	r := python(b, benchCode, Options{})
	must(b, r, "t", `{"name":"Ada"}`)
	path, root := systemPython(b), r.tools["t"].root
	var warm, spawned time.Duration
	for b.Loop() {
		start := time.Now()
		must(b, r, "t", `{"name":"Ada"}`)
		warm += time.Since(start)
		spawned += bare(b, path, root)
	}
	b.ReportMetric(float64(spawned)/float64(warm), "x-as-fast-as-spawning")
	b.ReportMetric(float64(warm.Microseconds())/1000/float64(b.N), "ms/warm")
	b.ReportMetric(float64(spawned.Microseconds())/1000/float64(b.N), "ms/spawned")
}

// bare does what a host without this package would do: start Python, import, call, print.
func bare(b *testing.B, path, root string) time.Duration {
	const code = "import code, json, sys\nprint(json.dumps(code.run(json.load(sys.stdin))))\n"
	cmd := exec.Command(path, "-c", code)
	cmd.Dir = root
	cmd.Stdin = strings.NewReader(`{"name":"Ada"}`)
	start := time.Now()
	out, err := cmd.Output()
	took := time.Since(start)
	if err != nil || !strings.Contains(string(out), "Hello Ada") {
		b.Fatalf("%s, %v", out, err)
	}
	return took
}

// BenchmarkConfinedWarmCall runs a warm call behind the default walls and, as the reference, one without walls, in
// turns. It reports how many times as long the confined call takes.
func BenchmarkConfinedWarmCall(b *testing.B) {
	confined, open := python(b, benchCode, Options{}), python(b, benchCode, Options{Options: spawn.Options{Walls: walls.Options{Off: true}}})
	must(b, confined, "t", `{"name":"Ada"}`)
	must(b, open, "t", `{"name":"Ada"}`)
	took := func(r *Runner) time.Duration {
		start := time.Now()
		must(b, r, "t", `{"name":"Ada"}`)
		return time.Since(start)
	}
	var walled, plain time.Duration
	for b.Loop() {
		walled += took(confined)
		plain += took(open)
	}
	b.ReportMetric(float64(walled)/float64(plain), "x-as-long-as-without-walls")
	b.ReportMetric(float64(walled.Microseconds())/1000/float64(b.N), "ms/confined")
	b.ReportMetric(float64(plain.Microseconds())/1000/float64(b.N), "ms/open")
}

func BenchmarkFreshCall(b *testing.B) {
	r := python(b, benchCode, Options{Mode: modeFresh})
	for b.Loop() {
		must(b, r, "t", `{"name":"Ada"}`)
	}
}

func BenchmarkWarmCallsAtOnce(b *testing.B) {
	r := python(b, benchCode, Options{})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			kit.Check(b, kit.Err(call(r, "t", `{"name":"Ada"}`, tool.Discard)))
		}
	})
}
