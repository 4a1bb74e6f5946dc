package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The write-ahead log grows until its pages are copied into the database, and only then starts again. Copying many at a
// time costs least. But the copies need room as well: a log that has taken all there was can neither grow nor be
// copied, however little is missing, and keeps the room that somebody makes. So it has a small part of what is free,
// and most of what it has is copied already when the disk is full.
const (
	mostPages  = 4000 // of the log before they are copied: 16 MiB
	leastPages = 16
	ofTheRoom  = 16 // the log has one part of so many
)

// bound sets how large the log becomes, by how much is free.
func (f *files) bound(ctx context.Context, conn *sql.Conn) {
	pages := mostPages
	var disk unix.Statfs_t
	if unix.Statfs(filepath.Dir(f.path), &disk) == nil {
		pages = int(min(mostPages, max(leastPages, disk.Bavail*uint64(disk.Bsize)/ofTheRoom/4096)))
	}
	if pages != f.pages {
		if _, err := conn.ExecContext(ctx, "PRAGMA wal_autocheckpoint = "+strconv.Itoa(pages)); err == nil {
			f.pages = pages
		}
	}
}

// upkeep copies what the log has, as far as nobody reads it, and looks how much is free.
func (f *files) upkeep(ctx context.Context, conn *sql.Conn) {
	_, _ = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)") // what cannot be copied now can be later
	f.bound(ctx, conn)
}

// relieve copies all that the log has and gives its room back.
func relieve(ctx context.Context, conn *sql.Conn) bool {
	var busy, pages, copied int
	err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &copied)
	return err == nil && busy == 0
}
