// Package disk is how the indexes of code search keep their files: a folder that one process at a time works on, files
// that are there as a whole or not at all, and a reader of bytes that may be damaged.
package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// half is what the names of files end in that are being written.
const half = ".new"

// Lock keeps other processes away from a folder until the file that it returns is closed. Where one has it already the
// error is unix.EWOULDBLOCK.
func Lock(dir string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Write writes a file that is there as a whole or not at all.
func Write(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path+half, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(path+half, path)
	}
	if err != nil {
		os.Remove(path + half)
	}
	return err
}

// Checksum tells bytes from damaged ones.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// A Reader takes values off bytes that may be damaged. It never fails: after the first thing that cannot be it is bad,
// and everything that it gives is zero.
type Reader struct {
	rest []byte
	Bad  bool
}

// NewReader reads bytes, of which it gives parts.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Whole reports whether everything was read, and nothing was bad.
func (r *Reader) Whole() bool { return !r.Bad && len(r.rest) == 0 }

// Check makes the reader bad where something is not so.
func (r *Reader) Check(ok bool) {
	if !ok {
		r.Bad, r.rest = true, nil
	}
}

// Number reads a varint, which cannot be more than a bound.
func (r *Reader) Number(most uint64) uint64 {
	x, n := binary.Uvarint(r.rest)
	if r.Check(n > 0 && x <= most); r.Bad {
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

// Count reads how many things follow, each of at least so many bytes.
func (r *Reader) Count(least int) int { return int(r.Number(uint64(len(r.rest) / least))) }

// Bytes reads n bytes.
func (r *Reader) Bytes(n int) []byte {
	if r.Check(n <= len(r.rest)); r.Bad {
		return make([]byte, min(n, 8))
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// String reads how long a text is, and the text.
func (r *Reader) String() string { return string(r.Bytes(r.Count(1))) }

// Byte reads a byte.
func (r *Reader) Byte() byte { return r.Bytes(1)[0] }

// Uint32 reads four bytes.
func (r *Reader) Uint32() uint32 { return binary.LittleEndian.Uint32(r.Bytes(4)) }

// Uint64 reads eight bytes.
func (r *Reader) Uint64() uint64 { return binary.LittleEndian.Uint64(r.Bytes(8)) }
