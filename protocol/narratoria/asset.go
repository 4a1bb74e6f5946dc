package narratoria

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"toolpost/tool"
)

// maxAssets bounds what one call may register.
const maxAssets = 10_000

// assets are those of one call.
type assets struct {
	dir  string // relative paths start here
	seen map[string]struct{}
}

// register checks an asset and gives it an absolute path. The file is there and can be read at this
// moment; copying it is for whoever keeps it.
func (s *assets) register(m *members) (tool.Asset, error) {
	a, err := m.asset()
	if err != nil {
		return a, err
	}
	if _, twice := s.seen[a.AssetID]; twice {
		return a, errors.New("assetId was used before in this call")
	}
	if len(s.seen) == maxAssets {
		return a, fmt.Errorf("a call may have at most %d assets", maxAssets)
	}
	if !filepath.IsAbs(a.Path) {
		a.Path = filepath.Join(s.dir, a.Path)
	}
	if err := readable(a.Path); err != nil {
		return a, err
	}
	if s.seen == nil {
		s.seen = map[string]struct{}{}
	}
	s.seen[a.AssetID] = struct{}{}
	return a, nil
}

// readable opens the file as a reader would; only that answers the question. Not blocking, or a FIFO
// that nobody writes to would hold us for ever.
func readable(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		var why *fs.PathError
		if errors.As(err, &why) {
			err = why.Err
		}
		return fmt.Errorf("path %s cannot be read: %w", quote([]byte(path)), err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("path %s is not a regular file", quote([]byte(path)))
	}
	return nil
}
