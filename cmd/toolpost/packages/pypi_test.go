package packages

import (
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestLookingForPythonIsBounded(t *testing.T) {
	_, err := findPython(t.Context(), t.TempDir(), []string{"/bin/sleep", "30"}, 50*time.Millisecond)
	kit.Refused(t, err, tool.CodeTimeout, "/bin/sleep did not find a Python within 50ms; run `/bin/sleep 30`")
	_, err = findPython(t.Context(), t.TempDir(), []string{"/bin/echo", "python"}, time.Minute)
	kit.Refused(t, err, tool.CodeUnavailable, "/bin/echo found no Python")
	python := kit.Must(findPython(t.Context(), t.TempDir(), []string{"/bin/echo", "/usr/bin/python3"}, time.Minute))(t)
	kit.Equal(t, python, "/usr/bin/python3")
}
