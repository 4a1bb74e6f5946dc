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
	"strings"
	"syscall"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Assets keeps the files that tools made in one folder, each under the digest of its content, so that
// the same content is kept once. The folder is made when the first asset comes. Who brought an asset is kept
// in files, too, in a folder inside.
type Assets struct {
	Dir string
	Max int64 // bytes of one asset; 0: 256 MiB
}

// Add copies the asset's file for the caller whose call brought it, and gives the asset with the copy's path,
// digest and size. A file that Open gave is not copied again.
func (s Assets) Add(ctx context.Context, caller string, a tool.Asset, file *os.File) (tool.Asset, error) {
	if s.has(a, file) {
		return a, nil
	}
	c, err := s.copyIn(ctx, &a, file)
	if err != nil {
		return a, err
	}
	defer c.discard()
	if err := c.keep(); err != nil {
		return a, err
	}
	return a, s.own(caller, a)
}

// Open opens an asset that a call of the caller brought. Any other is not there: whether somebody else has it
// is theirs to know.
func (s Assets) Open(_ context.Context, caller, sha256 string) (*os.File, tool.Asset, error) {
	if !isDigest(sha256) {
		return nil, tool.Asset{}, noAsset(sha256)
	}
	text, err := os.ReadFile(s.mark(caller, sha256))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, tool.Asset{}, noAsset(sha256)
	case err != nil:
		return nil, tool.Asset{}, tool.Errorf(tool.CodeInternal, "whose the asset %s is cannot be read: %w", sha256, reasonOf(err))
	}
	var o owned
	if err := strictjson.Unmarshal(text, &o); err != nil {
		return nil, tool.Asset{}, tool.Errorf(tool.CodeInternal, "whose the asset %s is cannot be read: %w", sha256, err)
	}
	return s.open(tool.Asset{AssetID: o.AssetID, MediaType: o.MediaType, SHA256: sha256})
}

// open opens the file of an asset and fills in where it is and how large.
func (s Assets) open(a tool.Asset) (*os.File, tool.Asset, error) {
	a.Path = filepath.Join(s.Dir, a.SHA256)
	f, err := os.OpenFile(a.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, tool.Asset{}, noAsset(a.SHA256)
		}
		return nil, tool.Asset{}, tool.Errorf(tool.CodeInternal, "asset %s cannot be read: %w", a.SHA256, reasonOf(err))
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, tool.Asset{}, tool.Errorf(tool.CodeInternal, "asset %s is not a regular file any more", a.SHA256)
	}
	a.Size = info.Size()
	return f, a, nil
}

// has reports whether a file is the one that is kept under the asset's digest. What an asset says of itself is
// not enough: it may be the word of a tool.
func (s Assets) has(a tool.Asset, file *os.File) bool {
	if !isDigest(a.SHA256) {
		return false
	}
	given, err := file.Stat()
	if err != nil {
		return false
	}
	kept, err := os.Lstat(filepath.Join(s.Dir, a.SHA256))
	return err == nil && os.SameFile(given, kept)
}

// owned is what is kept of an asset for each caller who brought it.
type owned struct {
	AssetID   string `json:"assetId"`
	MediaType string `json:"mediaType"`
}

// own notes, whole or not at all, that the asset is the caller's.
func (s Assets) own(caller string, a tool.Asset) error {
	path := s.mark(caller, a.SHA256)
	text, err := strictjson.Marshal(owned{plain(a.AssetID, maxName), plain(a.MediaType, maxName)})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = replaceFile(path, text)
	}
	if err != nil {
		return tool.Errorf(tool.CodeInternal, "the asset was stored, but not whose it is: %w", reasonOf(err))
	}
	return nil
}

// mark names the file that says that an asset is the caller's. A caller may have any name, so its digest is taken.
func (s Assets) mark(caller, digest string) string {
	who := sha256.Sum256([]byte(caller))
	return filepath.Join(s.Dir, ".callers", digest, hex.EncodeToString(who[:]))
}

// replaceFile writes a file beside its place and then puts it there.
func replaceFile(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// isDigest reports whether a text can be the digest of an asset, and so the name of a file.
func isDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}

func noAsset(digest string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no asset %.64q", digest)
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
