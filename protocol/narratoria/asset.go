package narratoria

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"toolpost/host/kernel"
	"toolpost/tool"
)

// maxAssets bounds what one call may register.
const maxAssets = 10_000

// assets are those of one call.
type assets struct {
	dir  string                                   // relative paths start here
	open func(dir, path string) (*os.File, error) // as the tool itself could
	seen map[string]struct{}
}

// register checks an asset, gives it an absolute path, and opens its file; copying that is for whoever keeps it.
func (s *assets) register(d *decoder) (tool.Asset, *os.File, error) {
	a, err := d.asset()
	if err != nil {
		return a, nil, err
	}
	if _, twice := s.seen[a.AssetID]; twice {
		return a, nil, errors.New("assetId was used before in this call")
	}
	if len(s.seen) == maxAssets {
		return a, nil, fmt.Errorf("a call may have at most %d assets", maxAssets)
	}
	if !filepath.IsAbs(a.Path) {
		a.Path = filepath.Join(s.dir, a.Path)
	}
	f, err := s.readable(a.Path)
	if err != nil {
		return a, nil, err
	}
	if s.seen == nil {
		s.seen = map[string]struct{}{}
	}
	s.seen[a.AssetID] = struct{}{}
	return a, f, nil
}

// readable opens the file as a reader would; only that answers the question.
func (s *assets) readable(path string) (*os.File, error) {
	f, err := s.open(s.dir, path)
	if err != nil {
		if why, ok := errors.AsType[*fs.PathError](err); ok {
			err = why.Err
		}
		return nil, fmt.Errorf("path %s cannot be read: %w", quote([]byte(path)), err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || ofKernel(f) {
		_ = f.Close()
		return nil, fmt.Errorf("path %s is not a regular file", quote([]byte(path)))
	}
	return f, nil
}

// ofKernel reports whether a file is made up by the kernel for whoever reads it: we are shown more than the tool is.
func ofKernel(f *os.File) bool {
	return kernel.MadeUp(int(f.Fd()))
}
