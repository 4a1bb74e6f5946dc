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
	"time"

	"toolpost/store/database"
	"toolpost/tool"
)

// An AssetTable keeps the files that tools made in one folder, each named by the digest of its content, so that the
// same content is kept once, and an index of them in the database. The folder is created with the first asset.
type AssetTable struct {
	db   *database.DB
	dir  string
	most int64 // bytes of one asset
}

// Assets returns a table that keeps files in a folder, each of at most most bytes; 0 means 256 MiB.
func (db *DB) Assets(dir string, most int64) *AssetTable {
	return &AssetTable{db.DB, dir, cmp.Or(most, 256<<20)}
}

// Add copies the asset's file for the caller whose call brought it, and returns the asset with the copy's path, digest
// and size. The same content is kept once. A file that Open returned is not copied again.
func (s *AssetTable) Add(ctx context.Context, caller string, a tool.Asset, file *os.File) (tool.Asset, error) {
	if s.has(a, file) {
		return a, nil
	}
	if err := checkNames(caller); err != nil {
		return a, err
	}
	tmp, err := s.copyIn(ctx, &a, file)
	if err != nil {
		return a, err
	}
	kept := false
	defer func() {
		_ = tmp.Close()
		if !kept {
			_ = os.Remove(tmp.Name())
		}
	}()
	err = s.db.Do(true, func(t *database.Tx) error {
		if !kept { // inside, so that Expire cannot come between the file and its entry
			if err := os.Rename(tmp.Name(), a.Path); err != nil {
				return tool.Errorf(tool.CodeInternal, "the asset was not stored: %w", err)
			}
			kept = true
		}
		now, media := database.Micros(time.Now()), database.Plain(a.MediaType, database.MaxName)
		err := t.Exec(`INSERT INTO asset (sha256, size, media_type, added_at, used_at, times) VALUES (?, ?, ?, ?, ?, 1)
			ON CONFLICT (sha256) DO UPDATE SET media_type = excluded.media_type, used_at = excluded.used_at, times = asset.times + 1`,
			a.SHA256, a.Size, media, now, now)
		if err != nil {
			return err
		}
		return t.Exec(`INSERT INTO asset_caller (sha256, caller, asset_id, media_type, at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (sha256, caller) DO UPDATE SET asset_id = excluded.asset_id, media_type = excluded.media_type, at = excluded.at`,
			a.SHA256, caller, database.Plain(a.AssetID, database.MaxName), media, now)
	})
	return a, err
}

// Open opens an asset that a call of the caller brought, as that call described it. Any other asset counts as missing:
// a caller must not learn whether another has it.
func (s *AssetTable) Open(ctx context.Context, caller, sha256 string) (*os.File, tool.Asset, error) {
	if !isDigest(sha256) || checkNames(caller) != nil {
		return nil, tool.Asset{}, noAsset(sha256)
	}
	a := tool.Asset{SHA256: sha256}
	known, err := database.Row(s.db.Query(ctx), `SELECT asset_id, media_type FROM asset_caller WHERE sha256 = ? AND caller = ?`,
		[]any{sha256, caller}, &a.AssetID, &a.MediaType)
	if err == nil && !known {
		err = noAsset(sha256)
	}
	if err != nil {
		return nil, tool.Asset{}, err
	}
	return s.open(a)
}

// Expire removes the assets that were not added again since a time, and returns their number.
func (s *AssetTable) Expire(_ context.Context, before time.Time) (n int, err error) {
	err = s.db.Do(true, func(t *database.Tx) error {
		old, err := database.List(t, database.Value[string], `SELECT sha256 FROM asset WHERE used_at < ?`, database.Micros(before))
		if err != nil {
			return err
		}
		for _, sum := range old {
			if err := os.Remove(s.path(sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return tool.Errorf(tool.CodeUnavailable, "asset %s was not removed: %w", sum, reasonOf(err))
			}
		}
		n = len(old)
		if err := t.Exec(`DELETE FROM asset_caller WHERE sha256 IN (SELECT sha256 FROM asset WHERE used_at < ?)`,
			database.Micros(before)); err != nil {
			return err
		}
		return t.Exec(`DELETE FROM asset WHERE used_at < ?`, database.Micros(before))
	})
	return n, err
}

// open opens the file of an asset and fills in its path and size.
func (s *AssetTable) open(a tool.Asset) (*os.File, tool.Asset, error) {
	a.Path = s.path(a.SHA256)
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
		return nil, tool.Asset{}, tool.Errorf(tool.CodeInternal, "asset %s is no longer a regular file", a.SHA256)
	}
	a.Size = info.Size()
	return f, a, nil
}

// has reports whether a file is the one that is kept under the asset's digest. The asset's own data is not enough: it
// may come from a tool.
func (s *AssetTable) has(a tool.Asset, file *os.File) bool {
	if !isDigest(a.SHA256) {
		return false
	}
	given, err := file.Stat()
	if err != nil {
		return false
	}
	kept, err := os.Lstat(s.path(a.SHA256))
	return err == nil && os.SameFile(given, kept)
}

func (s *AssetTable) path(digest string) string { return filepath.Join(s.dir, digest) }

// isDigest reports whether a text can be the digest of an asset, and so the name of a file.
func isDigest(s string) bool { return isHex(s, 2*sha256.Size) }

func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}

func noAsset(digest string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no asset %.64q", digest)
}

// copyIn copies the asset's file to a temporary file, and fills in what is known of it.
func (s *AssetTable) copyIn(ctx context.Context, a *tool.Asset, src *os.File) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "the asset store cannot be used: %w", err)
	}
	tmp, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "the asset store cannot be used: %w", err)
	}
	if a.SHA256, a.Size, err = copyAsset(ctx, tmp, src, a.Path, s.most); err == nil {
		err = errors.Join(tmp.Sync(), tmp.Chmod(0o400))
	}
	if err != nil {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name())
		return nil, err
	}
	a.Path = s.path(a.SHA256)
	return tmp, nil
}

// reasonOf removes the operation and the path from an error: the message already has them.
func reasonOf(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// copyAsset copies a file that may be of any kind, and returns the digest and the size of the copy.
func copyAsset(
	ctx context.Context, to io.Writer, from *os.File, path string, most int64,
) (digest string, size int64, err error) {
	if info, err := from.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", 0, tool.Errorf(tool.CodeInvalidInput, "asset %s is not a regular file", path)
	}
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(to, h), io.LimitReader(&ctxReader{ctx, from}, most+1))
	switch {
	case err != nil:
		return "", 0, tool.Errorf(tool.CodeOf(err), "asset %s was not copied: %w", path, err)
	case size > most:
		return "", 0, tool.Errorf(tool.CodeQuotaExceeded, "asset %s is larger than %d bytes", path, most)
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
