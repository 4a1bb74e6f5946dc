package file

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// operations is how many calls are made while the attackers swap.
func operations() int { return rounds.Of(10_000, 200_000) }

// An attacker who can write below the root swaps folders and files with links that lead outside, or to a secret inside, as
// fast as possible, while every tool works on them.
func TestSwappingFoldersAndLinksNeverLetsACallOut(t *testing.T) {
	tooltest.NoLeaks(t)
	w := newHostileWorld(t)
	w.write("root/door/secret.txt", "public")
	w.write("root/door/sub/secret.txt", "public")
	w.write("root/den/config", "public")
	w.link("../outside", "trap")
	w.link("sub/.ssh", "den-trap")
	w.link("../outside/secret.txt", "file-trap")
	before := w.canaries()
	stop := swap(t, w.root, [2]string{"door", "trap"}, [2]string{"den", "den-trap"}, [2]string{"secret.txt", "file-trap"})
	var took, refused atomic.Int64
	var wg sync.WaitGroup
	const workers = 4
	calls := throughTheDoor(t)
	for n := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for range operations() / workers {
				call := calls[rng.IntN(len(calls))]
				res, err := w.runner.Invoke(t.Context(), call, tool.Discard)
				if err != nil {
					refused.Add(1)
					continue
				}
				took.Add(1)
				if out := string(res.Output); strings.Contains(out, secret) || strings.Contains(out, sizeOfSecret) {
					t.Errorf("%s %s: the secret came out: %s", call.Tool, call.Args, out)
					return
				}
			}
		})
	}
	wg.Wait()
	swaps := stop()
	w.checkCanaries(before, "the last call")
	t.Logf("%d calls went through, %d were refused, %d swaps", took.Load(), refused.Load(), swaps)
	if took.Load() == 0 || refused.Load() == 0 || swaps < 1000 {
		t.Errorf("the attack was none: %d calls went through, %d were refused, %d swaps", took.Load(), refused.Load(), swaps)
	}
}

// throughTheDoor lists calls with paths that are being swapped. Those that read and write are listed more than once, so that
// they are made more often.
func throughTheDoor(t *testing.T) (calls []*tool.Call) {
	add := func(name string, args map[string]any) {
		b := kit.Must(json.Marshal(args))(t)
		calls = append(calls, &tool.Call{Tool: name, Spec: &tool.Spec{Name: name}, Args: b})
	}
	for _, path := range []string{"door/secret.txt", "door/sub/secret.txt", "den/config", "secret.txt", "door/new", "door/sub/new", "trap/secret.txt", "file-trap"} {
		for range 3 {
			add(readName, map[string]any{"path": path})
		}
		add(statName, map[string]any{"path": path})
		add(writeName, map[string]any{"path": path, "content": "public"})
		add(writeName, map[string]any{"path": path, "content": "public", "append": true})
		add(editName, map[string]any{"path": path, "old": "public", "new": "public", "replace_all": true})
	}
	for range 3 {
		add(deleteName, map[string]any{"path": "door/new"})
		add(deleteName, map[string]any{"path": "door/sub/new"})
		add(folderName, map[string]any{"path": "door/sub/new"})
		add(moveName, map[string]any{"from": "door/secret.txt", "to": "door/sub/secret.txt", "overwrite": true})
		add(moveName, map[string]any{"from": "door/sub/secret.txt", "to": "door/secret.txt", "overwrite": true})
	}
	add(listName, map[string]any{"path": "door", "recursive": true})
	add(globName, map[string]any{"pattern": "secret.txt"})
	return calls
}

// swap repeatedly exchanges the names of each pair until stop is called, which returns how often it did.
func swap(t *testing.T, dir string, pairs ...[2]string) (stop func() int64) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	var swaps int64
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			p := pairs[i%len(pairs)]
			// The calls may have moved one of the two away for a moment.
			if unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, p[0]), unix.AT_FDCWD, filepath.Join(dir, p[1]), unix.RENAME_EXCHANGE) == nil {
				swaps++
			}
		}
	})
	return func() int64 { close(done); wg.Wait(); return swaps }
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	tooltest.NoLeaks(t)
	w := newHostileWorld(t)
	paths := []string{"notes.txt", "none", "sub", "envlink", "dirlink/secret.txt", "/etc/passwd", "fifo", "hard", "new/x", "inner/deep/a.go"}
	calls := func() {
		for _, a := range attacks() {
			for _, path := range paths {
				a.on(w, path)
			}
		}
	}
	calls() // the runtime opens some of its own on first use
	before := descriptors(t)
	for range 5 {
		w.setTraps()
		calls()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	return len(kit.Must(os.ReadDir("/proc/self/fd"))(t))
}
