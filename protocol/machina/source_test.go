package machina_test

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/machina"
)

// sources reads the sources of a config in a folder.
func sources(t *testing.T, dir, text string) []config.Source {
	t.Helper()
	path := filepath.Join(dir, "toolpost.yaml")
	kit.OK(t, os.WriteFile(path, []byte("sources:\n"+text), 0o600))
	return kit.Must(config.Load(path))(t).Sources
}

// Existing hosts name the file that a toolhost is to load by its full path.
func TestPluginPathSelectsItsSource(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	kit.OK(t, os.MkdirAll("plugins", 0o700))
	for _, name := range []string{"plugins/a.so", "plugins/b.so"} {
		kit.OK(t, os.WriteFile(name, nil, 0o600))
	}
	kit.OK(t, os.Symlink("a.so", "plugins/link.so"))
	several := sources(t, dir, `
  - {name: files, protocol: builtin, roots: [{path: .}]}
  - {name: broken, protocol: machina, plugin: [5]}
  - {name: a, protocol: machina, command: [x], plugin: ./plugins/a.so}
  - {name: b, protocol: machina, command: [x], dir: plugins, plugin: b.so}
  - {name: later, protocol: machina, command: [x], plugin: plugins/b.so}
  - {name: gone, protocol: machina, command: [x], plugin: /nowhere/c.so}
  - {name: word, protocol: machina, command: [x], plugin: probe}
`)
	one := sources(t, dir, "  - {name: files, protocol: builtin, roots: [{path: .}]}\n")
	for _, c := range []struct {
		word    string
		sources []config.Source
		want    string
	}{
		{"files", several, "files"}, {"b", several, "b"},
		{dir + "/plugins/a.so", several, "a"}, {"plugins/a.so", several, "a"}, {"./plugins/../plugins/a.so", several, "a"}, {"plugins/link.so", several, "a"},
		{dir + "/plugins/b.so", several, "b"}, {"/nowhere/c.so", several, "gone"}, {"probe", several, "word"},
		{"b.so", several, "b.so"}, {"/nowhere/d.so", several, "/nowhere/d.so"}, {"nosuch", several, "nosuch"},
		{"/nowhere/d.so", one, "files"}, {"d.so", one, "files"}, {"some/plugin", one, "files"},
		{"nosuch", one, "nosuch"}, {"", one, ""}, {"/nowhere/d.so", nil, "/nowhere/d.so"},
	} {
		if got := machina.SourceOf(c.word, c.sources); got != c.want {
			t.Errorf("%s means %s among %d, want %s", c.word, got, len(c.sources), c.want)
		}
	}
}
