package modelclients_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"toolpost/internal/scripted"
)

// js asks with an official client for JavaScript, each time a process of its own.
func js(wire string, stream bool) talk {
	return func(ctx context.Context, h *scripted.House, model string, own ...string) (s said, err error) {
		dir := filepath.Join("..", "..", "protocol", "openai", "testdata", "js")
		if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
			if os.Getenv("CI") == "true" {
				h.T.Fatal("the JavaScript clients are not installed; run `npm install` in protocol/openai/testdata/js")
			}
			h.T.Skip("the JavaScript clients are not installed; `npm install` in protocol/openai/testdata/js installs them")
		}
		ctx, cancel := context.WithTimeout(ctx, scripted.Limit)
		defer cancel()
		order, _ := json.Marshal(map[string]any{"url": h.URL, "token": scripted.Token, "wire": wire, "stream": stream, "model": model, "own": own})
		cmd := exec.CommandContext(ctx, "node", "peer.mjs", string(order))
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return s, err
		}
		var got struct {
			Text, Calls, Finish, Error string
			Tokens                     int64
		}
		if err := json.Unmarshal(out, &got); err != nil {
			return s, errors.New(string(out))
		}
		if got.Error != "" {
			return s, errors.New(strings.TrimSpace(got.Error))
		}
		return said{got.Text, got.Calls, got.Finish, got.Tokens}, nil
	}
}
