package meaning

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/codesearch/disk"
	"toolpost/tool"
)

const manifestMagic = "tpindex2"

// lockPatience is how long to wait for another process that works on the same index.
const lockPatience = 2 * time.Minute

// lock keeps other processes out of a folder until unlock is called.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		held, err := disk.Lock(dir)
		if err == nil {
			return func() { held.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, tool.Errorf(tool.CodeUnavailable, "code search: the folder of the index cannot be used: %w", err)
		}
		if !tool.Sleep(ctx, wait) {
			return nil, tool.Errorf(tool.CodeOf(ctx.Err()),
				"code search: another process keeps the index busy; try again")
		}
	}
}

// load reads the index from disk, unless that state is already loaded. It drops an index that cannot be used.
func (x *Index) load() {
	b, err := os.ReadFile(x.manifest())
	if err == nil && len(b) >= 4 && le32(b[len(b)-4:]) == x.current.Load().sum && x.whole() {
		return
	}
	s := newSnapshot(nil, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		if read, err := x.read(b); err != nil {
			x.rebuilt = true
		} else {
			s = read
		}
	}
	x.current.Store(s)
}

// whole reports whether the files of the segments still exist with the same sizes. Their bytes were checked when they
// were read; later damage does not matter until they are read again.
func (x *Index) whole() bool {
	for _, g := range x.current.Load().segs {
		info, err := os.Stat(filepath.Join(x.dir, g.name))
		if err != nil || info.Size() != g.size {
			return false
		}
	}
	return true
}

// read decodes a manifest and reads the segments that it names.
func (x *Index) read(b []byte) (*snapshot, error) {
	names, files, err := decodeManifest(b, x.space)
	if err != nil {
		return nil, err
	}
	segs := make([]*segment, len(names))
	for i, name := range names {
		if segs[i], err = x.readSegment(name); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if int(f.seg) >= len(segs) || int(f.file) >= len(segs[f.seg].files)-1 {
			return nil, errDamaged
		}
	}
	s := newSnapshot(segs, files)
	s.sum = le32(b[len(b)-4:])
	return s, nil
}

func (x *Index) readSegment(name string) (*segment, error) {
	if filepath.Base(name) != name || !strings.HasPrefix(name, "seg-") {
		return nil, errDamaged
	}
	b, err := os.ReadFile(filepath.Join(x.dir, name))
	if err != nil {
		return nil, err
	}
	g, err := decodeSegment(b)
	if err != nil {
		return nil, err
	}
	if g.dims != x.space.dims {
		return nil, errDamaged
	}
	g.name = name
	return g, nil
}

// save writes the new segments, then the manifest, then removes the files that it no longer names. If killed at any
// moment, it leaves the old state or the new one.
func (x *Index) save(s *snapshot) error {
	keep := map[string]bool{}
	for _, g := range s.segs {
		if g.name == "" {
			b := g.encode()
			g.name, g.size = "seg-"+tool.NewID(), int64(len(b))
			if err := writeFile(filepath.Join(x.dir, g.name), b); err != nil {
				g.name = ""
				return err
			}
		}
		keep[g.name] = true
	}
	b := encodeManifest(s, x.space)
	if err := writeFile(x.manifest(), b); err != nil {
		return err
	}
	s.sum = le32(b[len(b)-4:])
	entries, _ := os.ReadDir(x.dir)
	for _, e := range entries {
		if !keep[e.Name()] && strings.HasPrefix(e.Name(), "seg-") {
			os.Remove(filepath.Join(x.dir, e.Name()))
		}
	}
	return nil
}

func writeFile(path string, b []byte) error {
	return disk.Write(path, func(w io.Writer) error { _, err := w.Write(b); return err })
}

func encodeManifest(s *snapshot, sp space) []byte {
	b := appendString([]byte(manifestMagic), sp.name)
	b = appendNumbers(b, sp.dims, len(s.segs))
	for _, g := range s.segs {
		b = appendString(b, g.name)
	}
	b = appendNumbers(b, len(s.files))
	for _, f := range s.files {
		b = appendString(b, f.path)
		for _, n := range []uint64{uint64(f.size), uint64(f.mtime), f.digest} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		b = appendNumbers(b, f.seg, f.file)
	}
	return seal(b)
}

// decodeManifest decodes a manifest of vectors in a space. In any result, each file is named once.
func decodeManifest(b []byte, sp space) (segs []string, files []entry, err error) {
	r := unseal(b, manifestMagic)
	r.Check(r.String() == sp.name)
	r.Check(int(r.Number(maxDims)) == sp.dims)
	for range r.Count(1) {
		segs = append(segs, r.String())
	}
	n := r.Count(1)
	seen := make(map[string]bool, n)
	for range n {
		e := entry{
			path: r.String(), size: int64(r.Uint64()), mtime: int64(r.Uint64()), digest: r.Uint64(),
			seg: int32(r.Number(math.MaxInt32)), file: int32(r.Number(math.MaxInt32)),
		}
		if r.Check(!seen[e.path]); r.Bad {
			break
		}
		seen[e.path] = true
		files = append(files, e)
	}
	if !r.Whole() {
		return nil, nil, errDamaged
	}
	return segs, files, nil
}
