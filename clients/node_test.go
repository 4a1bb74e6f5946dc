package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

// requireNode returns the path of Node, if the type checker is installed too.
func requireNode(t *testing.T) string {
	t.Helper()
	_, err := os.Stat("testdata/js/node_modules")
	node, missing := exec.LookPath("node")
	if err == nil && missing == nil {
		return node
	}
	const hint = "node, or what is in clients/testdata/js, is not installed; `make setup` installs it"
	if os.Getenv("CI") == "true" {
		t.Fatal(hint)
	}
	t.Skip(hint)
	return ""
}

func tsc(t *testing.T) string { return absolute(t, "testdata/js/node_modules/typescript/bin/tsc") }

// builtPackage returns the package as it would be published, with its tests and examples, which import it by its name.
func builtPackage(t *testing.T, w *world, node string) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"src", "test", "examples"} {
		kit.OK(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("typescript", part))))
	}
	for _, name := range []string{"package.json", "tsconfig.json"} {
		text := kit.Must(os.ReadFile(filepath.Join("typescript", name)))(t)
		kit.Write(t, filepath.Join(dir, name), string(text))
	}
	w.run(t, dir, node, tsc(t))
	for _, file := range []string{"toolpost.js", "toolpost.d.ts"} { // as it is in the repository, for `npm install` of the folder
		made, kept := kit.Must(os.ReadFile(filepath.Join(dir, "dist", file)))(t), kit.Must(os.ReadFile(filepath.Join("typescript/dist", file)))(t)
		if string(made) != string(kept) {
			t.Errorf("typescript/dist/%s is not what `npm run build` makes of src; run it in clients/typescript", file)
		}
	}
	return dir
}

func (w *world) testTypeScript(t *testing.T) {
	node := requireNode(t)
	dir := builtPackage(t, w, node)
	w.run(t, dir, node, "--test", "test/")
	w.hostile.check(t, 1, fetches)
	w.run(t, dir, node, tsc(t), "-p", "examples")
	w.model.check(t, w.run(t, dir, node, "examples/agent.js", "Say seven."))
}

// Both clients are published together with the same version.
func TestTheClientsHaveOneVersion(t *testing.T) {
	read := func(name string) string {
		return kit.Read(t, name)
	}
	var about struct {
		Version string            `json:"version"`
		Scripts map[string]string `json:"scripts"`
	}
	kit.OK(t, strictjson.Unmarshal([]byte(read("typescript/package.json")), &about))
	if !strings.Contains(read("python/src/toolpost/__init__.py"), `__version__ = "`+about.Version+`"`) {
		t.Errorf("the client for Python has another version than %s", about.Version)
	}
	_, compiler, _ := strings.Cut(about.Scripts["build"], "typescript@")
	if compiler, _, _ = strings.Cut(compiler, " "); !strings.Contains(read("testdata/js/package.json"), `"typescript": "`+compiler+`"`) {
		t.Errorf("the types are checked by another compiler than %s", compiler)
	}
}
