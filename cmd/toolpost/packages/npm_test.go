package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// A registry is a server from which the npm of this machine installs.
type registry struct {
	*httptest.Server
	tarballs map[string][]byte
	asked    atomic.Int64
}

// newRegistry serves packages: by name and version, their files.
func newRegistry(t *testing.T, packages map[string]map[string]map[string]string) *registry {
	t.Helper()
	for _, program := range []string{"npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is missing; `make setup` installs it", program)
			}
			t.Skipf("%s is missing; `make setup` installs it", program)
		}
	}
	r := &registry{tarballs: map[string][]byte{}}
	documents := map[string][]byte{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.asked.Add(1)
		if doc, ok := documents[strings.ReplaceAll(q.URL.EscapedPath(), "%2f", "/")]; ok {
			_, _ = w.Write(doc)
		} else if ball, ok := r.tarballs[q.URL.Path]; ok {
			_, _ = w.Write(ball)
		} else {
			http.NotFound(w, q)
		}
	}))
	t.Cleanup(r.Close)
	for name, versions := range packages {
		all, latest := map[string]any{}, ""
		for version, files := range versions {
			var m map[string]any
			kit.OK(t, json.Unmarshal([]byte(files["package.json"]), &m))
			m["name"], m["version"] = name, version
			full, _ := json.Marshal(m)
			files["package.json"] = string(full)
			if scripts, ok := m["scripts"].(map[string]any); ok && scripts["postinstall"] != nil {
				m["hasInstallScript"] = true
			}
			ball := pack(t, files)
			sum := sha512.Sum512(ball)
			at := fmt.Sprintf("/%s/-/%s.tgz", name, version)
			r.tarballs[at] = ball
			m["dist"] = map[string]string{"tarball": r.URL + at, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
			all[version] = m
			latest = max(latest, version)
		}
		doc, _ := json.Marshal(map[string]any{"name": name, "dist-tags": map[string]string{"latest": latest}, "versions": all})
		documents["/"+name] = doc
	}
	home := t.TempDir()
	for name, value := range map[string]string{"HOME": home, "npm_config_registry": r.URL, "npm_config_cache": home + "/cache", "npm_config_userconfig": home + "/.npmrc", "npm_config_fetch_retries": "0"} {
		t.Setenv(name, value)
	}
	return r
}

func pack(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		kit.OK(t, w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(text))}))
		kit.Must(w.Write([]byte(text)))(t)
	}
	kit.OK(t, w.Close())
	kit.OK(t, z.Close())
	return b.Bytes()
}

const script = "#!/usr/bin/env node\nconsole.log(require('dep').word)\n"

func demo() map[string]map[string]map[string]string {
	server := func(word string) map[string]string {
		return map[string]string{
			"package.json": `{"bin": {"demo": "dist/main.js", "other": "dist/other.js"}, "dependencies": {"dep": "` + word + `"}, "scripts": {"postinstall": "echo x > ran"}}`,
			"dist/main.js": script, "dist/other.js": script,
		}
	}
	dep := func(word string) map[string]string {
		return map[string]string{"package.json": `{}`, "index.js": "exports.word = '" + word + "'"}
	}
	return map[string]map[string]map[string]string{
		"@acme/demo": {"1.0.0": server("^1.0.0"), "2.0.0": server("^2.0.0")},
		"dep":        {"1.5.0": dep("one"), "2.5.0": dep("two")},
		"library":    {"1.0.0": {"package.json": "{}"}},
		"escape":     {"1.0.0": {"package.json": `{"bin": "../../../../etc/passwd"}`}},
		"binary":     {"1.0.0": {"package.json": `{"bin": "run"}`, "run": "#!/bin/sh\necho run\n"}},
	}
}

func TestAPackageIsInstalledOnceAndWhole(t *testing.T) {
	r := newRegistry(t, demo())
	dir := filepath.Join(t.TempDir(), "npm", "demo")
	p := kit.Must(Install(t.Context(), Request{Index: NPM, Spec: "@acme/demo", Dir: dir}))(t)
	if p.Name != "@acme/demo" || p.Version != "2.0.0" || !filepath.IsAbs(p.Argv[0]) || p.Argv[1] != "node_modules/@acme/demo/dist/main.js" {
		t.Errorf("%+v", p)
	}
	kit.EqualSlices(t, p.Scripts, []string{"@acme/demo"}, "scripts that were left out")
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(dir, "node_modules/@acme/demo/ran"))), "", "an install script was run")
	r.Close() // programs started from here on need no network
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Dir = dir
	kit.Equal(t, string(kit.Must(cmd.CombinedOutput())(t)), "two\n")
	for _, path := range []string{dir, filepath.Dir(dir)} {
		kit.Equal(t, kit.Must(os.Stat(path))(t).Mode().Perm(), 0o700, path)
	}
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil || !strings.Contains(string(text), `"@acme/demo":"2.0.0"`) {
		t.Errorf("%v: %s", err, text)
	}
	// A failed installation keeps the existing files, and leaves nothing beside them.
	kit.Fails(t, kit.Err(Install(t.Context(), Request{Index: NPM, Spec: "@acme/demo@1", Dir: dir})),
		"", "it was installed from nowhere")
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
}

func TestProgramOfAPackageIsChosen(t *testing.T) {
	newRegistry(t, demo())
	for _, c := range []struct{ spec, bin, want, err string }{
		{"@acme/demo@1.0.0", "other", "node_modules/@acme/demo/dist/other.js", ""},
		{"@acme/demo@^1", "", "node_modules/@acme/demo/dist/main.js", ""},
		{"@acme/demo", "nosuch", "", "has the programs demo, other; name one of them"},
		{"binary", "", "./node_modules/binary/run", ""},
		{"library", "", "", "has no program to start"},
		{"escape", "", "", "is not there"},
		{"nosuch", "", "", "npm could not install nosuch"},
		{"--version", "", "", "is not the name of a package"},
	} {
		p, err := Install(t.Context(), Request{Index: NPM, Spec: c.spec, Bin: c.bin, Dir: filepath.Join(t.TempDir(), "x")})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v", c.spec, err)
		case c.err == "" && (err != nil || p.Argv[len(p.Argv)-1] != c.want):
			t.Errorf("%s: %+v, %v", c.spec, p, err)
		}
	}
}

func TestInstallScriptsRunOnlyOnRequest(t *testing.T) {
	newRegistry(t, demo())
	dir := filepath.Join(t.TempDir(), "demo")
	p, err := Install(t.Context(), Request{Index: NPM, Spec: "@acme/demo", Dir: dir, Scripts: true})
	if err != nil || len(p.Scripts) > 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	kit.Check(t, kit.Err(os.Stat(filepath.Join(dir, "node_modules/@acme/demo/ran"))))
}
