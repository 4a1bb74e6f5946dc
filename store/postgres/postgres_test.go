package postgres_test

import (
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"toolpost/store"
	"toolpost/store/postgres"
	"toolpost/store/storetest"
	"toolpost/tool"
)

// A server is a PostgreSQL of our own, in a temporary folder, that listens on a socket in it and nowhere else.
type server struct {
	dir  string
	cmd  *exec.Cmd
	made int
}

// programs finds the newest PostgreSQL of Debian's packages.
func programs(t testing.TB) string {
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

// startServer starts one; it ends with the test.
func startServer(t testing.TB) *server {
	bin := programs(t)
	dir, err := os.MkdirTemp("", "pg") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &server{dir: dir}
	attr := unprivileged(t, dir)
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", dir+"/data", "-U", "toolpost", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	s.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "shared_buffers=32MB", "-c", "max_connections=200")
	s.cmd.SysProcAttr, s.cmd.Dir = attr, dir
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Signal(syscall.SIGQUIT); _ = s.cmd.Wait() })
	s.await(t)
	return s
}

// unprivileged gives the folder to somebody who is not root, as whom the server then runs: it refuses to be root.
func unprivileged(t testing.TB, dir string) *syscall.SysProcAttr {
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

func (s *server) url(database string) string {
	return "postgres:///" + database + "?" + url.Values{"host": {s.dir}, "user": {"toolpost"}}.Encode()
}

func (s *server) await(t testing.TB) {
	db := raw(t, s.url("postgres"))
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := db.PingContext(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("PostgreSQL does not answer: %v", err)
		}
	}
}

func raw(t testing.TB, url string) *sql.DB {
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// database makes a database of its own for a test.
func (s *server) database(t testing.TB) string {
	s.made++
	name := "t" + strconv.Itoa(s.made)
	if _, err := raw(t, s.url("postgres")).ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.url(name)
}

func kind(s *server) storetest.Kind {
	return storetest.Kind{New: s.database, Open: postgres.Open, Raw: raw, Far: true}
}

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, kind(nil))) }

func TestSuite(t *testing.T) { storetest.Run(t, kind(startServer(t))) }

func TestAURLThatCannotBeReadIsRefusedWithoutItsPassword(t *testing.T) {
	_, err := postgres.Open("postgres://ada:secret@host:notaport/db", store.Options{})
	if tool.CodeOf(err) != tool.CodeInvalidInput || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestAServerThatIsNotThereIsUnavailableSoon(t *testing.T) {
	db, err := postgres.Open("postgres:///x?host="+t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Sessions().State(t.Context(), "ada", "s"); tool.CodeOf(err) != tool.CodeUnavailable {
		t.Error(err)
	}
}

func TestTheStoreOutlivesARestartOfItsServer(t *testing.T) {
	s := startServer(t)
	address := s.database(t)
	db, err := postgres.Open(address, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	patch := func(key string) error {
		return db.Sessions().Patch(t.Context(), "ada", "s", []map[string]any{{key: true}})
	}
	if err := patch("a"); err != nil {
		t.Fatal(err)
	}
	// All connections end, as they do when the server starts again.
	if _, err := raw(t, address).ExecContext(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"); err != nil {
		t.Fatal(err)
	}
	if err := patch("b"); err != nil {
		t.Error(err)
	}
	if got, err := db.Sessions().State(t.Context(), "ada", "s"); err != nil || string(got) != `{"a":true,"b":true}` {
		t.Errorf("%s, %v", got, err)
	}
}
