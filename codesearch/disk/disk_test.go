package disk

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"toolpost/internal/kit"

	"golang.org/x/sys/unix"
)

func TestFolderIsLockedByOneProcess(t *testing.T) {
	dir := t.TempDir()
	held := kit.Must(Lock(dir))(t)
	if _, err := Lock(dir); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second lock: %v", err)
	}
	held.Close()
	again := kit.Must(Lock(dir))(t)
	again.Close()
}

func TestFileIsWrittenWholeOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string, err error) error {
		return Write(path, func(w io.Writer) error { _, _ = io.WriteString(w, text); return err })
	}
	broken := errors.New("broken")
	kit.OK(t, write("one", nil))
	if err := write("two", broken); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	got, err := os.ReadFile(path)
	if entries, _ := os.ReadDir(filepath.Dir(path)); string(got) != "one" || err != nil || len(entries) != 1 {
		t.Errorf("got %q, %v, %v", got, err, entries)
	}
}

func TestReaderIsBadAfterTheFirstInvalidValue(t *testing.T) {
	r := NewReader([]byte{3, 'a', 'b', 'c', 1, 0, 0, 0, 7, 0x80, 0x02})
	if s, n, b, x := r.String(), r.Uint32(), r.Byte(), r.Number(1000); s != "abc" || n != 1 || b != 7 || x != 256 || !r.Whole() {
		t.Errorf("got %q, %d, %d, %d, bad: %v", s, n, b, x, r.Bad)
	}
	for name, read := range map[string]func(*Reader){
		"too many bytes": func(r *Reader) { r.Bytes(5) }, "too large": func(r *Reader) { r.Number(8) }, "too long a text": func(r *Reader) { _ = r.String() },
		"too many things": func(r *Reader) { r.Count(1) }, "not so": func(r *Reader) { r.Check(false) },
	} {
		r := NewReader([]byte{9, 1, 2, 3})
		if read(r); !r.Bad || r.Whole() || r.Uint64() != 0 || r.Byte() != 0 || !bytes.Equal(r.Bytes(2), []byte{0, 0}) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
