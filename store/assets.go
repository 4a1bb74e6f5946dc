package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"toolpost/tool"
)

// Assets keeps the files that tools made in one folder, each under the digest of its content, so that
// the same content is kept once. The folder is made when the first asset comes.
type Assets struct {
	Dir string
	Max int64 // bytes of one asset; 0: 256 MiB
}

// Add copies the asset's file and gives the asset with the copy's path, digest and size.
func (s Assets) Add(ctx context.Context, a tool.Asset, file *os.File) (tool.Asset, error) {
	c, err := s.copyIn(ctx, &a, file)
	if err != nil {
		return a, err
	}
	defer c.discard()
	return a, c.keep()
}

// A copied file has its content, and not yet its name.
type copied struct {
	tmp  *os.File
	path string
	kept bool
}

// copyIn copies the asset's file and fills in what is known of it then.
func (s Assets) copyIn(ctx context.Context, a *tool.Asset, src *os.File) (*copied, error) {
	if info, err := src.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, tool.Errorf(tool.CodeInvalidInput, "asset %s is not a regular file", a.Path)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "the asset store cannot be used: %w", err)
	}
	tmp, err := os.CreateTemp(s.Dir, ".new-*")
	if err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "the asset store cannot be used: %w", err)
	}
	c := &copied{tmp: tmp}
	if a.SHA256, a.Size, err = s.copyDigest(ctx, tmp, src, a.Path); err == nil {
		err = errors.Join(tmp.Sync(), tmp.Chmod(0o400))
	}
	if err != nil {
		c.discard()
		return nil, err
	}
	a.Path = filepath.Join(s.Dir, a.SHA256)
	c.path = a.Path
	return c, nil
}

// keep gives the copy its name. It may be called again.
func (c *copied) keep() error {
	if c.kept {
		return nil
	}
	if err := os.Rename(c.tmp.Name(), c.path); err != nil {
		return tool.Errorf(tool.CodeInternal, "the asset was not stored: %w", err)
	}
	c.kept = true
	return nil
}

// discard ends the work on a copy; one that was not kept is removed.
func (c *copied) discard() {
	_ = c.tmp.Close()
	if !c.kept {
		_ = os.Remove(c.tmp.Name())
	}
}

// reasonOf takes the operation and the path off an error: they are in the sentence already.
func reasonOf(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (s Assets) copyDigest(ctx context.Context, to io.Writer, from io.Reader, path string) (digest string, size int64, err error) {
	limit := cmp.Or(s.Max, 256<<20)
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(to, h), io.LimitReader(&ctxReader{ctx, from}, limit+1))
	switch {
	case err != nil:
		return "", 0, tool.Errorf(tool.CodeOf(err), "asset %s was not copied: %w", path, err)
	case size > limit:
		return "", 0, tool.Errorf(tool.CodeQuotaExceeded, "asset %s is larger than %d bytes", path, limit)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// ctxReader stops a long copy when the call ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
