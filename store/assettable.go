package store

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"toolpost/tool"
)

// An AssetTable keeps the files that tools made in one folder, each under the digest of its content, so that the same
// content is kept once, and an index of them in the database. The folder is made when the first asset comes.
type AssetTable struct {
	db   *DB
	dir  string
	most int64 // bytes of one asset
}

// Assets keeps files in a folder, of so many bytes each at the most; 0: 256 MiB.
func (db *DB) Assets(dir string, most int64) *AssetTable {
	return &AssetTable{db, dir, cmp.Or(most, 256<<20)}
}

// Add copies the asset's file for the caller whose call brought it, and gives the asset with the copy's path,
// digest and size. The same content is kept once. A file that Open gave is not copied again.
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
	err = s.db.w.do(true, func(t *tx) error {
		if !kept { // inside, so that Expire cannot come between the file and its entry
			if err := os.Rename(tmp.Name(), a.Path); err != nil {
				return tool.Errorf(tool.CodeInternal, "the asset was not stored: %w", err)
			}
			kept = true
		}
		now, media := micros(time.Now()), plain(a.MediaType, maxName)
		err := t.exec(`INSERT INTO asset (sha256, size, media_type, added_at, used_at, times) VALUES (?, ?, ?, ?, ?, 1)
			ON CONFLICT (sha256) DO UPDATE SET media_type = excluded.media_type, used_at = excluded.used_at, times = asset.times + 1`,
			a.SHA256, a.Size, media, now, now)
		if err != nil {
			return err
		}
		return t.exec(`INSERT INTO asset_caller (sha256, caller, asset_id, media_type, at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (sha256, caller) DO UPDATE SET asset_id = excluded.asset_id, media_type = excluded.media_type, at = excluded.at`,
			a.SHA256, caller, plain(a.AssetID, maxName), media, now)
	})
	return a, err
}

// Open opens an asset that a call of the caller brought, as that call described it. Any other is not there:
// whether somebody else has it is theirs to know.
func (s *AssetTable) Open(ctx context.Context, caller, sha256 string) (*os.File, tool.Asset, error) {
	if !isDigest(sha256) || checkNames(caller) != nil {
		return nil, tool.Asset{}, noAsset(sha256)
	}
	a := tool.Asset{SHA256: sha256}
	known, err := reading(ctx, s.db, func(r *reader) (bool, error) {
		return row(r, `SELECT asset_id, media_type FROM asset_caller WHERE sha256 = ? AND caller = ?`,
			[]any{sha256, caller}, &a.AssetID, &a.MediaType)
	})
	if err == nil && !known {
		err = noAsset(sha256)
	}
	if err != nil {
		return nil, tool.Asset{}, err
	}
	return s.open(a)
}

// Expire removes the assets that nobody has added since a time, and gives their number.
func (s *AssetTable) Expire(_ context.Context, before time.Time) (n int, err error) {
	err = s.db.w.do(true, func(t *tx) error {
		old, err := list(t, value[string], `SELECT sha256 FROM asset WHERE used_at < ?`, micros(before))
		if err != nil {
			return err
		}
		for _, sum := range old {
			if err := os.Remove(s.path(sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return tool.Errorf(tool.CodeUnavailable, "asset %s was not removed: %w", sum, reasonOf(err))
			}
		}
		n = len(old)
		if err := t.exec(`DELETE FROM asset_caller WHERE sha256 IN (SELECT sha256 FROM asset WHERE used_at < ?)`,
			micros(before)); err != nil {
			return err
		}
		return t.exec(`DELETE FROM asset WHERE used_at < ?`, micros(before))
	})
	return n, err
}
