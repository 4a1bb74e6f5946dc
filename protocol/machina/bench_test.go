package machina_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"toolpost/engine"
	"toolpost/protocol/machina"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// BenchmarkServe compares our toolhost, a process with the whole engine in front of an echo tool, with a
// process that only parses each request, and the input in it, with the standard library and answers it.
// Ratio is our rate over its rate: with one request at a time, as hosts ask, and with as many in the pipe as fit.
//
//	go test -run '^$' -bench Serve -benchtime 100000x ./protocol/machina
func BenchmarkServe(b *testing.B) {
	for name, exchange := range map[string]func(testing.TB, *peer, int){"one-at-a-time": lockstep, "pipelined": pipelined} {
		b.Run(name, func(b *testing.B) {
			var door, loop time.Duration
			const rounds = 4 // taken in turns, so that a busy machine is busy for both
			for range rounds {
				door += rate(b, "engine", exchange, b.N/rounds+1)
				loop += rate(b, "loop", exchange, b.N/rounds+1)
			}
			b.ReportMetric(float64(b.N)/door.Seconds(), "requests/s")
			b.ReportMetric(float64(b.N)/loop.Seconds(), "loop-requests/s")
			b.ReportMetric(loop.Seconds()/door.Seconds(), "ratio")
		})
	}
}

const benchRequest = `{"aid":"AID.TOOLTEST.ECHO.v1","input_json":"{\"query\": \"test\", \"k\": \"3\"}"}` + "\n"

// A peer is a toolhost process and the two ends of its pipes.
type peer struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func rate(b testing.TB, what string, exchange func(testing.TB, *peer, int), n int) time.Duration {
	cmd := exec.Command(os.Args[0], "--serve", "tooltest")
	cmd.Env = append(os.Environ(), helper+"="+what)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p := &peer{in, bufio.NewReaderSize(out, 64<<10)}
	lockstep(b, p, 100) // warm
	start := time.Now()
	exchange(b, p, n)
	took := time.Since(start)
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	return took
}

func lockstep(b testing.TB, p *peer, n int) {
	for range n {
		if _, err := io.WriteString(p.in, benchRequest); err != nil {
			b.Fatal(err)
		}
		p.answer(b)
	}
}

func pipelined(b testing.TB, p *peer, n int) {
	written := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(p.in)
		for range n {
			_, _ = w.WriteString(benchRequest)
		}
		written <- w.Flush()
	}()
	for range n {
		p.answer(b)
	}
	if err := <-written; err != nil {
		b.Fatal(err)
	}
}

func (p *peer) answer(b testing.TB) {
	line, err := p.out.ReadSlice('\n')
	if err != nil || len(line) < 100 || string(line[:10]) != `{"ok":true` {
		b.Fatalf("%s, %v", line, err)
	}
}

// source makes a runner of the reference tools.
type source struct{ tooltest.Reference }

func (source) Close(context.Context) error { return nil }

// serveEngine is a toolhost with the whole engine.
func serveEngine() error {
	e := engine.New(engine.Options{})
	e.Replace(context.Background(), []engine.Binding{{Name: "tooltest", Protocol: "tooltest", Runner: source{}}})
	d := &machina.Door{Mode: machina.Serve, Source: "tooltest", In: os.Stdin, Out: os.Stdout, Caller: tool.Principal{ID: "local", Door: "machina", Operates: true}}
	return d.Serve(context.Background(), e, e)
}

// serveLoop parses and answers, and nothing else.
func serveLoop() error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var request struct {
			AID       string          `json:"aid"`
			InputJSON string          `json:"input_json"`
			DSState   json.RawMessage `json:"ds_state"`
			Key       string          `json:"idempotency_key"`
			Lease     string          `json:"_lease_token"`
		}
		if err := json.Unmarshal(in.Bytes(), &request); err != nil {
			return err
		}
		var input map[string]any
		if err := json.Unmarshal([]byte(request.InputJSON), &input); err != nil {
			return err
		}
		answer, err := json.Marshal(struct {
			OK         bool            `json:"ok"`
			Status     string          `json:"status"`
			OutputJSON string          `json:"output_json"`
			Error      string          `json:"error"`
			DSState    json.RawMessage `json:"ds_state"`
		}{true, "OK", request.InputJSON, "", json.RawMessage(nothing)})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(os.Stdout, "%s\n", answer); err != nil {
			return err
		}
	}
	return nil
}
