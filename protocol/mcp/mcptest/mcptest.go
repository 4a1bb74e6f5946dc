// Package mcptest has the MCP servers that tests of the door and of the runner start.
package mcptest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

// Path returns a path below the folder of the servers.
func Path(t testing.TB, names ...string) string {
	t.Helper()
	return kit.Must(filepath.Abs(filepath.Join(append([]string{"..", "testdata"}, names...)...)))(t)
}

// Server returns the fields of a source whose server was written from the specification, in Python.
func Server(t testing.TB, era string, more ...string) string {
	t.Helper()
	words := append([]string{tooltest.Python(), "-B", Path(t, "py", "server.py"), era}, more...)
	return fmt.Sprintf("command: [%s], dir: %q", quoted(words), Path(t, "py"))
}

func quoted(words []string) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = fmt.Sprintf("%q", word)
	}
	return strings.Join(list, ", ")
}

// NPM returns the fields of a source whose server is a script of a package from npm, or of ours in JavaScript. walls is
// added to its walls.
func NPM(t testing.TB, script, walls string, args ...string) string {
	t.Helper()
	modules, node := Node(t)
	if strings.HasPrefix(script, "@") {
		script = filepath.Join(modules, script)
	} else {
		script = Path(t, "js", script)
	}
	return fmt.Sprintf("command: [%s], walls: {memory: 1073741824, read: [%q, %q]%s}",
		quoted(append([]string{node, script}, args...)), modules, Path(t, "js"), walls)
}

// Node returns the folder of the packages from npm, and node. If they are not installed, the test ends.
func Node(t testing.TB) (modules, node string) {
	t.Helper()
	modules, err := filepath.EvalSymlinks(Path(t, "js", "node_modules"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the MCP programs from npm are not installed; run `npm ci` in protocol/mcp/testdata/js")
		}
		t.Skip("the MCP programs from npm are not installed; `npm ci` in protocol/mcp/testdata/js installs them")
	}
	node, err = filepath.EvalSymlinks(filepath.Join(modules, ".bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	return modules, node
}
