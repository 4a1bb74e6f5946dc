package console

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
)

// The committed bundle must be what its sources build: no reader has to trust a bundle that cannot be read.
func TestBundleMatchesItsSources(t *testing.T) {
	t.Parallel()
	built := t.TempDir()
	node(t, "node_modules/vite/bin/vite.js", "build", "--outDir", built, "--emptyOutDir")
	want, have := filesOf(t, built), filesOf(t, filepath.Join(app(), "..", "dist"))
	for path, text := range want {
		kit.Equal(t, have[path],
			text, "web/console/dist/%s is not what the sources give: run `make console` and commit it", path)
	}
	for path := range have {
		if _, ok := want[path]; !ok {
			t.Errorf("web/console/dist/%s is not made from the sources: run `make console` and commit it", path)
		}
	}
}

// The modules that compute something, such as the positions of boxes in a graph, have their tests beside them.
func TestTheModulesOfThePage(t *testing.T) {
	t.Parallel()
	node(t, "node_modules/vitest/vitest.mjs", "run", "--no-isolate", "--test-timeout=120000") // modules without state; 5 s are not enough on a busy machine
}

// app returns the folder of the page's sources.
func app() string { return filepath.FromSlash("../../web/console/app") }

// node runs a program that npm installed there.
func node(t *testing.T, args ...string) {
	t.Helper()
	setup := exec.CommandContext(t.Context(), filepath.FromSlash("../../.ci/setup"), "--check", "node", "console")
	if out, err := setup.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Skip("what builds the page is missing: .ci/setup node console")
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = app()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	kit.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(b)
		return err
	}))
	return files
}
