package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
	"toolpost/node"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml[^\n]*\n((?:#[^\n]*\n)*([a-z]+):.*?)^```$")

// A reader copies them. The programs and files that they name need not exist: `config check` exits with 1 then.
func TestConfigsOnThePagesAreAccepted(t *testing.T) {
	var s part
	kit.OK(t, json.Unmarshal(kit.Must(node.Schema())(t), &s))
	bin, seen := served.Build(t), 0
	for _, page := range slices.Concat(kit.Must(filepath.Glob("*.md"))(t), kit.Must(filepath.Glob("protocols/*.md"))(t)) {
		for _, block := range yamlBlock.FindAllStringSubmatch(string(kit.Must(os.ReadFile(page))(t)), -1) {
			if s.Properties[block[2]] == nil {
				continue // not a config
			}
			seen++
			file := filepath.Join(t.TempDir(), "toolpost.yaml")
			kit.OK(t, os.WriteFile(file, []byte(block[1]), 0o600))
			check := exec.Command(bin, "config", "check", "--config", file)
			check.Env = append(os.Environ(), "HOME="+t.TempDir())
			if out, err := check.CombinedOutput(); err != nil && check.ProcessState.ExitCode() != 1 {
				t.Errorf("%s: %v\n%s\n%s", page, err, out, block[1])
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d configs were found", seen)
	}
}
