package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestAFullDiskIsUnavailable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	kit.OK(t, os.Mkdir(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,nr_inodes=6"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("only root can mount a small file system: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	w, err := Open(dir, Options{Roots: []RootOptions{{Path: ".", Write: true}}})
	kit.OK(t, err)
	defer w.Close()
	v := w.View(&tool.Call{})
	kit.OK(t, v.Write("old", []byte("old"), WriteOptions{}))
	full := func(what string, err error) {
		t.Helper()
		if e := tool.AsError(err); e == nil || e.Code != tool.CodeUnavailable || e.Reason != "disk_full" {
			t.Errorf("%s: %v", what, err)
		}
	}
	full("more bytes than there is room for", v.Write("old", make([]byte, 100<<10), WriteOptions{}))
	if b, err := os.ReadFile(filepath.Join(dir, "old")); string(b) != "old" {
		t.Errorf("the file has %q, %v", b, err)
	}
	for i := 0; err == nil && i < 10; i++ {
		_, err = v.Mkdir(string(rune('a' + i)))
	}
	full("more folders than there is room for", err)
	full("another file", v.Write("new", nil, WriteOptions{}))
	if err := errors.Join(os.Remove(filepath.Join(dir, "a")), v.Write("new", nil, WriteOptions{})); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
