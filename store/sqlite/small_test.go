package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolpost/engine/persist"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// smallDisk makes this program the child that has its store on a small disk of its own.
const smallDisk = "SQLITE_TEST_SMALL"

func TestWALReleasesSpaceOnASmallDisk(t *testing.T) {
	before := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		before = append(before, "--user", "--map-root-user")
	}
	mount := append(before[1:], "mount", "-t", "tmpfs", "none", t.TempDir())
	if out, err := exec.CommandContext(t.Context(), before[0], mount...).CombinedOutput(); err != nil {
		t.Skipf("this machine gives no small disk: %v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), before[0], append(before[1:], os.Args[0])...)
	cmd.Env = append(os.Environ(), smallDisk+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// fillUp is the child: other files take some of the disk and the store fills the rest, then they are removed.
func fillUp(dir string) error {
	for _, room := range []int{256 << 10, 512 << 10, 1 << 20} {
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=3m"); err != nil {
			return err
		}
		if err := fillWith(dir, room); err != nil {
			return fmt.Errorf("%d KiB of room: %w\n%s", room>>10, err, list(dir))
		}
		if err := syscall.Unmount(dir, 0); err != nil {
			return err
		}
	}
	return nil
}

func fillWith(dir string, room int) error {
	others := filepath.Join(dir, "others")
	if err := os.WriteFile(others, make([]byte, room), 0o600); err != nil {
		return err
	}
	db, err := sqlite.Open(filepath.Join(dir, "store.db"), store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	patch := func(session string, n int, text string) error {
		return db.Sessions().Patch(context.Background(), "ada", session, []map[string]any{{"n": n, "text": text}})
	}
	for full, n := 0, 0; full < 5; n++ {
		err := patch(fmt.Sprint("s", n%7), n, strings.Repeat("x", 20_000))
		if e := tool.AsError(err); e != nil && e.Reason == persist.Full {
			full++
		} else if err != nil || n > 100_000 {
			return fmt.Errorf("the disk does not become full: %w", err)
		}
	}
	if err := os.Remove(others); err != nil {
		return err
	}
	for n := range 20 {
		if err := patch("small", n, ""); err != nil {
			return fmt.Errorf("write %d with room again: %w", n, err)
		}
	}
	fmt.Println(list(dir))
	return nil
}

func list(dir string) (text string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			text += fmt.Sprintf("%s %d KiB; ", e.Name(), info.Size()>>10)
		}
	}
	return text
}
