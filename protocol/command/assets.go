package command

import (
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/kernel"
	"toolpost/tool"
)

// maxAssets bounds the assets of one call.
const maxAssets = 1000

// patterns returns the patterns of the files that a call makes. The value of an argument in one is a literal name, not a
// pattern.
func (v *values) patterns(assets []Word) (list []string, err error) {
	escape := strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
	for _, w := range assets {
		pattern, given := "", true
		for _, p := range w.parts {
			pattern += p.text
			if p.name == "" {
				continue
			}
			value, ok := v.given[p.name]
			text, err := textOf(value)
			if err != nil {
				return nil, err
			}
			given = given && ok
			pattern += escape.Replace(text)
		}
		if pattern = path.Clean(pattern); !given {
			continue
		}
		if !filepath.IsLocal(pattern) {
			return nil, tool.Errorf(tool.CodeAccessDenied, "the argument %s: %.80q is outside the working folder of the tool; "+
				"give a path in it, from there", w.first(), pattern).Because("outside")
		}
		list = append(list, pattern)
	}
	return list, nil
}

// files are the files in a folder that match patterns, as they were before a call. The assets of a call are those that were
// made or changed since. Patterns that name arguments keep concurrent calls apart.
type files struct {
	root     *os.Root
	patterns []string
	before   map[string]kernel.Stamp
}

func watchFiles(root *os.Root, patterns []string) (*files, error) {
	f := &files{root: root, patterns: patterns}
	var err error
	f.before, err = f.now()
	return f, err
}

// now examines the files, below the root and nowhere else.
func (f *files) now() (map[string]kernel.Stamp, error) {
	all := map[string]kernel.Stamp{}
	for _, pattern := range f.patterns {
		names, err := fs.Glob(f.root.FS(), pattern)
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%q is not a pattern: %w", pattern, err)
		}
		for _, name := range names {
			info, err := f.root.Lstat(name)
			if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
				continue
			}
			if err != nil {
				return nil, tool.Errorf(tool.CodeUnavailable, "the file %s: %w", name, err)
			}
			all[name] = kernel.StampOf(info)
		}
	}
	return all, nil
}

// changed lists the files that the call has made or changed.
func (f *files) changed() (names []string, err error) {
	after, err := f.now()
	for name, now := range after {
		if before, was := f.before[name]; !was || before != now {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > maxAssets {
		return nil, fmt.Errorf("%d files match assets, and a call may bring %d; none of them is registered", len(names), maxAssets)
	}
	return names, err
}

// assetOf describes a file. Its media type follows from its name, or else from its first bytes.
func assetOf(dir, name string, f *os.File) tool.Asset {
	start := make([]byte, 512)
	n, _ := f.ReadAt(start, 0) // an unreadable file has no first bytes
	kind, _, err := mime.ParseMediaType(mime.TypeByExtension(filepath.Ext(name)))
	if err != nil {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(start[:n]))
	}
	major, _, _ := strings.Cut(kind, "/")
	return tool.Asset{AssetID: name, Kind: major, MediaType: kind, Path: filepath.Join(dir, name)}
}
