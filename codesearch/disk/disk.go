// Package disk stores the files of the code search indexes: a folder that one process at a time works on, files that
// exist completely or not at all, and a reader of bytes that may be damaged.
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

// half is the suffix of files that are still being written.
const half = ".new"

// Lock keeps other processes out of a folder until the returned file is closed. If another process holds the lock, the
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

// Write writes a file that exists completely or not at all.
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

// Checksum returns a checksum that detects damaged bytes.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// A Reader takes values off bytes that may be damaged. It never fails: after the first impossible value it is bad, and
// returns only zero values.
type Reader struct {
	rest []byte
	Bad  bool
}

// NewReader returns a reader of b. The byte slices that it returns are parts of b.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Whole reports whether everything was read and nothing was bad.
func (r *Reader) Whole() bool { return !r.Bad && len(r.rest) == 0 }

// Check marks the reader bad unless ok.
func (r *Reader) Check(ok bool) {
	if !ok {
		r.Bad, r.rest = true, nil
	}
}

// Number reads a varint of at most a bound.
func (r *Reader) Number(most uint64) uint64 {
	x, n := binary.Uvarint(r.rest)
	if r.Check(n > 0 && x <= most); r.Bad {
		return 0
	}
	r.rest = r.rest[n:]
	return x
}

// Count reads a number of items that follow, each of at least the given number of bytes.
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

// String reads a length and a text of that length.
func (r *Reader) String() string { return string(r.Bytes(r.Count(1))) }

// Byte reads a byte.
func (r *Reader) Byte() byte { return r.Bytes(1)[0] }

// Uint32 reads four bytes.
func (r *Reader) Uint32() uint32 { return binary.LittleEndian.Uint32(r.Bytes(4)) }

// Uint64 reads eight bytes.
func (r *Reader) Uint64() uint64 { return binary.LittleEndian.Uint64(r.Bytes(8)) }
