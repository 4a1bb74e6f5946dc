package pack

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/tool"
)

// Only the owner can write an installed pack, whatever its modes were before.
func TestACopyIsWritableForItsOwnerAlone(t *testing.T) {
	src, to := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{"pack.yaml": 0o666, "run.sh": 0o777, "sub/tool.py": 0o646} {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
	}
	if err := copyPack(src, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"pack.yaml": 0o644, "run.sh": 0o755, "sub/tool.py": 0o644} {
		b, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, not %v, %v", name, info.Mode(), want, err)
		}
	}
}

// A pack that is too large is refused before anything is copied.
func TestAPackThatIsTooLargeIsNotCopied(t *testing.T) {
	src, to := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "large"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(src, "large"), maxPackBytes+1); err != nil { // it takes no space
		t.Fatal(err)
	}
	if err := copyPack(src, to); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(to); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
