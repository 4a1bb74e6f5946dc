package file

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// attack is how long each race is tried.
const attack = 2 * time.Second

// Whoever can write below the root swaps a folder with a link to the folder outside, as fast as possible,
// while we read and list through it.
func TestSwappingAFolderAndALinkNeverLetsAReadOut(t *testing.T) {
	tooltest.NoLeaks(t)
	w := newWorld(t)
	w.write("root/door/secret.txt", "public")
	w.link("../outside", "trap")
	stop := swapForever(t, filepath.Join(w.root, "door"), filepath.Join(w.root, "trap"))
	defer stop()
	var public, refused int
	for end := time.Now().Add(attack); time.Now().Before(end); {
		got, err := w.read("door/secret.txt")
		switch {
		case strings.Contains(got, secret):
			t.Fatal("the secret came out")
		case err == nil:
			public++
		default:
			refused++
		}
		entries, err := w.list(map[string]any{"recursive": true, "pattern": "secret.txt"})
		if err != nil && tool.CodeOf(err) != tool.CodeNotFound {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Size == int64(len(secret)) {
				t.Fatalf("the listing went out: %v", e)
			}
		}
	}
	if public == 0 || refused == 0 {
		t.Skipf("the swaps were never seen (%d read, %d refused)", public, refused)
	}
}

// The same for a file with a sensitive name behind a link.
func TestSwappingALinkNeverGivesASensitiveFile(t *testing.T) {
	w := newWorld(t)
	w.write("root/.env", secret)
	w.link(".env", "trap")
	w.link("notes.txt", "door")
	stop := swapForever(t, filepath.Join(w.root, "door"), filepath.Join(w.root, "trap"))
	defer stop()
	for end := time.Now().Add(attack); time.Now().Before(end); {
		if got, _ := w.read("door"); strings.Contains(got, secret) {
			t.Fatal("the secret came out")
		}
	}
}

// swapForever exchanges two names until stop is called.
func swapForever(t *testing.T, a, b string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for spare := a + ".spare"; ; {
			select {
			case <-done:
				return
			default:
			}
			for _, step := range [][2]string{{a, spare}, {b, a}, {spare, b}} {
				if err := os.Rename(step[0], step[1]); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	tooltest.NoLeaks(t)
	w := newWorld(t)
	w.write("root/.env", secret)
	w.link(".env", "harmless.txt")
	w.link("../outside", "out")
	calls := func() {
		for _, path := range []string{"notes.txt", "none", "sub", "harmless.txt", "out/secret.txt", "/etc/passwd"} {
			w.read(path)
			w.list(map[string]any{"path": path, "recursive": true})
		}
	}
	calls() // the runtime opens some of its own at the first use
	before := descriptors(t)
	for range 20 {
		calls()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
