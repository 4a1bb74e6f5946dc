package workspace

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// childEnv makes this test binary a writer in the folder that it names.
const childEnv = "TOOLPOST_TEST_WRITER"

// child starts this binary again, to run one test as a writer.
func (w *world) child(test string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+w.top)
	return cmd
}

func inChild(t *testing.T) *world {
	t.Helper()
	top := os.Getenv(childEnv)
	if top == "" {
		t.Skip("only as a child")
	}
	w := &world{t: t, top: top, root: filepath.Join(top, "root")}
	w.open(Options{Roots: []RootOptions{{Path: "root", Write: true}}})
	return w
}

const victimSize = 1 << 18

// contents returns the n-th content of the contested file: one letter, many times.
func contents(n int) []byte { return bytes.Repeat([]byte{byte('a' + n%26)}, victimSize) }

// TestChildWritesForEver is the writer that is killed.
func TestChildWritesForEver(t *testing.T) {
	w := inChild(t)
	for n := 0; ; n++ {
		kit.OK(t, w.view().Write("victim", contents(n), WriteOptions{}))
		if _, err := os.Stdout.Write([]byte{'.'}); err != nil {
			return
		}
	}
}

func TestAWriteKilledAtAnyMomentLeavesTheOldFileOrTheNewOne(t *testing.T) {
	tooltest.NoLeaks(t)
	w := newWorld(t)
	kills := 100
	if testing.Short() {
		kills = 8
	}
	for range kills {
		w.killAWriter()
		got := w.onDisk("root/victim")
		if len(got) != victimSize || strings.Count(got, got[:1]) != victimSize {
			t.Fatalf("the file has %d bytes and is not one content", len(got))
		}
	}
	left := w.temps()
	t.Logf("%d of %d killed writers left an unfinished file", len(left), kills)
	old := time.Now().Add(-2 * staleAge)
	for _, path := range left {
		kit.OK(t, os.Chtimes(path, old, old))
	}
	kit.OK(t, w.view().Write("victim", nil, WriteOptions{}))
	w.noTemps()
}

// killAWriter starts a writer and kills it at some moment after its first write.
func (w *world) killAWriter() {
	w.t.Helper()
	cmd := w.child("TestChildWritesForEver")
	out := kit.Must(cmd.StdoutPipe())(w.t)
	kit.OK(w.t, cmd.Start())
	kit.Check(w.t, kit.Err(io.ReadFull(out, make([]byte, 1+rand.IntN(4)))))
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // any moment will do
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // its error is that it was killed
}

// TestChildWritesTooMuch is a writer that sees a full disk.
func TestChildWritesTooMuch(t *testing.T) {
	w := inChild(t)
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		t.Skip(err)
	}
	if err := w.view().Write("notes.txt", contents(0), WriteOptions{}); tool.CodeOf(err) != tool.CodeInternal {
		t.Fatalf("err = %v; want an error of the system", err)
	}
	kit.Fails(t, w.view().Write("new/victim", contents(0), WriteOptions{}), "", "no error")
}

func TestAWriteThatFailsLeavesTheOldFileAndNothingElse(t *testing.T) {
	w := newWorld(t)
	if out, err := w.child("TestChildWritesTooMuch").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kit.Equal(t, w.onDisk("root/notes.txt"), "hello\n")
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(w.root, "new/victim"))), "", "half a file was left")
	w.noTemps()
}
