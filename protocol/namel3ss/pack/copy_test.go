package pack

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// Only the owner can write an installed pack, whatever its modes were before.
func TestACopyIsWritableForItsOwnerAlone(t *testing.T) {
	src, to := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{"pack.yaml": 0o666, "run.sh": 0o777, "sub/tool.py": 0o646} {
		path := filepath.Join(src, name)
		kit.OK(t, os.MkdirAll(filepath.Dir(path), 0o777))
		kit.OK(t, os.WriteFile(path, []byte(name), 0o600))
		kit.OK(t, os.Chmod(path, mode)) // regardless of the umask
	}
	kit.OK(t, copyPack(src, to))
	for name, want := range map[string]os.FileMode{"pack.yaml": 0o644, "run.sh": 0o755, "sub/tool.py": 0o644} {
		kit.Equal(t, string(kit.Must(os.ReadFile(filepath.Join(to, name)))(t)), name)
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, not %v, %v", name, info.Mode(), want, err)
		}
	}
}

// A pack that is too large is refused before anything is copied.
func TestAPackThatIsTooLargeIsNotCopied(t *testing.T) {
	src, to := t.TempDir(), t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(src, "large"), nil, 0o600))
	kit.OK(t, os.Truncate(filepath.Join(src, "large"), maxPackBytes+1)) // it takes no space
	kit.Refused(t, copyPack(src, to), tool.CodeInvalidInput, "")
	if left, err := os.ReadDir(to); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
