package tooltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Python is the interpreter behind whatever chooses one on the PATH: a test that starts many tools does not pay for
// the choice each time.
var Python = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		panic("the tests need python3: " + err.Error())
	}
	return strings.TrimSpace(string(out))
})

// DirectPython puts the interpreter behind whatever chooses one first on the PATH of this program.
func DirectPython() {
	_ = os.Setenv("PATH", filepath.Dir(Python())+string(filepath.ListSeparator)+os.Getenv("PATH"))
}
