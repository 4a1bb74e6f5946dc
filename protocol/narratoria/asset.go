package narratoria

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"toolpost/tool"
)

// maxAssets bounds the assets that one call may register.
const maxAssets = 10_000

// assets are the assets of one call.
type assets struct {
	dir  string                                   // the base of relative paths
	open func(dir, path string) (*os.File, error) // opens a regular file with the tool's rights
	seen map[string]struct{}
}

// register checks an asset, makes its path absolute, and opens its file. It leaves copying the file to the asset store.
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
	f, err := s.open(s.dir, a.Path)
	if err != nil {
		return a, nil, fmt.Errorf("path %s %w", quote([]byte(a.Path)), err)
	}
	if s.seen == nil {
		s.seen = map[string]struct{}{}
	}
	s.seen[a.AssetID] = struct{}{}
	return a, f, nil
}
