// Package postgres opens a store in a PostgreSQL database, which several machines may use at once.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"toolpost/config/offlimits"
	"toolpost/kernel"
	"toolpost/store"
	"toolpost/store/database"
	"toolpost/tool"
)

// connectTimeout bounds connecting to the server if the URL does not.
const connectTimeout = 4 * time.Second

// Kind is the kind of store that is a database of a server.
func Kind() store.Kind {
	return store.Kind{Schemes: []string{"postgres", "postgresql"}, Form: "postgres://...", Open: Open, Claim: claim}
}

// claim returns the files in a URL, which are relative to the working folder of this program.
func claim(address string) (c offlimits.Claim) {
	u, err := url.Parse(address)
	if err != nil {
		return c
	}
	dir, err := os.Getwd()
	if err != nil {
		return c
	}
	q := u.Query()
	c.Keeps = offlimits.Given(dir, q.Get("sslkey"), q.Get("passfile"), q.Get("servicefile"))
	c.Starts = offlimits.Given(dir, q.Get("sslcert"))
	if root := q.Get("sslrootcert"); root != "system" { // not a file, but the machine's own
		c.Starts = append(c.Starts, offlimits.Given(dir, root)...)
	}
	return c
}

// Open returns the store in the database of a URL, such as postgres://user@host/database. It connects to the server on
// first use.
func Open(address string, o store.Options) (*store.DB, error) {
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		// not err: it may hold the password
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the URL of the store cannot be read; expected postgres://USER:PASSWORD@HOST/DATABASE")
	}
	size, err := connections(cfg.RuntimeParams, o.Connections)
	if err != nil {
		return nil, err
	}
	hosts := map[string]bool{net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))): true}
	for _, f := range cfg.Fallbacks { // a host comes twice if it may be used with and without TLS
		hosts[net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))] = true
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout / time.Duration(len(hosts)) // so that one that is silent leaves time for the next
	}
	if err := dialling(cfg); err != nil {
		return nil, err
	}
	if len(hosts) > 1 {
		cfg.DialFunc = passing(cfg.DialFunc, cfg.ConnectTimeout)
	}
	reads, writes := *cfg, *cfg
	e := &entry{cfg: &writes}
	reads.ValidateConnect, writes.ValidateConnect = nil, writable
	if len(hosts) > 1 {
		reads.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	reads.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := e.beside(address); err != nil {
			return nil, err
		}
		return cfg.DialFunc(ctx, network, address)
	}
	// Here and not with the other parameters: poolers refuse most of those.
	reads.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := value(ctx, conn, `SELECT set_config('default_transaction_read_only', 'on', false)`)
		return err
	}
	return store.New(dialect(e, &reads), pool(&reads, size-1, stdlib.OptionResetSession(e.stays)), pool(&writes, 1), o), nil
}

// connections returns how many connections a program opens: what the URL says, as for other programs that use pgx, or the
// config.
func connections(params map[string]string, most int) (int, error) {
	if text, ok := params["pool_max_conns"]; ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			n = -1
		}
		delete(params, "pool_max_conns") // the server does not know it
		most = n
	}
	most = cmp.Or(most, usualConnections)
	if most < 3 {
		return 0, tool.Errorf(tool.CodeInvalidInput, "the store needs 3 connections or more: one writes, one reads, and one waits for "+
			"news of other programs")
	}
	return most, nil
}

// usualConnections is how many connections a program opens by default: one writes, the others read.
const usualConnections = 4

// dialling makes connections notice within tcp_user_timeout (milliseconds, as in libpq) that the machine of the server is
// silent, also while they wait for its answer: the kernel alone takes a quarter of an hour, or for ever.
func dialling(cfg *pgx.ConnConfig) error {
	limit := unacknowledged
	if text, ok := cfg.RuntimeParams["tcp_user_timeout"]; ok {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 0 {
			return tool.Errorf(tool.CodeInvalidInput, "tcp_user_timeout in the URL of the store is a number of milliseconds")
		}
		limit = time.Duration(ms) * time.Millisecond
		delete(cfg.RuntimeParams, "tcp_user_timeout") // the one of the server is for the other direction
	}
	d := &net.Dialer{Timeout: cfg.ConnectTimeout}
	cfg.DialFunc = d.DialContext
	if limit == 0 {
		return nil
	}
	d.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: limit / 2, Interval: limit / 2}
	d.Control = func(network, _ string, c syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		var failed error
		err := c.Control(func(fd uintptr) { failed = kernel.UserTimeout(int(fd), limit) })
		return cmp.Or(err, failed)
	}
	return nil
}

// unacknowledged leaves time to find the next server of the URL within five seconds. It is over at the second keepalive:
// those are a second apart.
const unacknowledged = 1900 * time.Millisecond

// writable refuses a server that does not take writes, so that the next of the URL is tried. One that waits for its
// synchronous standby may be a former primary, which does not know that its standby has been promoted.
func writable(ctx context.Context, conn *pgconn.PgConn) error {
	wrong, err := value(ctx, conn, lasting+`SELECT CASE WHEN current_setting('transaction_read_only') = 'on' THEN
		'the database is read-only: it is a standby, or was made so; name the primary in the URL of the store (host=A,B for '
		'several servers)' WHEN current_setting('synchronous_standby_names') <> '' THEN (`+standby+`) ELSE '' END`)
	if err != nil || wrong == "" {
		return err
	}
	return errors.New(wrong)
}

// lasting prepares a connection that holds a lock. The keepalives let the server notice within half a minute that the machine
// of a program is gone: until then it keeps the program's lock. Commits are synchronous: a server that crashes forgets the
// others, and this program, which goes on, would find its own records gone. A group shares the cost.
const lasting = `SET lock_timeout = '10s'; SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; ` +
	`SET tcp_keepalives_count = 3; SET synchronous_commit = on; `

// value runs a query without parameters in one round trip, also through a pooler, which may not know prepared statements.
func value(ctx context.Context, conn *pgconn.PgConn, query string) (string, error) {
	all, err := conn.Exec(ctx, query).ReadAll()
	if err != nil {
		return "", err
	}
	return string(all[len(all)-1].Rows[0][0]), nil
}

func pool(cfg *pgx.ConnConfig, size int, o ...stdlib.OptionOpenDB) *sql.DB {
	db := sql.OpenDB(connector{stdlib.GetConnector(*cfg, o...)})
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db
}

// A connector shortens the errors of pgx, which tries a host with and without TLS and has a line for each attempt.
type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if e, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return nil, unconnected{e}
	}
	return conn, err
}

type unconnected struct{ *pgconn.ConnectError }

// Is makes it a database.ErrUnconnected.
func (unconnected) Is(target error) bool { return target == database.ErrUnconnected }

// Unwrap returns the error of pgx, which has the server's code.
func (e unconnected) Unwrap() error { return e.ConnectError }

// Error leaves out that the server has no TLS, which is why pgx went on without it, and what was said before.
func (e unconnected) Error() string {
	text := ""
	for line := range strings.Lines(e.ConnectError.Unwrap().Error()) {
		switch line = strings.TrimSpace(line); {
		case text == "" || strings.HasSuffix(text, noTLS):
			text = line
		case !strings.HasSuffix(line, noTLS) && !strings.Contains(text, line):
			text += "; " + line
		}
	}
	return text
}

const noTLS = "server refused TLS connection"

func dialect(e *entry, reads *pgx.ConnConfig) database.Dialect {
	return database.Dialect{
		Numbered: true,
		Types:    strings.NewReplacer("BLOB", "BYTEA"),
		Begin:    begin,
		Enter:    e.enter,
		Lives:    lives,
		Grace:    grace,
		Size:     "SELECT pg_database_size(current_database())",
		Busy:     busy,
		Down:     down,
		Full:     full,
		Advice: func(err error) string {
			return map[string]string{
				"28000": "; let the role log in, and allow it in the server's pg_hba.conf",
				"28P01": "; set the role's password in PGPASSWORD or ~/.pgpass",
				"3D000": "; create the database first",
				"42501": "; let the role create tables in the schema, and own them",
				"42P01": foreign, "42P07": foreign, "42703": foreign, "42710": foreign,
			}[codeOf(err)]
		},
		Server: &database.Server{
			Share:   share,
			Send:    send,
			Lock:    "SELECT pg_advisory_xact_lock(?)",
			Held:    "SELECT " + lockNumber + advisory,
			Numbers: "SELECT nextval('audit_seq') FROM generate_series(1, ?::bigint)",
			Given:   "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM audit_seq",
			Advance: "SELECT setval('audit_seq', ?::bigint + 1, false) FROM audit_seq WHERE last_value <= ?::bigint",
			Keeps:   e.keeps,
			Living:  living,
			Listen:  listen,
			Ring:    "NOTIFY toolpost",
			Now:     now,
			Standby: standby,
			At:      e.address,
			Answers: func(ctx context.Context) error {
				conn, err := pgconn.ConnectConfig(ctx, &reads.Config)
				if err == nil {
					err = conn.Close(ctx)
				}
				return err
			},
		},
	}
}

// send runs statements as one batch.
func send(ctx context.Context, conn *sql.Conn, all []database.Statement) error {
	return conn.Raw(func(c any) error {
		var b pgx.Batch
		for _, one := range all {
			b.Queue(one.Query, one.Args...)
		}
		return c.(*stdlib.Conn).Conn().SendBatch(ctx, &b).Close()
	})
}

// foreign is what to do about names that are missing, or are already there.
const foreign = "; it has tables of another program: name an empty database"

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

// advisory selects the advisory locks of this database that are held, and lockNumber is the number of one.
const (
	advisory = ` FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	lockNumber = `(classid::bigint << 32 | objid::bigint)`
)

// grace is how long programs may take to come back after a fail-over. They retry every second, but may wait for a server that is silent.
const grace = 10 * time.Second

// An entry is the lock of this program, and the process of the server that holds it.
type entry struct {
	cfg *pgx.ConnConfig
	pid string
	at  atomic.Pointer[string] // the address of that server; nil before the first write
}

// address is that of the server that is written to, or "" before the first write.
func (e *entry) address() string {
	if at := e.at.Load(); at != nil {
		return *at
	}
	return ""
}

// beside refuses to read from another server than the one that is written to: a standby is behind, and so is a former primary.
func (e *entry) beside(address string) error {
	if at := e.address(); at != "" && at != address {
		return errors.New("this program writes to another server")
	}
	return nil
}

// stays drops a connection for reading when the program has begun to write to another server.
func (e *entry) stays(_ context.Context, conn *pgx.Conn) error {
	if e.beside(conn.PgConn().Conn().RemoteAddr().String()) != nil {
		return driver.ErrBadConn
	}
	return nil
}

// enter takes a program's lock, which the server releases with the connection. It is shared, so that the program is not
// locked out by an earlier connection that the server does not yet know to be lost.
func (e *entry) enter(ctx context.Context, conn *sql.Conn, number int64) error {
	return conn.Raw(func(c any) (err error) {
		pg := c.(*stdlib.Conn).Conn().PgConn()
		if err = clock(ctx, pg); err != nil {
			return err
		}
		e.at.Store(new(pg.Conn().RemoteAddr().String()))
		e.pid, err = value(ctx, pg, `SELECT pg_backend_pid() FROM pg_advisory_lock_shared(`+strconv.FormatInt(number, 10)+`)`)
		if err != nil || e.pid == strconv.FormatUint(uint64(pg.PID()), 10) {
			return err
		}
		return e.behindPooler(ctx, pg)
	})
}

// clock refuses a server whose time is not that of this machine: leases, tokens and keys end by the clock.
func clock(ctx context.Context, pg *pgconn.PgConn) error {
	text, err := value(ctx, pg, now)
	if err != nil {
		return err
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if ahead := time.Until(time.UnixMicro(micros)).Round(time.Second); err == nil && ahead.Abs() > mostAhead {
		return tool.Errorf(tool.CodeUnavailable, "the clock of the database server is %v ahead of the clock of this machine; set "+
			"both, for example with NTP, and try again", ahead).Because("store_clock")
	}
	return err
}

// mostAhead is how much two clocks may differ, as in Kerberos.
const mostAhead = 5 * time.Minute

const now = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT"

// behindPooler refuses a pooler, which gives its connections process numbers of its own, if it lends connections of the
// server for one transaction each: then the lock belongs to no program. A second connection takes the one with the lock
// if it is free.
func (e *entry) behindPooler(ctx context.Context, pg *pgconn.PgConn) error {
	other, err := pgconn.ConnectConfig(ctx, &e.cfg.Config)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(ctx) }()
	pid, err := value(ctx, other, `BEGIN; SELECT pg_backend_pid()`)
	if err == nil && pid == e.pid {
		return errPooled
	}
	return errors.Join(err, e.same(ctx, pg))
}

// keeps checks that the connection has the process of the server that holds the lock.
func (e *entry) keeps(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(c any) error { return e.same(ctx, c.(*stdlib.Conn).Conn().PgConn()) })
}

func (e *entry) same(ctx context.Context, pg *pgconn.PgConn) error {
	if pid, err := value(ctx, pg, `SELECT pg_backend_pid()`); err != nil || pid == e.pid {
		return err
	}
	return errPooled
}

var errPooled = tool.Errorf(tool.CodeUnavailable, "the URL of the store leads to a pooler that lends a connection for one "+
	"transaction at a time, so a program cannot hold the lock by which others know that it is alive; name the server itself, "+
	"or a pooler in session mode").Because("store_pooled")

// living lists the programs that have their locks, whose numbers are positive, unlike those of keys.
const living = `SELECT COALESCE(string_agg(DISTINCT ` + lockNumber + `::text, ' '), '')` + advisory + `
	AND mode = 'ShareLock' AND ` + lockNumber + ` > 0 AND ` + lockNumber + ` <> ` + storeLock

// lives reports whether a program has its lock.
func lives(ctx context.Context, q database.RowQuerier, number int64) (held bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1`+advisory+` AND `+lockNumber+` = $1)`, number).Scan(&held)
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

// standby looks for a synchronous standby. Ordinary roles do not see the states of standbys.
const standby = `SELECT CASE WHEN current_setting('synchronous_standby_names') = '' THEN 'the server has no synchronous standby'
	WHEN EXISTS (SELECT 1 FROM pg_stat_replication WHERE COALESCE(sync_state, 'sync') IN ('sync', 'quorum')) THEN ''
	ELSE 'no synchronous standby is connected, so writes wait for one' END`

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
		// 25006: the server has become a standby
		return slices.Contains([]string{"57P01", "57P02", "57P03", "25006"}, code) || strings.HasPrefix(code, "08")
	}
	is := func(one error) bool { return errors.Is(err, one) }
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return connect || network ||
		err != nil && err.Error() == "conn closed" || // during a read, when the server stopped; pgx has no name for it
		slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, sql.ErrConnDone, syscall.EPIPE,
			syscall.ECONNRESET}, is)
}
