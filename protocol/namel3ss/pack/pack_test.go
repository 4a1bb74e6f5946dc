package pack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// files returns the files of a pack with one tool.
func files(id string) map[string]string {
	return map[string]string{
		"pack.yaml":         "id: " + id + "\nname: Greetings\nversion: 1.2.3\ndescription: says hello\nauthor: Ada\nlicense: MIT\ntools: [one]\n",
		"tools.yaml":        "tools:\n  one: {kind: python, entry: 'hello.main:run', purity: pure, timeout_ms: 5000}\n",
		"capabilities.yaml": "capabilities:\n  one: {filesystem: read, network: outbound, env: read, subprocess: allow, secrets: [TOKEN]}\n",
		"hello/main.py":     "def run(p):\n    return {'file': __file__}\n",
	}
}

func TestCapabilitiesOfAPackBecomeWalls(t *testing.T) {
	all := tool.Guarantees{NoFilesystemRead: true, NoFilesystemWrite: true, NoNetwork: true, NoSubprocess: true, NoEnvRead: true, NoEnvWrite: true, SecretsAllowed: []string{}}
	none := tool.Guarantees{NoEnvWrite: true, SecretsAllowed: []string{"A"}}
	for text, want := range map[string]tool.Guarantees{
		``:                      all,
		`capabilities: {t: {}}`: all,
		`capabilities: {t: {filesystem: none, network: none, env: none, subprocess: none, secrets: []}}`:        all,
		`capabilities: {t: {filesystem: write, network: outbound, env: read, subprocess: allow, secrets: [A]}}`: none,
		`capabilities: {t: {filesystem: read, network: outbound, env: read, subprocess: allow, secrets: [A]}}`:  {NoFilesystemWrite: true, NoEnvWrite: true, SecretsAllowed: []string{"A"}},
	} {
		got, err := parseCapabilities("capabilities.yaml", []byte(text))
		kit.Check(t, err, text)
		kit.Equal(t, cmp.Diff(want, got["t"].Guarantees()), "", text)
	}
}

func FuzzPack(f *testing.F) {
	for _, seed := range files("a") {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Add([]byte("capabilities: {one: {secrets: [1]}}"), []byte("id: x\ntools: [x]\n"))
	f.Fuzz(func(t *testing.T, manifest, caps []byte) {
		dir := t.TempDir()
		_ = os.WriteFile(filepath.Join(dir, "pack.yaml"), manifest, 0o644)
		p, err := readPack(dir, "pack")
		if err == nil && (p.ID == "" || len(p.Has) == 0) {
			t.Errorf("%q was taken as %+v", manifest, p)
		}
		if err != nil && len(brokenPack(dir, "pack", err).Has) == 0 {
			t.Errorf("nobody hears of %q", manifest)
		}
		needs, err := parseCapabilities("capabilities.yaml", caps)
		for name, n := range needs {
			if err == nil && n.check() != nil {
				t.Errorf("%q of %s was accepted", caps, name)
			}
		}
	})
}
