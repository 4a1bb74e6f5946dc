package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// peers returns the folder of the official MCP programs. If they are missing, the test is skipped, or fails in CI.
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
	self := kit.Must(os.Executable())(n.t)
	return n.run(self, args...)
}

// try runs a command that must fail, and returns all of its output.
func (n *newcomer) try(args ...string) string {
	n.t.Helper()
	self := kit.Must(os.Executable())(n.t)
	cmd := exec.CommandContext(n.t.Context(), self, args...)
	cmd.Dir, cmd.Env = n.dir, n.env
	out, err := cmd.CombinedOutput()
	kit.Fails(n.t, err, "", "%v did not fail", args)
	return string(out)
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

// inspect lets an official client start the server in an agent's settings, until its output has all the words: a server lists
// the sources that are open, and a busy machine may not have opened one when the client asks.
func (n *newcomer) inspect(modules, settings string, wants []string, method ...string) (out string) {
	n.t.Helper()
	kit.Until(n.t, func() error {
		cmd := exec.CommandContext(n.t.Context(), filepath.Join(modules, ".bin", "node"), append([]string{
			filepath.Join(modules, ".bin", "inspector"), "--cli", "--config", filepath.Join(n.home, settings), "--server", "toolpost",
			"-e", asProgram + "=1", "--method",
		}, method...)...)
		cmd.Dir, cmd.Env = n.dir, n.env
		got, err := cmd.Output()
		out = string(got)
		if slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(out, want) }) {
			return fmt.Errorf("%s %v: %w: %s", settings, method, err, got)
		}
		return nil
	})
	return out
}

// The first minute: init, connect, and an official client that reads the agent's file and starts the program in it.
func TestOfficialClientStartsTheConnectedServer(t *testing.T) {
	modules := peers(t)
	n := newNewcomer(t)
	n.toolpost("init")
	for client, file := range map[string]string{"claude-code": ".claude.json", "cursor": ".cursor/mcp.json"} {
		n.toolpost("connect", client, "--yes")
		n.inspect(modules, file, []string{`"greet"`, `"readFile"`}, "tools/list")
		n.inspect(modules, file, []string{"Hello Ada!"}, "tools/call", "--tool-name", "greet", "--tool-arg", "name=Ada")
		got := n.inspect(modules, file, []string{`tool \"greet\"`}, "tools/call", "--tool-name", "readFile", "--tool-arg", "path=greeter/app.ai")
		kit.Equal(t, json.Valid([]byte(got)), true, client, "gets JSON")
	}
}

// The two commands of the README: after the build, the second one gives an agent the tools of the examples.
func TestAFreshCloneIsConnectedWithOneCommandAfterTheBuild(t *testing.T) {
	modules := peers(t)
	n := newNewcomer(t)
	kit.OK(t, os.CopyFS(filepath.Join(n.dir, "examples"), os.DirFS("../../examples")))
	n.toolpost("connect", "cursor", "--yes", "--config", "examples/toolpost.yaml")
	n.inspect(modules, ".cursor/mcp.json", []string{"Hello Ada!"}, "tools/call", "--tool-name", "greet", "--tool-arg", "name=Ada")
}

// nodeServer is an MCP server without dependencies. It reports what its walls let it do.
const nodeServer = `#!/usr/bin/env node
const fs = require('fs'), net = require('net');
require('readline').createInterface({input: process.stdin}).on('line', line => {
  const m = JSON.parse(line);
  if (m.id === undefined) return;
  const send = body => console.log(JSON.stringify({jsonrpc: '2.0', id: m.id, ...body}));
  const say = text => send({result: {content: [{type: 'text', text}], structuredContent: {result: text}}});
  if (m.method === 'initialize') return send({result: {protocolVersion: '2025-11-25', capabilities: {tools: {}}, serverInfo: {name: 'n', version: '1'}}});
  if (m.method === 'tools/list') return send({result: {tools: ['own', 'run', 'state', 'write', 'network'].map(name => ({name, inputSchema: {type: 'object'}}))}});
  if (m.method !== 'tools/call') return send({error: {code: -32601, message: 'no such method'}});
  const attempt = f => { try { f(); say('yes'); } catch (e) { say(e.code); } };
  switch (m.params.name) {
  case 'own': return attempt(() => fs.readFileSync(__filename));
  case 'run': return attempt(() => require('child_process').execFileSync(__dirname + '/helper'));
  case 'state': return attempt(() => fs.readFileSync(process.cwd() + '/../../toolpost.db'));
  case 'write': return attempt(() => fs.writeFileSync(__dirname + '/x', 'x'));
  case 'network': return net.connect(1, '127.0.0.1').on('error', e => say(e.code)).on('connect', () => say('yes'));
  }
});
`

// tarball writes a package in the form of npm.
func tarball(t *testing.T, path string, files map[string]string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		kit.OK(t, w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(text))}))
		kit.OK(t, kit.Err(w.Write([]byte(text))))
	}
	kit.OK(t, errors.Join(w.Close(), z.Close(), os.WriteFile(path, b.Bytes(), 0o600)))
}

// A package is installed in a place that only its own server sees, without running its scripts, and starts from there behind
// walls.
func TestAServerFromNPMIsInstalledOnceAndRunsBehindWalls(t *testing.T) {
	require(t, "npm", "node")
	n := newNewcomer(t)
	n.env = append(n.env, "npm_config_registry=http://127.0.0.1:1", "npm_config_fetch_retries=0")
	tarball(t, filepath.Join(n.dir, "demo.tgz"), map[string]string{
		"package.json": `{"name": "mcp-server-demo", "version": "1.2.3", "bin": "main.js", "scripts": {"postinstall": "touch ran"}}`,
		"main.js":      nodeServer, "helper": "#!/bin/sh\n",
	})
	n.toolpost("init")
	before := kit.Read(t, filepath.Join(n.dir, "toolpost.yaml"))
	if told := n.toolpost("mcp", "add", "--", "npx", "-y", "./demo.tgz"); !strings.Contains(told, "added demo") ||
		!strings.Contains(told, "the install scripts of mcp-server-demo were not run") {
		t.Error(told)
	}
	text := kit.Read(t, filepath.Join(n.dir, "toolpost.yaml"))
	if !strings.Contains(text, "- name: demo # from npm: mcp-server-demo 1.2.3\n") || !strings.Contains(text, "dir: .toolpost/npm/demo\n") {
		t.Error(text)
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(n.dir, ".toolpost/npm/demo/node_modules/mcp-server-demo/ran"))),
		"", "an install script was run")
	if err := os.Remove(filepath.Join(n.dir, "demo.tgz")); err != nil { // later starts need nothing else
		t.Fatal(err)
	}
	for name, want := range map[string]string{"own": "yes", "run": "yes", "state": "ENOENT", "write": "EROFS", "network": "EACCES"} {
		got := n.toolpost("call", "demo."+name)
		if name == "network" && strings.Contains(got, "ENETUNREACH") { // another wall, if this kernel has that one
			continue
		}
		kit.Contains(t, got, want, name)
	}
	if got := n.try("call", "readFile", "path=.toolpost/npm/demo/package.json"); !strings.Contains(got, "not allowed") &&
		!strings.Contains(got, "not found") && !strings.Contains(got, "no such file") {
		t.Errorf("another tool reads the package: %s", got)
	}
	n.toolpost("mcp", "remove", "demo")
	kit.Equal(t, kit.Read(t, filepath.Join(n.dir, "toolpost.yaml")), before, "the config is not what it was")
	if left, _ := os.ReadDir(filepath.Join(n.dir, ".toolpost/npm")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
