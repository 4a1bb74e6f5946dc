package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"toolpost/bench/attempt"
	"toolpost/node"
	"toolpost/protocol/machina"
	"toolpost/tool"
)

const machinaLine = `{"aid":"AID.BENCH.ECHO.v1","input_json":"{\"query\": \"test\", \"k\": \"3\"}"}` + "\n"

// machinaTurns sends one request at a time, as hosts do.
func machinaTurns(ctx context.Context, l *lab) row {
	return machinaServe(ctx, l, 1_000, (*pipe).turns, 1)
}

// machinaPipelined keeps as many requests in the pipe as fit, so that neither side waits for the other.
func machinaPipelined(ctx context.Context, l *lab) row {
	return machinaServe(ctx, l, 2_000, (*pipe).pipelined, 1.4)
}

// machinaServe compares our door, a process with the whole engine in front of an echo tool, with a process that only
// parses each request and answers it. It parses the whole request, including the JSON in input_json: passing that to a
// tool unread is not what a toolhost does. Both processes run this program.
func machinaServe(
	ctx context.Context, l *lab, n int, exchange func(p *pipe, n int, line, want string) error, least float64,
) row {
	self := attempt.Must(os.Executable())
	door := l.start(ctx, l.dir, self, wordDoor, filepath.Join(l.dir, "machina"))
	loop := l.start(ctx, l.dir, self, wordLoop)
	const want = `"output_json":"{\"query\"`
	m, r := compare(61,
		clock(func() error { return exchange(door, n, machinaLine, want) }),
		clock(func() error { return exchange(loop, n, machinaLine, want) }))
	return ofTheRate(n, m, r, least)
}

// serveDoor is the first of the two roles of this program.
func serveDoor(ctx context.Context, l *lab, dir string) error {
	n := l.openNode(ctx, dir, map[string]string{"toolpost.yaml": echoConfig}, node.Options{})
	d := &machina.Door{
		Mode: machina.Serve, Source: "bench", In: os.Stdin, Out: os.Stdout,
		Caller: tool.Principal{ID: "local", Door: "machina"},
	}
	return d.Serve(ctx, n.Handler(), n.Catalog())
}

type machinaRequest struct {
	AID       string          `json:"aid"`
	InputJSON string          `json:"input_json"`
	DSState   json.RawMessage `json:"ds_state"`
	Key       string          `json:"idempotency_key"`
	Lease     string          `json:"_lease_token"`
}

type machinaReply struct {
	OK         bool            `json:"ok"`
	Status     string          `json:"status"`
	OutputJSON string          `json:"output_json"`
	Error      string          `json:"error"`
	DSState    json.RawMessage `json:"ds_state"`
}

// serveLoop is the other: it parses each request, and the input in it, with the standard library, and answers.
func serveLoop() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var request machinaRequest
		attempt.Check(json.Unmarshal(in.Bytes(), &request))
		var input map[string]any
		attempt.Check(json.Unmarshal([]byte(request.InputJSON), &input))
		answer := attempt.Must(json.Marshal(machinaReply{
			OK: true, Status: "OK", OutputJSON: request.InputJSON, DSState: json.RawMessage(`{}`),
		}))
		attempt.Must(os.Stdout.Write(append(answer, '\n')))
	}
}

// A pipe is a program that answers each line with a line.
type pipe struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts the program. At the end of the measurement its stdin is closed, and its exit awaited.
func (l *lab) start(ctx context.Context, dir string, argv ...string) *pipe {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, out := attempt.Must(cmd.StdinPipe()), attempt.Must(cmd.StdoutPipe())
	attempt.Check(cmd.Start())
	l.atEnd(func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return &pipe{in, bufio.NewReaderSize(out, 64<<10)}
}

// turns sends a line n times and waits for each answer, which must contain want.
func (p *pipe) turns(n int, line, want string) error {
	for range n {
		if _, err := io.WriteString(p.in, line); err != nil {
			return err
		}
		if err := p.answer(want); err != nil {
			return err
		}
	}
	return nil
}

// pipelined sends a line n times without waiting for the answers.
func (p *pipe) pipelined(n int, line, want string) error {
	written := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(p.in)
		for range n {
			_, _ = w.WriteString(line) // Flush returns its error
		}
		written <- w.Flush()
	}()
	for range n {
		if err := p.answer(want); err != nil {
			return errors.Join(err, p.in.Close(), <-written)
		}
	}
	return <-written
}

func (p *pipe) answer(want string) error {
	line, err := p.out.ReadSlice('\n')
	if err == nil && !bytes.Contains(line, []byte(want)) {
		err = fmt.Errorf("unexpected answer %q", line)
	}
	return err
}

// hostProgram is a toolhost that greets.
const hostProgram = `import json, sys
if "--list" in sys.argv:
    print(json.dumps({"ok": True, "tools": [{"aid": "AID.BENCH.GREET.v1", "name": "greet", "side_effects": ["none"]}]}))
    sys.exit()
for line in sys.stdin:
    m = json.loads(line)
    said = json.dumps({"message": "Hello " + json.loads(m["input_json"])["name"]})
    print(json.dumps({"ok": True, "status": "OK", "output_json": said, "error": ""}), flush=True)
`

const (
	hostConfig = "sources: [{name: host, protocol: machina, command: [python3, host.py], plugin: host.py, sessions: 1}]\n"
	hostLine   = `{"aid":"AID.BENCH.GREET.v1","input_json":"{\"name\":\"Ada\"}"}` + "\n"
)

// machinaHost returns a function that calls a toolhost through the whole engine, and the same program alone.
func machinaHost(ctx context.Context, l *lab) (call func() error, bare *pipe, line string) {
	dir := filepath.Join(l.dir, "toolhost")
	n := l.open(ctx, dir, map[string]string{"toolpost.yaml": hostConfig, "host.py": hostProgram})
	return greet(ctx, n, "greet"), l.start(ctx, dir, "python3", "host.py", "--serve", "host.py"), hostLine
}

// A running is a program that is already running: a call of it through us, the program itself, and a line that calls it.
type running func(context.Context, *lab) (call func() error, bare *pipe, line string)

// lockstep compares sequential calls through us with a line to the same program and a line back.
func lockstep(of running, most float64) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		call, bare, line := of(ctx, l)
		m, r := compare(301, batch(20, call), batch(20, func() error { return bare.turns(1, line, "Hello Ada") }))
		return asLong(m, r, us, most)
	}
}

// pipelined compares many callers with as many lines as fit into the pipe.
func pipelined(of running, most float64) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		const callers, each = 64, 10
		call, bare, line := of(ctx, l)
		m, r := compare(61, clock(storm(callers, each, call)),
			clock(func() error { return bare.pipelined(callers*each, line, "Hello Ada") }))
		return asLong(m/(callers*each), r/(callers*each), us, most)
	}
}
