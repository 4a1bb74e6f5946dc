package modelclients_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/internal/scripted"
)

// A jsPeer runs the official clients for JavaScript, in a process that carries out orders.
type jsPeer struct {
	in    *json.Encoder
	lines *bufio.Scanner
}

// newJS returns a function that starts the process on first use. The process ends with the test.
func newJS(t *testing.T, script string) func() *jsPeer {
	return sync.OnceValue(func() *jsPeer {
		dir := filepath.Join("..", "..", "protocol", "openai", "testdata", "js")
		if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
			return nil
		}
		cmd := exec.Command("node", script)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		guard := time.AfterFunc(5*scripted.Limit, func() { _ = cmd.Process.Kill() })
		t.Cleanup(func() {
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("the JavaScript clients: %v", err)
			}
			guard.Stop()
		})
		p := &jsPeer{json.NewEncoder(in), bufio.NewScanner(out)}
		p.lines.Buffer(nil, 1<<20)
		return p
	})
}

// ask carries out an order, and reads the result.
func (p *jsPeer) ask(t *testing.T, into any, order map[string]any) {
	t.Helper()
	if p == nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the JavaScript clients are not installed; run `npm install` in protocol/openai/testdata/js")
		}
		t.Skip("the JavaScript clients are not installed; `npm install` in protocol/openai/testdata/js installs them")
	}
	if err := p.in.Encode(order); err != nil || !p.lines.Scan() {
		t.Fatal("the JavaScript clients have gone: ", errors.Join(err, p.lines.Err()))
	}
	if err := json.Unmarshal(p.lines.Bytes(), into); err != nil {
		t.Fatal(p.lines.Text())
	}
}

// js calls a model with an official client for JavaScript.
func js(peer func() *jsPeer, wire string, stream bool) talk {
	return func(_ context.Context, h *scripted.House, model string, own ...string) (s said, err error) {
		var got struct {
			Text, Calls, Finish, Error string
			Tokens                     int64
		}
		peer().ask(h.T, &got, map[string]any{
			"url": h.URL, "token": scripted.Token, "wire": wire, "stream": stream, "model": model, "own": own,
		})
		if got.Error != "" {
			return s, errors.New(strings.TrimSpace(got.Error))
		}
		return said{got.Text, got.Calls, got.Finish, got.Tokens}, nil
	}
}
