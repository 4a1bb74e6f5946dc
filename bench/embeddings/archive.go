package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"toolpost/bench/attempt"
	"toolpost/codesearch/split"
)

// Limits on what is read of a package: generated files are large and teach little.
const (
	maxSource  = 400 << 10
	maxSources = 400 << 20 // of one package
)

// A source is one file of a package.
type source struct {
	path     string
	language split.Language
	text     []byte
}

// sourcesOf reads the sources of an archive that are worth learning from, in the order of their paths.
func sourcesOf(archive string) (all []source, err error) {
	if err := attempt.Do(func() { all = unpacked(archive) }); err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	slices.SortStableFunc(all, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

func unpacked(archive string) []source {
	f := attempt.Must(os.Open(archive))
	defer f.Close()
	head := make([]byte, 8)
	attempt.Must(f.ReadAt(head, 0))
	switch {
	case bytes.HasPrefix(head, []byte("PK")):
		return fromZip(f, attempt.Must(f.Stat()).Size())
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return fromTar(attempt.Must(gzip.NewReader(f)))
	case bytes.HasPrefix(head, []byte("BZh")):
		return fromTar(bzip2.NewReader(f))
	case bytes.HasPrefix(head, []byte("!<arch>")):
		return fromCommand("dpkg-deb", "--fsys-tarfile", archive)
	default:
		return fromCommand("xz", "-dc", archive)
	}
}

// fromCommand reads a tar file unpacked by a program: the standard library has no xz.
func fromCommand(name string, args ...string) (all []source) {
	cmd := exec.Command(name, args...)
	out := attempt.Must(cmd.StdoutPipe())
	attempt.Check(cmd.Start())
	err := attempt.Do(func() { all = fromTar(out) })
	_, _ = io.Copy(io.Discard, out)
	attempt.Check(errors.Join(err, cmd.Wait()))
	return all
}

func fromTar(r io.Reader) (all []source) {
	size := 0
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return all
		}
		attempt.Check(err)
		zipped := strings.HasSuffix(h.Name, "/src.zip") // the sources of a Java runtime
		if !zipped && (h.Typeflag != tar.TypeReg || !wanted(h.Name, h.Size) || size > maxSources) {
			continue
		}
		text := attempt.Must(io.ReadAll(t))
		if zipped {
			all = append(all, fromZip(bytes.NewReader(text), int64(len(text)))...)
			continue
		}
		size += len(text)
		all = append(all, source{h.Name, split.LanguageOf(h.Name), text})
	}
}

func fromZip(r io.ReaderAt, size int64) (all []source) {
	for _, f := range attempt.Must(zip.NewReader(r, size)).File {
		if !wanted(f.Name, int64(f.UncompressedSize64)) {
			continue
		}
		r := attempt.Must(f.Open())
		all = append(all, source{f.Name, split.LanguageOf(f.Name), attempt.Must(io.ReadAll(r))})
		r.Close()
	}
	return all
}

// wanted excludes files that are not source, tests, built or minified files, and copies of other packages, one of which
// could be a package of the evaluation.
func wanted(name string, size int64) bool {
	if size < 100 || size > maxSource {
		return false
	}
	switch split.LanguageOf(name) {
	case split.Text, split.Markdown:
		return false
	}
	low := "/" + strings.ToLower(name)
	for _, part := range []string{
		"/vendor/", "/node_modules/", "/third_party/", "/thirdparty/", "/_vendor/", "/vendored/", "/external/",
		"/extern/", "/deps/", "/testdata/", "/build/", "/test/", "/tests/", "/spec/", "/__tests__/", "/dist/", "/umd/",
		"/amd/", "/cjs/", "/es5/", "/bundles/", "/min/", "/locale/", "/locales/", "_test.", ".test.", ".spec.", ".min.",
		"-min.", "/test_", ".d.ts", ".pb.go", "_pb2.py", "zz_generated", "/fixtures/", "/debian/", "/umd.",
	} {
		if strings.Contains(low, part) {
			return false
		}
	}
	return true
}
