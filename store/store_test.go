package store_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"toolpost/internal/kit"
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

func TestEveryTableHasAColumnForTheTenant(t *testing.T) {
	var all strings.Builder
	files, _ := filepath.Glob("migrations/*.sql")
	for _, file := range files {
		all.WriteString(string(kit.Must(os.ReadFile(file))(t)))
	}
	made := regexp.MustCompile(`CREATE TABLE (\w+)([^;]*)`).FindAllStringSubmatch(all.String(), -1)
	made = append(made, []string{"", "audit", ""}, []string{"", "audit_kind", ""}) // made from the list of columns
	for _, m := range made {
		added := strings.Contains(all.String(), "ALTER TABLE "+m[1]+" ADD COLUMN tenant TEXT NOT NULL DEFAULT '';")
		if !added && !strings.Contains(m[2], "tenant TEXT") && m[1] != "program" { // a program serves all tenants
			t.Errorf("%s has none", m[1])
		}
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
	s := store.Assets{}
	first, err := s.Add(t.Context(), "ada", tool.Asset{AssetID: "1", Path: a}, open(t, a))
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Add(t.Context(), "ada", tool.Asset{AssetID: "2", Path: b}, open(t, b))
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
	if f, err := os.OpenFile(first.Path, os.O_WRONLY, 0); err == nil {
		if _, err := f.WriteString("x"); err == nil {
			t.Error("an asset was changed by somebody who knows its path")
		}
		_ = f.Close()
	}
}

func TestAssetIsReadableOnlyByItsCaller(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := store.Assets{}
	var kept tool.Asset
	for _, caller := range []string{"ada", "../bob\x00\xff"} {
		var err error
		if kept, err = s.Add(t.Context(), caller, tool.Asset{AssetID: "1", MediaType: "text/plain", Path: path}, open(t, path)); err != nil {
			t.Fatal(err)
		}
		f, a, err := s.Open(t.Context(), caller, kept.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); string(text) != "hello" || err != nil || a.AssetID != "1" || a.MediaType != "text/plain" || a.Size != 5 {
			t.Errorf("%q, %+v, %v", text, a, err)
		}
		if again, err := s.Add(t.Context(), "eve", a, f); err != nil || again.Path != kept.Path {
			t.Errorf("kept already: %+v, %v", again, err)
		}
		_ = f.Close()
	}
	for _, c := range [][2]string{
		{"eve", kept.SHA256}, {"", kept.SHA256}, {"Ada", kept.SHA256}, {"ada", ""}, {"ada", "../a.txt"}, {"ada", ".callers"}, {"ada", "x/../" + kept.SHA256},
		{"ada", strings.ToUpper(kept.SHA256)}, {"ada", strings.Repeat("0", 64)},
	} {
		if f, _, err := s.Open(t.Context(), c[0], c[1]); f != nil || tool.CodeOf(err) != tool.CodeNotFound {
			t.Errorf("%q gets %q: %v", c[0], c[1], err)
		}
	}
	other := filepath.Join(dir, "b.txt")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Add(t.Context(), "eve", tool.Asset{Path: other, SHA256: kept.SHA256}, open(t, other)); err != nil || a.SHA256 == kept.SHA256 {
		t.Errorf("the word of a tool was taken for a digest: %+v, %v", a, err)
	}
}

func TestTheOldestAssetsMakeRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	s := store.Assets{Max: 1000}
	var sums []string
	for i := range 300 {
		if err := os.WriteFile(path, fmt.Appendf(nil, "%0100d", i), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := s.Add(t.Context(), "ada", tool.Asset{Path: path}, open(t, path))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, a.SHA256)
	}
	kept := 0
	for i, sum := range sums {
		f, _, err := s.Open(t.Context(), "ada", sum)
		if (err == nil) != (i >= 290) {
			t.Errorf("asset %d: %v", i, err)
		}
		if err == nil {
			kept++
			_ = f.Close()
		}
	}
	if kept != 10 {
		t.Errorf("%d are kept", kept)
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
	s := store.Assets{Max: 1000}
	for path, code := range map[string]tool.Code{
		dir: tool.CodeInvalidInput, fifo: tool.CodeInvalidInput,
		"/dev/zero": tool.CodeInvalidInput, large: tool.CodeQuotaExceeded,
	} {
		if _, err := s.Add(t.Context(), "ada", tool.Asset{Path: path}, open(t, path)); tool.CodeOf(err) != code || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Add(ctx, "ada", tool.Asset{Path: large}, open(t, large)); tool.CodeOf(err) != tool.CodeCancelled {
		t.Errorf("after the end of the call: %v", err)
	}
}
