// Package postgres opens a store in a PostgreSQL database, which several machines may use at once.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"toolpost/store"
	"toolpost/store/database"
	"toolpost/tool"
)

// connectTimeout bounds connecting to the server if the URL does not.
const connectTimeout = 5 * time.Second

// Open returns the store in the database of a URL, such as postgres://user@host/database. It connects to the server on
// first use.
func Open(url string, o store.Options) (*store.DB, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		// not err: it may hold the password
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the URL of the store cannot be read; expected postgres://USER:PASSWORD@HOST/DATABASE")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	reads, writes := *cfg, *cfg
	reads.RuntimeParams = map[string]string{"default_transaction_read_only": "on"}
	maps.Copy(reads.RuntimeParams, cfg.RuntimeParams)
	// The keepalives let the server notice within half a minute that the machine of a program is gone: until then it
	// keeps the program's lock.
	writes.RuntimeParams = map[string]string{
		"lock_timeout": "10s", "tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	}
	maps.Copy(writes.RuntimeParams, cfg.RuntimeParams)
	// Never off: a server that crashes forgets such commits, and this program, which goes on, would find its own records
	// gone. A group shares the cost.
	writes.RuntimeParams["synchronous_commit"] = "on"
	return store.New(dialect(), pool(&reads, 8), pool(&writes, 1), o), nil
}

func pool(cfg *pgx.ConnConfig, size int) *sql.DB {
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

func dialect() database.Dialect {
	return database.Dialect{
		Numbered: true,
		Types:    strings.NewReplacer("BLOB", "BYTEA"),
		Begin:    begin,
		Share:    share,
		Lock:     "SELECT pg_advisory_xact_lock(?)",
		Held:     "SELECT (classid::bigint << 32) | objid::bigint " + advisory,
		Numbers:  "SELECT nextval('audit_seq') FROM generate_series(1, ?::bigint)",
		Given:    "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM audit_seq",
		Advance:  "SELECT setval('audit_seq', ?::bigint + 1, false) FROM audit_seq WHERE last_value <= ?::bigint",
		Enter:    enter,
		Lives:    lives,
		Grace:    grace,
		Listen:   listen,
		Ring:     "NOTIFY toolpost",
		Doubt:    true,
		Size:     "SELECT pg_database_size(current_database())",
		Busy:     busy,
		Down:     down,
		Full:     full,
	}
}

// storeLock is the number of the lock that a transaction shares with others, or has alone. It is arbitrary and must not be
// used elsewhere.
const storeLock = "7410517923146"

const begin = "BEGIN; SELECT pg_advisory_xact_lock(" + storeLock + ")"

// share begins a transaction that has some keys to itself, or all. The array is evaluated in its order.
func share(keys []int64, alone bool) string {
	b := []byte("BEGIN; SELECT pg_advisory_xact_lock_shared(" + storeLock + "); SELECT pg_advisory_xact_lock(key) FROM unnest('{")
	if alone {
		b = []byte(begin + "; SELECT pg_advisory_xact_lock(key) FROM unnest('{")
	}
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, key, 10)
	}
	return string(append(b, "}'::bigint[]) AS key"...))
}

// advisory selects the advisory locks of this database that are held.
const advisory = `FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// grace is how long a program that has lost its connection may take to come back. It retries every second.
const grace = 10 * time.Second

// enter takes a program's lock, which the server releases with the connection. It is shared, so that the program is not
// locked out by an earlier connection that the server does not yet know to be lost.
func enter(ctx context.Context, conn *sql.Conn, number int64) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock_shared($1)`, number)
	return err
}

// lives reports whether a program has its lock.
func lives(ctx context.Context, q database.RowQuerier, number int64) (held bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 `+advisory+`
		AND (classid::bigint << 32) | objid::bigint = $1)`, number).Scan(&held)
	return held, err
}

// listen waits for NOTIFY toolpost. Rings before it listened may have been missed.
func listen(ctx context.Context, conn *sql.Conn, heard func()) error {
	return conn.Raw(func(driver any) error {
		c := driver.(*stdlib.Conn).Conn()
		_, err := c.Exec(ctx, "LISTEN toolpost")
		for err == nil {
			heard()
			_, err = c.WaitForNotification(ctx)
		}
		return err
	})
}

// codeOf returns the code of an error from the server, or "" for other errors.
func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// busy reports whether another program was in the way.
func busy(err error) bool { return slices.Contains([]string{"55P03", "40001", "40P01"}, codeOf(err)) }

// full reports whether the server has no room.
func full(err error) bool { return slices.Contains([]string{"53100", "53200"}, codeOf(err)) }

// down reports whether the server cannot be reached, or has closed the connection: it is stopping or starting, or
// something on the way to it is.
func down(err error) bool {
	if code := codeOf(err); code != "" {
		return slices.Contains([]string{"57P01", "57P02", "57P03"}, code) || strings.HasPrefix(code, "08")
	}
	is := func(one error) bool { return errors.Is(err, one) }
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return connect || network ||
		err != nil && err.Error() == "conn closed" || // during a read, when the server stopped; pgx has no name for it
		slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, sql.ErrConnDone, syscall.EPIPE,
			syscall.ECONNRESET}, is)
}
