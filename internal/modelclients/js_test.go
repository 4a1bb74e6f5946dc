package modelclients_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/scripted"
)

// A jsPeer runs the official clients for JavaScript, in a process that carries out orders.
type jsPeer struct{ *kit.Peer }

// newJS returns a function that starts the process on first use. The process ends with the test.
func newJS(t *testing.T, script string) func() *jsPeer {
	return sync.OnceValue(func() *jsPeer {
		dir := filepath.Join("..", "..", "protocol", "openai", "testdata", "js")
		if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
			return nil
		}
		cmd := exec.Command("node", script)
		cmd.Dir = dir
		return &jsPeer{kit.Start(t, cmd)}
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
	line := p.Ask(order)
	kit.OK(t, json.Unmarshal([]byte(line), into), line)
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
