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

	"toolpost/codesearch/split"
)

// Limits of what is read of a package: generated files are large and say little.
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
func sourcesOf(archive string) ([]source, error) {
	head := make([]byte, 8)
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	var all []source
	switch {
	case bytes.HasPrefix(head, []byte("PK")):
		all, err = fromZip(f, info.Size())
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		var z *gzip.Reader
		if z, err = gzip.NewReader(f); err == nil {
			all, err = fromTar(z)
		}
	case bytes.HasPrefix(head, []byte("BZh")):
		all, err = fromTar(bzip2.NewReader(f))
	case bytes.HasPrefix(head, []byte("!<arch>")):
		all, err = fromCommand("dpkg-deb", "--fsys-tarfile", archive)
	default:
		all, err = fromCommand("xz", "-dc", archive)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	slices.SortStableFunc(all, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// fromCommand reads a tar file that a program unpacks: the standard library has no xz.
func fromCommand(name string, args ...string) ([]source, error) {
	cmd := exec.Command(name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	all, err := fromTar(out)
	_, _ = io.Copy(io.Discard, out)
	return all, errors.Join(err, cmd.Wait())
}

func fromTar(r io.Reader) ([]source, error) {
	var all []source
	size := 0
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		zipped := strings.HasSuffix(h.Name, "/src.zip") // the sources of a Java runtime
		if !zipped && (h.Typeflag != tar.TypeReg || !wanted(h.Name, h.Size) || size > maxSources) {
			continue
		}
		text, err := io.ReadAll(t)
		some := []source{{h.Name, split.LanguageOf(h.Name), text}}
		if err == nil && zipped {
			some, err = fromZip(bytes.NewReader(text), int64(len(text)))
		}
		if err != nil {
			return nil, err
		}
		if !zipped {
			size += len(text)
		}
		all = append(all, some...)
	}
}

func fromZip(r io.ReaderAt, size int64) ([]source, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, err
	}
	var all []source
	for _, f := range z.File {
		if !wanted(f.Name, int64(f.UncompressedSize64)) {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, source{f.Name, split.LanguageOf(f.Name), text})
	}
	return all, nil
}

// wanted leaves out what is not source, what is a test, what was built or minified, and copies of other packages: among
// these could be one that is evaluated.
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
