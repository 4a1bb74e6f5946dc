package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"toolpost/bench/attempt"
	"toolpost/host/spawn"
	"toolpost/protocol/narratoria"
	"toolpost/tool"
)

// events compares the runner, with all its checks, with a loop that only reads and decodes. Both get the same lines from
// the same program.
func events(ctx context.Context, l *lab) row {
	path := filepath.Join(l.dir, "events.ndjson")
	writeEvents(path, l.events)
	runner := attempt.Must(narratoria.New(l.dir, narratoria.Options{
		Tool: "events", Command: []string{"cat", path}, Options: spawn.Options{Dir: l.dir},
	}))
	defer runner.Close(ctx)
	specs := attempt.Must(runner.Tools(ctx))
	m, r := compare(3,
		clock(func() error { return throughRunner(ctx, runner, specs[0], l.events) }),
		clock(func() error { return throughLoop(ctx, path, l.events+1) }))
	return ofTheRate(l.events, m, r, 0.7)
}

func writeEvents(path string, n int) {
	f := attempt.Must(os.Create(path))
	defer f.Close()
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"version":"0","type":"log","level":"info","message":"event %d"}`+"\n", i+1)
	}
	fmt.Fprintln(w, `{"version":"0","type":"done","ok":true}`)
	attempt.Check(w.Flush())
}

func throughRunner(ctx context.Context, h tool.Handler, spec *tool.Spec, want int) error {
	got := 0
	call := &tool.Call{ID: tool.NewID(), Tool: spec.Name, Spec: spec, Args: []byte(`{}`)}
	r := attempt.Must(h.Invoke(ctx, call, tool.SinkFunc(func(tool.Event) error { got++; return nil })))
	switch {
	case !r.OK:
		return r.Failure
	case got != want:
		return fmt.Errorf("%d events came through, not %d", got, want)
	}
	return nil
}

func throughLoop(ctx context.Context, path string, want int) error {
	cmd := exec.CommandContext(ctx, "cat", path)
	out := attempt.Must(cmd.StdoutPipe())
	attempt.Check(cmd.Start())
	got := 0
	for lines := bufio.NewScanner(out); lines.Scan(); got++ {
		var e struct {
			Version string `json:"version"`
			Type    string `json:"type"`
			Level   string `json:"level"`
			Message string `json:"message"`
		}
		attempt.Check(json.Unmarshal(lines.Bytes(), &e))
	}
	attempt.Check(cmd.Wait())
	if got != want {
		return fmt.Errorf("%d lines came through, not %d", got, want)
	}
	return nil
}
