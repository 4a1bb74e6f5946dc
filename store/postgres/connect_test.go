package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"toolpost/engine/job"
	"toolpost/engine/persist"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/store"
	"toolpost/store/postgres"
	"toolpost/tool"
)

func open(t *testing.T, address string, o store.Options) *store.DB {
	t.Helper()
	db, err := postgres.Open(address, o)
	kit.OK(t, err)
	t.Cleanup(func() { kit.OK(t, db.Close()) })
	return db
}

func patch(db *store.DB, key string) error {
	return db.Sessions().Patch(context.Background(), "ada", "s", []map[string]any{{key: true}})
}

// number asks the server, and not through the store.
func number(t *testing.T, address, query string) (n int) {
	t.Helper()
	raw := pg.Raw(t, address)
	defer raw.Close()
	kit.OK(t, raw.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func TestProgramOpensFourConnectionsOrAsManyAsItMay(t *testing.T) {
	server := pg.New(t)
	for most, more := range map[int]string{4: "", 5: "", 3: "&pool_max_conns=3&tcp_user_timeout=4000&target_session_attrs=read-write"} {
		address := server.Database(t) // of its own: connections of the others may end meanwhile
		db := open(t, address+more, store.Options{Connections: map[int]int{5: 5}[most]})
		ctx, stop := context.WithCancel(t.Context())
		var work, listener sync.WaitGroup
		listener.Go(func() { db.Listen(ctx, func() {}) }) // it keeps a connection
		for range 32 {
			work.Go(func() {
				for range 5 {
					_, err := db.Sessions().State(context.Background(), "ada", "s")
					kit.Check(t, err)
					kit.Check(t, patch(db, "a"))
				}
			})
		}
		work.Wait()
		got := number(t, address, ofPrograms)
		stop()
		listener.Wait()
		if got > most || got < 2 {
			t.Errorf("%d connections; it may have %d", got, most)
		}
	}
	address := server.Database(t)
	for _, more := range []string{"&pool_max_conns=2", "&pool_max_conns=x", "&tcp_user_timeout=x"} {
		_, err := postgres.Open(address+more, store.Options{})
		kit.Refused(t, err, tool.CodeInvalidInput, "")
	}
}

const ofPrograms = `SELECT COUNT(*) FROM pg_stat_activity
	WHERE datname = current_database() AND pid <> pg_backend_pid()`

// A program that has nothing to do holds its lock and looks for ended programs, and hardly asks for that.
func TestIdleStoreAsksAboutOnceASecond(t *testing.T) {
	address := pg.New(t).Database(t)
	db, never := open(t, address, store.Options{}), func(job.Job) (string, []byte) { return job.Lost, nil }
	kit.OK(t, patch(db, "a"))
	raw := pg.Raw(t, address)
	asked := func() (n int) {
		kit.OK(t, raw.QueryRowContext(t.Context(), `SELECT xact_commit + xact_rollback FROM pg_stat_database `+
			`WHERE datname = current_database()`).Scan(&n))
		return n
	}
	asked() // connecting counts, too
	look := func() {
		_, err := db.Audit().Recover(t.Context())
		kit.OK(t, err)
		_, err = db.Jobs().Recover(t.Context(), never, func(call []byte, _ string) ([]byte, error) { return call, nil })
		kit.OK(t, err)
		_, err = db.Plans().Recover(t.Context(), tool.NewID)
		kit.OK(t, err)
	}
	look()
	time.Sleep(15 * time.Second) // until it no longer expects others to be gone
	look()
	time.Sleep(time.Second) // the server counts with a delay
	before, begun := asked(), time.Now()
	for range 8 {
		look()
		time.Sleep(time.Second)
	}
	if n, took := asked()-before, time.Since(begun); float64(n) > 1.5*took.Seconds() {
		t.Errorf("%d transactions in %v", n, took)
	}
	locks := `SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'`
	if n := number(t, address, locks); n != 1 {
		t.Errorf("%d programs have their locks", n)
	}
}

// A pooler lends connections of a server for one transaction each, as PgBouncer does in transaction mode, or for as
// long as a client stays, as in session mode.
type pooler struct {
	session bool
	mu      sync.Mutex
	free    []net.Conn
	hello   bytes.Buffer // what a server says to a new client
}

// newPooler puts a pooler in front of the server of an address, and returns the address on its side.
func newPooler(t *testing.T, address string, session bool) string {
	return inFront(t, address, (&pooler{session: session}).serve)
}

// message reads a message; the first one of a client has no type.
func message(r io.Reader, typed bool) (b []byte, err error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := len(head) - 4 + int(binary.BigEndian.Uint32(head[len(head)-4:]))
	b = append(head, make([]byte, size-len(head))...)
	_, err = io.ReadFull(r, b[len(head):])
	return b, err
}

// answer carries what the server says until it is ready, and returns the state of the transaction.
func answer(client io.Writer, server io.Reader) (state byte, err error) {
	for {
		b, err := message(server, true)
		if err != nil {
			return 0, err
		}
		if b[0] == 'K' { // the number of the process: a pooler has its own
			b[5] ^= 0x40
		}
		if _, err := client.Write(b); err != nil || b[0] == 'Z' {
			return b[len(b)-1], err
		}
	}
}

func (p *pooler) serve(client net.Conn, socket string) {
	defer client.Close()
	first, err := message(client, false)
	if err != nil || strings.Contains(string(first), "lock_timeout") { // PgBouncer refuses most parameters
		return
	}
	server := p.take()
	defer func() {
		if server != nil {
			_ = server.Close()
		}
	}()
	said := byte('Q')
	if server != nil { // it is lent again
		p.mu.Lock()
		_, _ = client.Write(p.hello.Bytes())
		p.free, server, said = append(p.free, server), nil, 0
		p.mu.Unlock()
	} else if server, err = net.Dial("unix", socket); err != nil {
		return
	} else if _, err := server.Write(first); err != nil {
		return
	}
	to := io.Writer(client)
	if p.hello.Len() == 0 {
		to = io.MultiWriter(client, &p.hello)
	}
	for {
		if said == 'Q' || said == 'S' {
			state, err := answer(to, server)
			if err != nil {
				return
			}
			to = client
			if state == 'I' && !p.session {
				p.mu.Lock()
				p.free, server = append(p.free, server), nil
				p.mu.Unlock()
			}
		}
		b, err := message(client, true)
		if err != nil || b[0] == 'X' {
			return
		}
		if server == nil {
			server = p.take()
		}
		if server == nil {
			return
		}
		if _, err := server.Write(b); err != nil {
			return
		}
		said = b[0]
	}
}

// take returns the connection that was last given back, or nil.
func (p *pooler) take() (c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		c, p.free = p.free[n-1], p.free[:n-1]
	}
	return c
}

func TestPoolerThatLendsConnectionsForATransactionIsRefused(t *testing.T) {
	address := pg.New(t).Database(t)
	for name, in := range map[string]func(t *testing.T, address string, session bool) string{
		"an imitation": newPooler, "PgBouncer": pgbouncer,
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, in(t, address, true), store.Options{})
			kit.OK(t, patch(db, "a"), "a pooler in session mode")
			db = open(t, in(t, address, false), store.Options{})
			kit.Refused(t, patch(db, "a"), tool.CodeUnavailable, "lends a connection for one transaction")
		})
	}
}

// pgbouncer is newPooler for the program itself.
func pgbouncer(t *testing.T, address string, session bool) string {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("install Debian's package pgbouncer to run this test")
	}
	dir := kit.Must(os.MkdirTemp("", "pb"))(t) // a socket's path is short
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	u := kit.Must(url.Parse(address))(t)
	q, mode := u.Query(), "transaction"
	if session {
		mode = "session"
	}
	config := kit.Write(t, dir+"/pgbouncer.ini", "[databases]\n* = user=toolpost host="+q.Get("host")+"\n"+
		"[pgbouncer]\nauth_type = any\nlisten_addr =\nlisten_port = 5432\nunix_socket_dir = "+dir+"\n"+
		"pool_mode = "+mode+"\nuser = nobody\n")
	kit.OK(t, os.Chmod(dir, 0o777))
	cmd := exec.CommandContext(t.Context(), program, config)
	kit.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	kit.Until(t, func() error { return pg.Raw(t, u.String()).PingContext(t.Context()) })
	return u.String()
}

// The writer finds the new primary among the servers of the URL, and what was acknowledged is there.
func TestStandbyThatIsPromotedGoesOn(t *testing.T) {
	s := pg.New(t)
	address := s.Database(t)
	standby := s.Standby(t)
	db := open(t, standby.With(address), store.Options{})
	kit.OK(t, patch(db, "a"))
	if wrong, can, err := db.Standby(t.Context()); wrong != "" || !can || err != nil {
		t.Errorf("%q, %v, %v", wrong, can, err)
	}
	alone := open(t, standby.Address(address), store.Options{Reach: time.Millisecond})
	kit.Refused(t, patch(alone, "x"), tool.CodeUnavailable, "the database is read-only: it is a standby")
	s.Stop(syscall.SIGQUIT)
	standby.Promote(t)
	promoted := time.Now()
	kit.Eventually(t, "a write after the promotion", func() bool { return patch(db, "b") == nil })
	if took := time.Since(promoted); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if wrong, _, err := db.Standby(t.Context()); wrong != "the server has no synchronous standby" || err != nil {
		t.Errorf("%q, %v", wrong, err)
	}
	state, err := db.Sessions().State(t.Context(), "ada", "s")
	if err != nil || string(state) != `{"a":true,"b":true}` {
		t.Errorf("%s, %v", state, err)
	}
	kit.OK(t, patch(alone, "x"), "the standby is the primary")
}

// A program that is connected when its server no longer takes writes looks for another.
func TestDatabaseThatBecomesReadOnlyIsLeftAndRetried(t *testing.T) {
	address := pg.New(t).Database(t)
	db := open(t, address, store.Options{Reach: time.Millisecond})
	kit.OK(t, patch(db, "a"))
	set := func(to string) {
		raw := pg.Raw(t, address)
		raw.SetMaxOpenConns(1)
		_, err := raw.ExecContext(t.Context(), `SET default_transaction_read_only = off`)
		kit.OK(t, err)
		_, err = raw.ExecContext(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+
			`default_transaction_read_only = `+to+`', current_database()); END $$; `+endOthers)
		kit.OK(t, err)
	}
	set("on")
	kit.Eventually(t, "a write is refused", func() bool { return patch(db, "b") != nil })
	kit.Refused(t, patch(db, "c"), tool.CodeUnavailable, "the database is read-only")
	set("off")
	kit.Eventually(t, "a write is taken", func() bool { return patch(db, "d") == nil })
}

func TestDatabaseThatCannotBeUsedIsRefusedInWords(t *testing.T) {
	s := pg.New(t)
	for _, c := range []struct{ says, statement string }{
		{"let the role create tables", `CREATE ROLE poor LOGIN`},
		{"let the role log in", `CREATE ROLE barred`},
		{"create the database first", `SELECT 1`},
		{"has tables of another program", `CREATE TABLE job (x INT)`},
		{"has tables of another program", `CREATE TABLE toolpost_schema (x INT)`},
		{"has tables of another program", `CREATE TABLE toolpost_schema (version INT); ` +
			`INSERT INTO toolpost_schema VALUES (1); CREATE TABLE audit (x INT)`},
		{"the clock of the database server is 24h0m0s ahead of the clock of this machine; set both",
			`CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS ` +
				`'SELECT pg_catalog.clock_timestamp() + interval ''1 day'''; ` +
				`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', ` +
				`current_database()); END $$`},
	} {
		address := s.Database(t)
		_, err := pg.Raw(t, address).ExecContext(t.Context(), c.statement)
		kit.OK(t, err)
		const tables = `SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'`
		before := number(t, address, tables)
		at := address
		if role, ok := strings.CutPrefix(c.statement, `CREATE ROLE `); ok {
			at = strings.Replace(address, "user=toolpost", "user="+strings.Fields(role)[0], 1)
		} else if c.statement == `SELECT 1` {
			at = strings.Replace(address, "?", "_not_there?", 1)
		}
		kit.Refused(t, patch(open(t, at, store.Options{}), "a"), tool.CodeUnavailable, c.says, c.statement)
		kit.Equal(t, number(t, address, tables), before, "it leaves tables in", c.statement)
	}
	address := s.Database(t)
	kit.OK(t, patch(open(t, address, store.Options{}), "a"))
	_, err := pg.Raw(t, address).ExecContext(t.Context(), `GRANT SELECT ON ALL TABLES IN SCHEMA public TO poor`)
	kit.OK(t, err)
	poor := open(t, strings.Replace(address, "user=toolpost", "user=poor", 1), store.Options{})
	kit.Refused(t, patch(poor, "b"), tool.CodeUnavailable, "let the role create tables", "a role that may only read")
}

func TestSilentServerIsSaidToBeOutOfReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel connects, and nothing answers
	kit.OK(t, err)
	defer l.Close()
	db := open(t, "postgres://ada@"+l.Addr().String()+"/db?sslmode=disable&connect_timeout=1", store.Options{})
	kit.Refused(t, kit.Err(db.Audit().Recover(t.Context())), tool.CodeUnavailable, "the store cannot be reached to read")
}

// A server that does not answer is not tried each time that another one is looked for.
func TestAServerThatDoesNotAnswerIsPassedOver(t *testing.T) {
	listen := func(serve func(net.Conn)) (port string) {
		l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	var dials atomic.Int32
	silent := listen(func(c net.Conn) {
		dials.Add(1)
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	})
	w, u := &wire{}, kit.Must(url.Parse(pg.New(t).Database(t)))(t)
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")
	answers := listen(func(c net.Conn) { w.carry(c, socket) })
	db := open(t, fmt.Sprintf("postgres://toolpost@127.0.0.1:%s,127.0.0.1:%s%s", silent, answers, u.Path), store.Options{})
	kit.OK(t, patch(db, "a"))
	kit.Eventually(t, "another one is found at once", func() bool {
		before := dials.Load()
		w.swallow.Store(true) // and the connection is lost with it
		_ = patch(db, "b")
		kit.Until(t, func() error { return patch(db, "c") })
		return dials.Load() == before
	})
}

// A server without disk space refuses writes, goes on when there is space, and has kept what it acknowledged.
func TestFullDiskOfTheServerIsSaidAndLosesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=48m,mode=0777"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("this machine gives no small disk: %v", err)
	}
	t.Cleanup(func() { kit.Check(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	kit.OK(t, os.Chmod(filepath.Dir(dir), 0o711)) // the server runs as another user
	s := pg.New(t)
	db := open(t, s.DatabaseOn(t, dir), store.Options{})
	kit.OK(t, patch(db, "first"))
	f := kit.Must(os.Create(filepath.Join(dir, "ballast")))(t)
	defer f.Close()
	for kit.Err(f.Write(make([]byte, 1<<16))) == nil {
	}
	acknowledged := 1
	add := func() error {
		err := db.Audit().Append(t.Context(), &tool.Record{Time: time.Now(), Call: fmt.Sprint(acknowledged), Tool: "t",
			Args: []byte(`"` + strings.Repeat("x", 4000) + `"`), Outcome: tool.OutcomeOK}, true)
		if err == nil {
			acknowledged++
		}
		return err
	}
	var err error
	for err == nil {
		err = add()
	}
	kit.Refused(t, err, tool.CodeUnavailable, "there is no disk space for the store to write; free some and try again")
	kit.Equal(t, tool.AsError(err).Reason, persist.Full)
	kit.OK(t, f.Truncate(0))
	kit.OK(t, add(), "there is space again")
	kit.Equal(t, len(rowsOf(t, db)), acknowledged-1)
	report := kit.Must(db.Audit().Verify(t.Context()))(t)
	kit.Equal(t, len(report.Findings), 0, report)
}
