package house

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// A first `make run` or `make test` compiles for minutes. It says what, and lets errors through.
func TestMakeSaysWhatItCompiles(t *testing.T) {
	makefile := kit.Must(os.ReadFile("../../Makefile"))(t)
	kit.Equal(t, strings.Count(string(makefile), "2>&1 | .ci/compiling"), 2, "go build and go vet")
	var said strings.Builder
	for i := range 150 {
		fmt.Fprintf(&said, "example.com/package%d\n", i)
	}
	cmd := exec.CommandContext(t.Context(), "../../.ci/compiling")
	cmd.Stdin = strings.NewReader(said.String() + "# example.com/b\nb.go:1:2: undefined: x\n")
	out := kit.Must(cmd.CombinedOutput())(t)
	kit.Equal(t, string(out), "compiling package 1: example.com/package0\ncompiling package 101: example.com/package100\n"+
		"# example.com/b\nb.go:1:2: undefined: x\ncompiled 150 packages\n")
}
