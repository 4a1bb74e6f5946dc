// Package pg starts PostgreSQL servers for tests, which can be stopped and started again.
package pg

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of Raw

	"toolpost/internal/kit"
)

// A Server is a private PostgreSQL server in a temporary folder, which listens only on a socket in that folder.
type Server struct {
	bin, dir string
	attr     *syscall.SysProcAttr
	cmd      *exec.Cmd
	made     int
}

// programs finds the newest PostgreSQL of Debian's packages.
func programs(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("PostgreSQL is not there; install Debian's package postgresql")
		}
		t.Skip("PostgreSQL is not there; install Debian's package postgresql to run this test")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1])
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // short, because a socket's path has at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{bin: programs(t), dir: dir, attr: unprivileged(t, dir)}
	initdb := exec.CommandContext(t.Context(), filepath.Join(s.bin, "initdb"), "-D", dir+"/data", "-U", "toolpost",
		"--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr, initdb.Dir = s.attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	s.Start(t)
	t.Cleanup(func() { s.Stop(syscall.SIGQUIT) })
	return s
}

// Start starts a stopped server, and waits until it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(s.bin, "postgres"), "-D",
		s.dir+"/data", "-k", s.dir,
		"-c", "listen_addresses=", "-c", "shared_buffers=32MB", "-c", "max_connections=200") // Stop ends it
	cmd.SysProcAttr, cmd.Dir = s.attr, s.dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd = cmd
	db := Raw(t, s.url("postgres"))
	defer func() { _ = db.Close() }()
	kit.Until(t, func() error { return db.PingContext(t.Context()) })
}

// Standby starts a copy of the server that follows it. From then on the server acknowledges a commit when both have it.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	other := &Server{bin: s.bin, dir: dir, attr: unprivileged(t, dir)}
	backup := exec.CommandContext(t.Context(), filepath.Join(s.bin, "pg_basebackup"), "-D", dir+"/data", "-h", s.dir, "-U",
		"toolpost", "-R", "-c", "fast", "--no-sync")
	backup.SysProcAttr, backup.Dir = s.attr, dir
	if out, err := backup.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	other.Start(t)
	t.Cleanup(func() { other.Stop(syscall.SIGQUIT) })
	db := Raw(t, s.url("postgres"))
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		_, err = db.ExecContext(t.Context(), statement)
		kit.OK(t, err)
	}
	kit.Eventually(t, "the standby is synchronous", func() (so bool) {
		kit.OK(t, db.QueryRowContext(t.Context(),
			"SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')").Scan(&so))
		return so
	})
	return other
}

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

// unprivileged makes the server run as an ordinary user, which gets the folder, if the test runs as root: PostgreSQL
// refuses to run as root.
func unprivileged(t testing.TB, dir string) *syscall.SysProcAttr {
	t.Helper()
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() != 0 {
		return attr
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr
}

func (s *Server) url(database string) string {
	return "postgres:///" + database + "?" + url.Values{"host": {s.dir}, "user": {"toolpost"}}.Encode()
}

// Raw opens a database behind the store's back.
func Raw(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Database makes a separate database for a test.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	s.made++
	name := "t" + strconv.Itoa(s.made)
	if _, err := Raw(t, s.url("postgres")).ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.url(name)
}
