// Package postgres opens a store in a PostgreSQL database, which several machines may use at once.
package postgres

import (
	"database/sql"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"toolpost/store"
	"toolpost/tool"
)

// connectTimeout bounds the way to the server where the URL does not.
const connectTimeout = 5 * time.Second

// Open gives the store in the database of a URL, such as postgres://user@host/database. The way to the server is
// made at the first use.
func Open(url string, o store.Options) (*store.DB, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the URL of the store cannot be read; postgres://USER:PASSWORD@HOST/DATABASE is wanted") // not err: it may hold the password
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	reads, writes := *cfg, *cfg
	reads.RuntimeParams = with(cfg.RuntimeParams, "default_transaction_read_only", "on")
	writes.RuntimeParams = with(cfg.RuntimeParams, "lock_timeout", "10s")
	return store.New(dialect(), pool(&reads, 8), pool(&writes, 1), o), nil
}

func with(params map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	for k, v := range params {
		all[k] = v
	}
	return all
}

func pool(cfg *pgx.ConnConfig, size int) *sql.DB {
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

func dialect() store.Dialect {
	return store.Dialect{
		Name:     "postgres",
		Numbered: true,
		Types:    strings.NewReplacer("BLOB", "BYTEA"),
		// One writer at a time, as SQLite has it: a group holds whatever it likes and never meets a deadlock. The
		// number is any that nobody else uses.
		Begin:   []string{"BEGIN", "SELECT pg_advisory_xact_lock(7410517923146)"},
		Quick:   "SET LOCAL synchronous_commit = off",
		Durable: "SET LOCAL synchronous_commit = on",
		Inside:  true,
		Busy:    busy,
		Full:    full,
	}
}

// busy reports whether another program was in the way, or the server was just starting or ending.
func busy(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "55P03", "40001", "40P01", "57P01", "57P02", "57P03":
			return true
		}
		return false
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op != "dial"
}

// full reports whether the server has no room.
func full(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "53100" || e.Code == "53200")
}
