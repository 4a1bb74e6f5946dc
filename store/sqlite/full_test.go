package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// fullDisk makes this program the child that runs out of room for its files.
const fullDisk = "SQLITE_TEST_FULL"

func TestFullDiskRefusesChangesAndRecovers(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullDisk+"="+filepath.Join(t.TempDir(), "store.db"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// runOut is the child: the kernel limits its files to a page, as if the disk were full, and then lifts the limit.
func runOut(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	db, err := sqlite.Open(path, store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	patch := func(key string) error {
		return db.Sessions().Patch(ctx, "ada", "s", []map[string]any{{key: true}})
	}
	record := func(name string) error {
		return db.Audit().Append(ctx, &tool.Record{Time: time.Now(), Tool: name, Outcome: tool.OutcomeOK}, true)
	}
	for range 20 {
		if err := record("old"); err != nil {
			return err
		}
	}
	if err := patch("before"); err != nil {
		return err
	}
	if err := limit(4096); err != nil {
		return err
	}
	for range 3 {
		for _, err := range []error{patch("during"), record("new"), db.Audit().Begin(ctx, &tool.Record{Time: time.Now()})} {
			if e := tool.AsError(err); e == nil || e.Code != tool.CodeUnavailable || e.Reason != "store_full" {
				return fmt.Errorf("a change with the disk full: %w", err)
			}
		}
		if got, err := db.Sessions().State(ctx, "ada", "s"); err != nil || string(got) != `{"before":true}` {
			return fmt.Errorf("a read with the disk full: %s, %w", got, err)
		}
		if r, err := db.Audit().Verify(ctx); err != nil || len(r.Findings) > 0 || r.Rows != 20 {
			return fmt.Errorf("the log with the disk full: %+v, %w", r, err)
		}
	}
	if err := limit(1 << 40); err != nil {
		return err
	}
	if err := patch("after"); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if err := record("new"); err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	if got, err := db.Sessions().State(ctx, "ada", "s"); err != nil || string(got) != `{"after":true,"before":true}` {
		return fmt.Errorf("with room again: %s, %w", got, err)
	}
	if r, err := db.Audit().Verify(ctx); err != nil || len(r.Findings) > 0 || r.Rows != 21 {
		return fmt.Errorf("the log with room again: %+v, %w", r, err)
	}
	return nil
}

// limit bounds the size of files that this program may write.
func limit(bytes uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	l.Cur = min(bytes, l.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
}
