package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"toolpost/store"
	"toolpost/tool"
)

func TestConcurrentPatchesAreAllKept(t *testing.T) {
	var s store.Sessions
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 50 {
				p := map[string]any{fmt.Sprintf("w%d", i): map[string]any{fmt.Sprintf("p%d", j): true}}
				if err := s.Patch(t.Context(), "c", "s", []map[string]any{p}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b, _ := s.State(t.Context(), "c", "s")
	if n := strings.Count(string(b), "true"); n != 16*50 {
		t.Errorf("%d of %d patches are there", n, 16*50)
	}
}

func TestStateIsBounded(t *testing.T) {
	var s store.Sessions
	err := s.Patch(t.Context(), "c", "s", []map[string]any{{"a": strings.Repeat("x", store.MaxStateSize)}})
	if tool.CodeOf(err) != tool.CodeQuotaExceeded {
		t.Errorf("a large state: %v", err)
	}
	for i := range store.MaxSessions {
		if err := s.Patch(t.Context(), "c", fmt.Sprint(i), []map[string]any{{"a": true}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Patch(t.Context(), "c", "one more", []map[string]any{{"a": true}}); tool.CodeOf(err) != tool.CodeQuotaExceeded {
		t.Errorf("one session too many: %v", err)
	}
	if err := s.Patch(t.Context(), "c", "0", []map[string]any{{"a": false}}); err != nil {
		t.Errorf("a known session goes on: %v", err)
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestAssetsAreKeptByContent(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.txt")
	for _, path := range []string{a, b} {
		if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := store.Assets{Dir: filepath.Join(dir, "assets")}
	first, err := s.Add(t.Context(), tool.Asset{AssetID: "1", Path: a}, open(t, a))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Add(t.Context(), tool.Asset{AssetID: "2", Path: b}, open(t, b))
	if err != nil {
		t.Fatal(err)
	}
	const digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	if first.SHA256 != digest || first.Size != 5 || first.Path != second.Path || first.AssetID != "1" {
		t.Errorf("%+v, %+v", first, second)
	}
	_ = os.Remove(a)
	if got, err := os.ReadFile(first.Path); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if entries, _ := os.ReadDir(s.Dir); len(entries) != 1 {
		t.Errorf("%d files in the store", len(entries))
	}
}

func TestBadAssetsAreRefusedQuickly(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, 1001), 0o600); err != nil {
		t.Fatal(err)
	}
	s := store.Assets{Dir: filepath.Join(dir, "assets"), Max: 1000}
	for path, code := range map[string]tool.Code{
		dir: tool.CodeInvalidInput, fifo: tool.CodeInvalidInput,
		"/dev/zero": tool.CodeInvalidInput, large: tool.CodeQuotaExceeded,
	} {
		if _, err := s.Add(t.Context(), tool.Asset{Path: path}, open(t, path)); tool.CodeOf(err) != code || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, _ := os.ReadDir(s.Dir); len(entries) != 0 {
		t.Errorf("%d files are left in the store", len(entries))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Add(ctx, tool.Asset{Path: large}, open(t, large)); tool.CodeOf(err) != tool.CodeCancelled {
		t.Errorf("after the end of the call: %v", err)
	}
}
