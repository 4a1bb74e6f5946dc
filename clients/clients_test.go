// Package clients_test runs the tests of the clients, which are written in their own languages, against a real server and
// against peers that behave as no server of ours would.
package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	tooltest.DirectPython()
	os.Exit(m.Run())
}

// A world is every peer of the clients, and the environment variables with their addresses.
type world struct {
	env     []string
	hostile *hostile
	model   *model
}

func newWorld(t *testing.T, bin string) *world {
	t.Helper()
	dir := t.TempDir()
	kit.OK(t, os.CopyFS(dir, os.DirFS("testdata/served")))
	server := served.Start(t, bin, dir)
	w := &world{hostile: newHostile(t), model: newModel(t)}
	codes := kit.Must(json.Marshal(w.hostile.cases))(t)
	ca, tls := overTLS(t, server.URL())
	w.env = append(os.Environ(),
		"TOOLPOST_URL="+server.URL(), "TOOLPOST_TOKEN="+served.Token, "PYTHONDONTWRITEBYTECODE=1",
		"CLIENTS_HOSTILE="+string(codes), "CLIENTS_HOSTILE_URL="+w.hostile.url, "CLIENTS_CA="+ca, "CLIENTS_TLS_URL="+tls,
		"CLIENTS_SOCKET="+overSocket(t, server.URL()), "CLIENTS_CUTTING_URL="+overCuts(t, server.URL()),
		"CLIENTS_NOBODY_URL="+nobody(t),
		"MODEL_URL="+w.model.url+"/v1", "MODEL=small", "MODEL_KEY=key-of-the-model")
	return w
}

// run runs a program to its end, and returns its output.
func (w *world) run(t *testing.T, dir string, words ...string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 4*served.Hang)
	defer stop()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, w.env, &out, &said
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%q: %v\n%s%s", words, err, out.String(), said.String())
	}
	return out.String()
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	return kit.Must(filepath.Abs(path))(t)
}

func TestClients(t *testing.T) {
	bin := served.Build(t)
	w := newWorld(t, bin)
	t.Run("Python", w.testPython)
	t.Run("TypeScript", w.testTypeScript)
	t.Run("the programs of the page", func(t *testing.T) { testPage(t, bin) })
}

func (w *world) testPython(t *testing.T) {
	python := &world{env: append(w.env, "PYTHONPATH="+absolute(t, "python/src"))}
	python.run(t, t.TempDir(), "python3", "-W", "error", absolute(t, "python/tests/test_toolpost.py"))
	w.hostile.check(t, 2, !fetches)
	w.model.check(t, python.run(t, t.TempDir(), "python3", absolute(t, "python/examples/agent.py"), "Say seven."))
}

func TestTheTypesOfThePythonClient(t *testing.T) {
	out := new(world).run(t, "python", requireNode(t), absolute(t, "testdata/js/node_modules/pyright/index.js"))
	kit.Contains(t, out, "0 errors")
}
