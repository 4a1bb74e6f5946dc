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

// A jsPeer has the official clients for JavaScript, in a process that asks what it is told to.
type jsPeer struct {
	in    *json.Encoder
	lines *bufio.Scanner
}

// newJS gives a function that starts the process when it is first needed. It ends with the test.
func newJS(t *testing.T) func() *jsPeer {
	return sync.OnceValue(func() *jsPeer {
		dir := filepath.Join("..", "..", "protocol", "openai", "testdata", "js")
		if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
			return nil
		}
		cmd := exec.Command("node", "peer.mjs")
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

// js asks with an official client for JavaScript.
func js(peer func() *jsPeer, wire string, stream bool) talk {
	return func(_ context.Context, h *scripted.House, model string, own ...string) (s said, err error) {
		p := peer()
		if p == nil {
			if os.Getenv("CI") == "true" {
				h.T.Fatal("the JavaScript clients are not installed; run `npm install` in protocol/openai/testdata/js")
			}
			h.T.Skip("the JavaScript clients are not installed; `npm install` in protocol/openai/testdata/js installs them")
		}
		err = p.in.Encode(map[string]any{
			"url": h.URL, "token": scripted.Token, "wire": wire, "stream": stream, "model": model, "own": own,
		})
		if err != nil || !p.lines.Scan() {
			return s, errors.Join(err, p.lines.Err(), errors.New("the JavaScript clients have gone"))
		}
		var got struct {
			Text, Calls, Finish, Error string
			Tokens                     int64
		}
		if err := json.Unmarshal(p.lines.Bytes(), &got); err != nil {
			return s, errors.New(p.lines.Text())
		}
		if got.Error != "" {
			return s, errors.New(strings.TrimSpace(got.Error))
		}
		return said{got.Text, got.Calls, got.Finish, got.Tokens}, nil
	}
}
