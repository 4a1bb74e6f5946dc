package meaning

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

const manifestMagic = "tpindex1"

// lockPatience is how long we wait for another process that works on the same index.
const lockPatience = 2 * time.Minute

// lock keeps other processes away from a folder until it is called again.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "code search: the folder of the index cannot be used: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, tool.Errorf(tool.CodeUnavailable, "code search: the index cannot be locked: %w", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			f.Close()
			return nil, tool.Errorf(tool.CodeOf(ctx.Err()),
				"code search: another process keeps the index busy; try again")
		}
	}
}

// load reads the index from disk. What cannot be used is forgotten.
func (x *Index) load() {
	b, err := os.ReadFile(x.manifest())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	s, err := x.read(b)
	if err != nil {
		x.rebuilt = true
		s = newSnapshot(nil, nil)
	}
	x.current.Store(s)
}

// loadIfChanged reads the index again where another process wrote it.
func (x *Index) loadIfChanged() {
	b, err := os.ReadFile(x.manifest())
	if err == nil && len(b) >= 4 && le32(b[len(b)-4:]) == x.current.Load().sum && x.whole() {
		return
	}
	x.current.Store(newSnapshot(nil, nil))
	x.load()
}

// whole reports whether the files of the segments are still there, as long as they were. Their bytes were checked when
// they were read; what happens to them afterwards does not reach us until we read them again.
func (x *Index) whole() bool {
	for _, g := range x.current.Load().segs {
		info, err := os.Stat(filepath.Join(x.dir, g.name))
		if err != nil || info.Size() != g.size {
			return false
		}
	}
	return true
}

// read understands a manifest and reads the segments that it names.
func (x *Index) read(b []byte) (*snapshot, error) {
	names, files, err := decodeManifest(b, x.space)
	if err != nil {
		return nil, err
	}
	known := map[string]*segment{}
	for _, g := range x.current.Load().segs {
		known[g.name] = g
	}
	segs := make([]*segment, 0, len(names))
	for _, name := range names {
		g := known[name]
		if g == nil {
			if g, err = x.readSegment(name); err != nil {
				return nil, err
			}
		}
		segs = append(segs, g)
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

// save writes the new segments, then the manifest, then removes what it no longer names. Killed at any moment it leaves
// the old state or the new one.
func (x *Index) save(s *snapshot) error {
	keep := map[string]bool{"manifest": true, "lock": true}
	for _, g := range s.segs {
		if g.name == "" {
			b := g.encode()
			g.name, g.size = "seg-"+tool.NewID(), int64(len(b))
			if err := writeFile(x.dir, g.name, b); err != nil {
				g.name = ""
				return err
			}
		}
		keep[g.name] = true
	}
	b := encodeManifest(s, x.space)
	if err := writeFile(x.dir, "manifest", b); err != nil {
		return err
	}
	s.sum = le32(b[len(b)-4:])
	entries, _ := os.ReadDir(x.dir)
	for _, e := range entries {
		if !keep[e.Name()] && (strings.HasPrefix(e.Name(), "seg-") || strings.HasPrefix(e.Name(), "tmp-")) {
			os.Remove(filepath.Join(x.dir, e.Name()))
		}
	}
	return nil
}

// writeFile puts a file in place as a whole or not at all.
func writeFile(dir, name string, b []byte) error {
	f, err := os.CreateTemp(dir, "tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

func encodeManifest(s *snapshot, sp space) []byte {
	b := []byte(manifestMagic)
	b = appendString(b, sp.name)
	b = binary.AppendUvarint(b, uint64(sp.dims))
	b = binary.AppendUvarint(b, uint64(len(s.segs)))
	for _, g := range s.segs {
		b = appendString(b, g.name)
	}
	b = binary.AppendUvarint(b, uint64(len(s.files)))
	for _, f := range s.files {
		b = appendString(b, f.path)
		b = binary.AppendVarint(b, f.size)
		b = binary.AppendVarint(b, f.mtime)
		b = binary.LittleEndian.AppendUint64(b, f.digest)
		b = binary.AppendUvarint(b, uint64(f.seg))
		b = binary.AppendUvarint(b, uint64(f.file))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

// decodeManifest reads a manifest of vectors in a space. Whatever the bytes are, each file is named once.
func decodeManifest(b []byte, sp space) (segs []string, files []entry, err error) {
	body, ok := unseal(b, manifestMagic)
	if !ok {
		return nil, nil, errDamaged
	}
	r := &reader{b: body}
	r.check(r.string() == sp.name)
	r.check(r.number() == sp.dims)
	for range r.count() {
		segs = append(segs, r.string())
	}
	n := r.count()
	seen := make(map[string]bool, n)
	for range n {
		e := entry{path: r.string(), size: r.int64(), mtime: r.int64()}
		if d := r.bytes(8); d != nil {
			e.digest = binary.LittleEndian.Uint64(d)
		}
		e.seg, e.file = int32(r.number()), int32(r.number())
		r.check(!seen[e.path])
		if r.bad {
			return nil, nil, errDamaged
		}
		seen[e.path] = true
		files = append(files, e)
	}
	if r.bad || r.at != len(r.b) {
		return nil, nil, errDamaged
	}
	return segs, files, nil
}
