package singularity

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// BenchmarkDoor measures requests through the door to an echo tool against a bare NATS echo responder, both with 64 callers
// on the same server, in turns. Ratio is door/bare; the target is at least 0.6. The processor time (cpu-ratio) is reliable
// on a busy machine too.
func BenchmarkDoor(b *testing.B) {
	b.Run("alone", func(b *testing.B) { measure(b, tooltest.Reference{}, tooltest.Reference{}) })
	b.Run("engine", func(b *testing.B) {
		e := engine.New(engine.Options{})
		e.Replace(context.Background(), []engine.Binding{{Name: "std", Protocol: "go", Runner: inProcess{}}})
		b.Cleanup(func() { _ = e.Close(context.Background()) })
		measure(b, e, e)
	})
}

func measure(b *testing.B, h tool.Handler, c tool.Catalog) {
	s := startServer(b, "127.0.0.1:0")
	serve(b, DoorOptions{Server: s}, h, c)
	own := connectOwn(b, s)
	kit.Must(own.QueueSubscribe("bare.echo", "bare", func(m *nats.Msg) { _ = m.Respond(m.Data) }))(b)
	kit.OK(b, own.Flush())
	nc := connect(b, s)
	var door, bare cost
	total := 0
	for b.Loop() {
		const requests = 8192
		bare.add(func() { callers(b, nc, "bare.echo", requests) })
		door.add(func() { callers(b, nc, "tools.execute.echo", requests) })
		total += requests
	}
	b.ReportMetric(float64(total)/door.wall.Seconds(), "door/s")
	b.ReportMetric(float64(total)/bare.wall.Seconds(), "bare/s")
	b.ReportMetric(bare.wall.Seconds()/door.wall.Seconds(), "ratio")
	b.ReportMetric(bare.cpu.Seconds()/door.cpu.Seconds(), "cpu-ratio")
}

// A cost is the wall and processor time of some work.
type cost struct{ wall, cpu time.Duration }

func (c *cost) add(work func()) {
	start, used := time.Now(), processorTime()
	work()
	c.wall += time.Since(start)
	c.cpu += processorTime() - used
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// callers makes n requests, 64 at a time.
func callers(b *testing.B, nc *nats.Conn, subject string, n int) {
	const side = 64
	body := []byte(`{"message":"hello","n":42,"list":[1,2,3]}`)
	var wg sync.WaitGroup
	for range side {
		wg.Go(func() {
			for range n / side {
				if _, err := nc.Request(subject, body, patience); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// inProcess has the standard tools in this process.
type inProcess struct{ tooltest.Reference }

func (inProcess) Close(context.Context) error { return nil }

var _ tool.Runner = inProcess{}
