// Package sqlite opens a store in one file of this machine. Several programs may use the file at once.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"toolpost/kernel"
	"toolpost/store"
	"toolpost/store/database"
	"toolpost/tool"
)

// Kind is the kind of store that is one file.
func Kind() store.Kind {
	return store.Kind{Schemes: []string{"sqlite"}, Form: "sqlite:FILE", File: true, Open: Open, Claim: claim}
}

// Open returns the store in a file, which is created on first use if it does not exist.
func Open(path string, o store.Options) (*store.DB, error) {
	writes, err := sql.Open("sqlite",
		dsn(path, "busy_timeout(2000)", "journal_mode(wal)", "synchronous(full)", "journal_size_limit(67108864)"))
	if err != nil {
		return nil, err
	}
	writes.SetMaxOpenConns(1)
	reads, err := sql.Open("sqlite", dsn(path, "busy_timeout(10000)", "query_only(1)"))
	if err != nil {
		return nil, errors.Join(err, writes.Close())
	}
	reads.SetMaxOpenConns(8)
	reads.SetMaxIdleConns(8)
	return store.New(dialect(&files{path: path, first: map[string]inode{}}), reads, writes, o), nil
}

// prepare creates the file, for its owner alone, if it is missing. SQLite gives the files beside it the same mode. An
// existing file is not touched: closing a file of SQLite's releases all locks that this program has on it.
func prepare(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return tool.Errorf(tool.CodeUnavailable,
			"the folder of the store cannot be made: %w; name another place with `store: {url: \"sqlite:FILE\"}`, or "+
				"keep nothing with `store: {url: none}`", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the store cannot be opened: %w", err)
	}
	return f.Close()
}

func dsn(path string, pragmas ...string) string {
	u := url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(),
		RawQuery: url.Values{"mode": {"rw"}, "_pragma": pragmas}.Encode(),
	}
	return u.String()
}

func dialect(f *files) database.Dialect {
	return database.Dialect{
		Types: strings.NewReplacer("BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY",
			"CREATE SEQUENCE IF NOT EXISTS audit_seq", "SELECT 1"), // one writer numbers its rows itself
		Prepare: func() error { return prepare(f.path) },
		Begin:   "BEGIN IMMEDIATE",
		Quick:   "PRAGMA synchronous = NORMAL",
		Durable: "PRAGMA synchronous = FULL",
		Enter:   f.enter,
		Leave:   f.leave,
		Lives:   f.lives,
		Same:    f.same,
		Upkeep:  f.upkeep,
		Relieve: relieve,
		Down:    func(error) bool { return false },
		Intact:  "PRAGMA integrity_check(1)",
		Size:    "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
		Busy:    busy,
		Full:    full,
		Advice: func(err error) string {
			if codeOf(err) == lib.SQLITE_NOTADB || err != nil && strings.Contains(err.Error(), "already exists") {
				return "; it belongs to another program: name a file of its own, or one that is not there yet"
			}
			return ""
		},
	}
}

// full reports whether there is no room. Some ways to run out of room look like any other failed write.
func full(err error) bool {
	switch codeOf(err) {
	case lib.SQLITE_FULL, lib.SQLITE_IOERR_WRITE, lib.SQLITE_IOERR_TRUNCATE, lib.SQLITE_IOERR_SHMSIZE,
		lib.SQLITE_IOERR_FSYNC:
		return true
	}
	return false
}

// busy reports whether another program was in the way.
func busy(err error) bool {
	class := codeOf(err) & 0xff
	return class == lib.SQLITE_BUSY || class == lib.SQLITE_LOCKED
}

// codeOf returns the code of an error from SQLite, or 0 for other errors.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// The write-ahead log grows until its pages are copied into the database, and only then starts again. Copying many at a
// time costs least. But the copies need room as well: a log that has taken all the room can neither grow nor be copied,
// however little is missing, and it takes the room that an operator frees. So it gets a small part of the free space,
// and most of its pages are already copied when the disk is full.
const (
	mostPages  = 4000 // pages of the log before they are copied: 16 MiB
	leastPages = 16
	ofTheRoom  = 16 // the log gets one part in this many
)

// bound limits the size of the log according to the free space.
func (f *files) bound(ctx context.Context, conn *sql.Conn) {
	pages := mostPages
	if free, _, err := kernel.Disk(filepath.Dir(f.path)); err == nil {
		pages = int(min(mostPages, max(leastPages, free/ofTheRoom/4096)))
	}
	if pages != f.pages {
		if _, err := conn.ExecContext(ctx, "PRAGMA wal_autocheckpoint = "+strconv.Itoa(pages)); err == nil {
			f.pages = pages
		}
	}
}

// upkeep copies the pages of the log, except those in use by readers, and checks the free space.
func (f *files) upkeep(ctx context.Context, conn *sql.Conn) {
	_, _ = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)") // pages that cannot be copied now can be later
	f.bound(ctx, conn)
}

// relieve copies the whole log and frees its space.
func relieve(ctx context.Context, conn *sql.Conn) bool {
	var busy, pages, copied int
	err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &copied)
	return err == nil && busy == 0
}
