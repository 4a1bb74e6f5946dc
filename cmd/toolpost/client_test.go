package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// peers are the official programs that speak MCP, and the Node that they need.
func peers(t *testing.T) (modules string) {
	t.Helper()
	modules, err := filepath.Abs("../../protocol/mcp/testdata/js/node_modules")
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, ".bin", "inspector"))
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the JavaScript peers are missing: %v; `.ci/setup js` installs them", err)
		}
		t.Skipf("the JavaScript peers are missing: %v; `.ci/setup js` installs them", err)
	}
	return modules
}

// A newcomer has an empty home and an empty folder.
type newcomer struct {
	t         *testing.T
	home, dir string
	env       []string
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	n := &newcomer{t: t, home: t.TempDir(), dir: t.TempDir()}
	n.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.home, "TERM=dumb", "LANG=C.UTF-8", asProgram + "=1"}
	return n
}

// toolpost runs the program as the newcomer types it.
func (n *newcomer) toolpost(args ...string) string {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	return n.run(self, args...)
}

func (n *newcomer) run(program string, args ...string) string {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), program, args...)
	cmd.Dir, cmd.Env = n.dir, n.env
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("%s %v: %v\n%s\n%s", filepath.Base(program), args, err, out, words.String())
	}
	return string(out)
}

// The first minute: init, connect, and an official client that reads the file of the agent and starts what it says.
func TestAnOfficialClientUsesWhatConnectWrote(t *testing.T) {
	modules := peers(t)
	n := newNewcomer(t)
	n.toolpost("init")
	for client, file := range map[string]string{"claude-code": ".claude.json", "cursor": ".cursor/mcp.json"} {
		n.toolpost("connect", client, "--yes")
		path := filepath.Join(n.home, file)
		inspect := func(args ...string) string {
			return n.run(filepath.Join(modules, ".bin", "node"), append([]string{filepath.Join(modules, ".bin", "inspector"),
				"--cli", "--config", path, "--server", "toolpost", "-e", asProgram + "=1", "--method"}, args...)...)
		}
		if list := inspect("tools/list"); !strings.Contains(list, `"greet"`) || !strings.Contains(list, `"readFile"`) {
			t.Errorf("%s: %s", client, list)
		}
		if got := inspect("tools/call", "--tool-name", "greet", "--tool-arg", "name=Ada"); !strings.Contains(got, "Hello Ada!") {
			t.Errorf("%s: %s", client, got)
		}
		got := inspect("tools/call", "--tool-name", "readFile", "--tool-arg", "path=greeter/app.ai")
		if !strings.Contains(got, `tool \"greet\"`) || !json.Valid([]byte(got)) {
			t.Errorf("%s: %s", client, got)
		}
	}
}
