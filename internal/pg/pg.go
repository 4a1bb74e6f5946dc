// Package pg starts PostgreSQL servers for tests and benchmarks, which can be stopped and started again.
package pg

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of Raw

	"toolpost/internal/kit"
	"toolpost/internal/netns"
)

// A Server is a private PostgreSQL server in a temporary folder, which listens only on a socket in that folder.
type Server struct {
	bin, dir string
	settings []string
	attr     *syscall.SysProcAttr
	cmd      *exec.Cmd
	made     atomic.Int64
	subnet   string // 10.9.1 or 10.9.2 for a server in a network of its own; see Apart
	machine  *netns.Machine
}

// errMissing is the error of Open on a machine without PostgreSQL.
var errMissing = errors.New("PostgreSQL is not there; install Debian's package postgresql")

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := Open(t.Context())
	if errors.Is(err, errMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	kit.OK(t, err)
	t.Cleanup(s.Close)
	return s
}

// Open starts a server with the newest PostgreSQL of Debian's packages, and with settings such as commit_delay=1000. Close
// ends it.
func Open(ctx context.Context, settings ...string) (*Server, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return nil, errMissing
	}
	s := &Server{bin: filepath.Dir(slices.Max(found)), settings: settings}
	err := s.fill(ctx, "initdb", "-U", "toolpost", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// fill makes the folder of a server, with a program that makes its data.
func (s *Server) fill(ctx context.Context, program string, args ...string) (err error) {
	if s.dir, err = os.MkdirTemp("", "pg"); err != nil { // short, because a socket's path has at most 108 bytes
		return err
	}
	if s.attr, err = unprivileged(s.dir); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), append(args, "-D", s.dir+"/data")...)
	cmd.SysProcAttr, cmd.Dir = s.attr, s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

// Start starts a stopped server, and waits until it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	kit.OK(t, s.start(t.Context()))
	if s.subnet != "" {
		s.link(t)
	}
}

func (s *Server) start(ctx context.Context) error {
	args := []string{"-D", s.dir + "/data", "-k", s.dir}
	for _, one := range append([]string{"listen_addresses=", "shared_buffers=32MB", "max_connections=200"}, s.settings...) {
		args = append(args, "-c", one)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.bin, "postgres"), args...) // Stop ends it
	cmd.SysProcAttr, cmd.Dir = s.attr, s.dir
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	db, err := sql.Open("pgx", s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(ctx, kit.Hang)
	defer cancel()
	for err = db.PingContext(ctx); err != nil && ctx.Err() == nil; err = db.PingContext(ctx) {
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// Close ends the server and removes its folder.
func (s *Server) Close() {
	s.Stop(syscall.SIGQUIT)
	_ = os.RemoveAll(s.dir)
}

// Standby starts a copy of the server that follows it. From then on the server acknowledges a commit when both have it.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	other := &Server{bin: s.bin, settings: s.settings}
	t.Cleanup(other.Close)
	kit.OK(t, other.fill(t.Context(), "pg_basebackup", "-h", s.dir, "-U", "toolpost", "-R", "-c", "fast", "--no-sync"))
	if s.subnet != "" {
		other.apart(map[string]string{"10.9.1": "10.9.2", "10.9.2": "10.9.1"}[s.subnet])
		other.settings = append(other.settings, "wal_retrieve_retry_interval=100ms",
			"primary_conninfo=user=toolpost host="+s.subnet+".2")
	}
	other.Start(t)
	db := Raw(t, s.url("postgres"))
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		_, err := db.ExecContext(t.Context(), statement)
		kit.OK(t, err)
	}
	kit.Eventually(t, "the standby is synchronous", func() (so bool) {
		kit.OK(t, db.QueryRowContext(t.Context(),
			"SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')").Scan(&so))
		return so
	})
	return other
}

// Apart restarts a server in a network of its own. Its address is 10.9.1.2 there, and that of its standby, later, 10.9.2.2; each
// takes the place of the other in turn. The network of this process, which netns.Alone made, connects them.
func (s *Server) Apart(t testing.TB) {
	t.Helper()
	s.Stop(syscall.SIGINT)
	kit.OK(t, os.WriteFile(s.dir+"/data/pg_hba.conf", []byte("local all all trust\nlocal replication all trust\n"+
		"host all all all trust\nhost replication all all trust\n"), 0o644))
	s.apart("10.9.1")
	s.Start(t)
}

func (s *Server) apart(subnet string) {
	s.subnet, s.settings = subnet, []string{"listen_addresses=*"}
	s.attr.Cloneflags |= syscall.CLONE_NEWNET
}

// link connects the network of the server with that of this process.
func (s *Server) link(t testing.TB) {
	t.Helper()
	number, _ := strconv.Atoi(s.subnet[len("10.9."):])
	s.machine = netns.Of(t, s.cmd.Process.Pid, number)
}

// Cut cuts a server that is apart off from the others, or connects it again.
func (s *Server) Cut(t testing.TB, off bool) {
	t.Helper()
	s.machine.Cut(t, off)
}

// Freeze stops all processes of the server, as if its machine had hung, or lets them go on. The first one is stopped first and goes on
// last: the kernel's list of its children may lack some while they come and go, and one that stayed frozen would keep its locks.
func (s *Server) Freeze(off bool) {
	if !off {
		s.signalChildren(syscall.SIGCONT)
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	for range 1000 { // a signal may take a moment
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)); err != nil || bytes.Contains(state, []byte(") T ")) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	s.signalChildren(syscall.SIGSTOP)
}

func (s *Server) signalChildren(how syscall.Signal) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.cmd.Process.Pid))
	for _, text := range strings.Fields(string(children)) {
		if pid, err := strconv.Atoi(text); err == nil {
			_ = syscall.Kill(pid, how) // it may have ended
		}
	}
}

// PID is the process of the server that starts the others.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Promote makes a standby the primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	_, err := Raw(t, s.url("postgres")).ExecContext(t.Context(), "SELECT pg_promote()")
	kit.OK(t, err)
}

// Address returns the URL of a database for this server.
func (s *Server) Address(of string) string { return s.at(of, func(string) string { return s.dir }) }

// With returns a URL that names another server and this one.
func (s *Server) With(other string) string {
	return s.at(other, func(host string) string { return host + "," + s.dir })
}

func (s *Server) at(address string, change func(host string) string) string {
	u, _ := url.Parse(address) // it is one of ours
	q := u.Query()
	q.Set("host", change(q.Get("host")))
	u.RawQuery = q.Encode()
	return u.String()
}

// Stop ends the server, with SIGINT fast, as an operator does, or with SIGQUIT at once, as in a crash. It waits for the
// exit.
func (s *Server) Stop(how syscall.Signal) {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(how)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// unprivileged makes the server run as an ordinary user, which gets the folder, if this program runs as root: PostgreSQL
// refuses to run as root.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() != 0 {
		return attr, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(dir, uid, gid)
}

func (s *Server) url(database string) string {
	return "postgres:///" + database + "?" + url.Values{"host": {s.dir}, "user": {"toolpost"}}.Encode()
}

// Raw opens a database behind the store's back.
func Raw(t testing.TB, url string) *sql.DB {
	t.Helper()
	db := kit.Must(sql.Open("pgx", url))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Database makes a separate database for a test.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return kit.Must(s.Create(t.Context()))(t)
}

// DatabaseOn makes a database whose files are in a folder of their own, which may be on another disk.
func (s *Server) DatabaseOn(t testing.TB, dir string) string {
	t.Helper()
	url := s.Database(t)
	name := fmt.Sprint("t", s.made.Load())
	files := filepath.Join(dir, name)
	kit.OK(t, os.Mkdir(files, 0o700))
	kit.Must(unprivileged(files))(t)
	for _, statement := range []string{
		"CREATE TABLESPACE " + name + " LOCATION '" + files + "'", "ALTER DATABASE " + name + " SET TABLESPACE " + name,
	} {
		kit.Must(Raw(t, s.url("postgres")).ExecContext(t.Context(), statement))(t)
	}
	return url
}

// Create makes a separate database and returns its URL.
func (s *Server) Create(ctx context.Context) (string, error) {
	db, err := sql.Open("pgx", s.url("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	name := fmt.Sprint("t", s.made.Add(1))
	_, err = db.ExecContext(ctx, "CREATE DATABASE "+name)
	return s.url(name), err
}
