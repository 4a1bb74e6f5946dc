package builtin

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/builtin/shell"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// TestEveryToolWorksOverARootThatWasMadeAgain covers the tools for files, commands and code.
func TestEveryToolWorksOverARootThatWasMadeAgain(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	fill := func(word string) {
		kit.OK(t, os.MkdirAll(root, 0o755))
		kit.OK(t, os.WriteFile(filepath.Join(root, "a.go"), []byte("package a\n\nfunc "+word+"() {}\n"), 0o644))
	}
	fill("First")
	s := kit.Must(New(t.Context(), dir, filepath.Join(dir, "state"), Options{
		Roots: []workspace.RootOptions{{Path: "root", Write: true}}, Shell: &shell.Options{Allow: []string{"cat"}},
	}, slog.New(slog.DiscardHandler)))(t)
	defer func() { _ = s.Close(t.Context()) }()
	for _, word := range []string{"First", "Second", "Third"} {
		kit.OK(t, os.RemoveAll(root))
		fill(word)
		for name, args := range map[string]string{
			"readFile": `{"path":"a.go"}`, "grepCode": `{"pattern":"func [A-Z]\\w+"}`, "execShell": `{"command":"cat","args":["a.go"]}`, "findSymbol": `{"name":"` + word + `"}`,
		} {
			call := &tool.Call{Tool: name, Args: []byte(args)}
			specs, _ := s.Tools(t.Context())
			for _, spec := range specs {
				if spec.Name == name {
					call.Spec = spec
				}
			}
			r, err := s.Invoke(t.Context(), call, tool.Discard)
			if err != nil || !strings.Contains(string(r.Output), word) {
				t.Errorf("%s after %s was made: %v, %v", name, word, r, err)
			}
		}
	}
}
