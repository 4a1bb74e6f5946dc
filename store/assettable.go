package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"toolpost/tool"
)

// An AssetTable keeps the files that tools made in one folder, by content, and an index of them in the
// database.
type AssetTable struct {
	db    *DB
	files Assets
}

// Assets keeps files, with the folder that they are kept in.
func (db *DB) Assets(files Assets) *AssetTable { return &AssetTable{db, files} }

// A Kept is an asset as it is kept.
type Kept struct {
	SHA256    string    `json:"sha256"`
	Size      int64     `json:"size"`
	MediaType string    `json:"mediaType"`
	Added     time.Time `json:"added"`
	Used      time.Time `json:"used"` // when it was last added
	Times     int64     `json:"times"`
	Path      string    `json:"-"`
}

// Add copies the asset's file and gives the asset with the copy's path, digest and size. The same content is
// kept once.
func (s *AssetTable) Add(ctx context.Context, a tool.Asset, file *os.File) (tool.Asset, error) {
	c, err := s.files.copyIn(ctx, &a, file)
	if err != nil {
		return a, err
	}
	defer c.discard()
	err = s.db.w.do(true, func(t *tx) error {
		if err := c.keep(); err != nil { // inside, so that Expire cannot come between the file and its entry
			return err
		}
		now := micros(time.Now())
		return t.exec(`INSERT INTO asset (sha256, size, media_type, added_at, used_at, times) VALUES (?, ?, ?, ?, ?, 1)
			ON CONFLICT (sha256) DO UPDATE SET media_type = excluded.media_type, used_at = excluded.used_at, times = asset.times + 1`,
			a.SHA256, a.Size, plain(a.MediaType, maxName), now, now)
	})
	return a, err
}

// Find gives the asset with a digest.
func (s *AssetTable) Find(ctx context.Context, sha256 string) (Kept, error) {
	k := Kept{SHA256: sha256, Path: filepath.Join(s.files.Dir, filepath.Base(sha256))}
	err := s.db.read(ctx, func(r *reader) error {
		var added, used int64
		err := r.row(`SELECT size, media_type, added_at, used_at, times FROM asset WHERE sha256 = ?`, plain(sha256, maxName)).
			Scan(&k.Size, &k.MediaType, &added, &used, &k.Times)
		k.Added, k.Used = time.UnixMicro(added).UTC(), time.UnixMicro(used).UTC()
		if errors.Is(err, sql.ErrNoRows) {
			return tool.Errorf(tool.CodeNotFound, "there is no asset %.64q", sha256)
		}
		return err
	})
	return k, err
}

// Expire removes the assets that nobody has added since a time, and gives their number.
func (s *AssetTable) Expire(_ context.Context, before time.Time) (n int, err error) {
	err = s.db.w.do(true, func(t *tx) error {
		var old []string
		if err := t.each(texts(&old), `SELECT sha256 FROM asset WHERE used_at < ?`, micros(before)); err != nil {
			return err
		}
		for _, sum := range old {
			if err := os.Remove(filepath.Join(s.files.Dir, sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return tool.Errorf(tool.CodeUnavailable, "asset %s was not removed: %w", sum, reasonOf(err))
			}
		}
		n = len(old)
		return t.exec(`DELETE FROM asset WHERE used_at < ?`, micros(before))
	})
	return n, err
}
