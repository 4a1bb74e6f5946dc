package tryout

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"toolpost/host/process"
	"toolpost/tool"
)

// database starts a PostgreSQL, and returns its URL. It returns "" if there is none, and says so.
func (y *yard) database(ctx context.Context) string {
	dir := filepath.Join(y.dir, "pg")
	if err := y.postgres(ctx, dir); err != nil {
		for _, c := range y.children { // it is not a part of the fleet then
			c.Close()
		}
		y.children = nil
		y.say("one hub, with SQLite: several hubs share a PostgreSQL, and %s", tool.AsError(err).Message)
		return ""
	}
	return "postgres:///postgres?" + url.Values{"host": {dir}, "user": {"toolpost"}}.Encode()
}

// postgres listens on a socket in its folder alone.
func (y *yard) postgres(ctx context.Context, dir string) error {
	bin, err := programs()
	if err != nil {
		return err
	}
	as, err := y.ordinary(dir)
	if err != nil {
		return err
	}
	command := func(name string, args ...string) process.Command {
		return process.Command{
			Argv: append(slices.Clone(as), append([]string{filepath.Join(bin, name), "-D", dir + "/data"}, args...)...),
			Dir:  dir, Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"},
		}
	}
	if _, err := printed(ctx, command("initdb", "-U", "toolpost", "--auth=trust", "--no-sync", "-E", "UTF8")); err != nil {
		return err
	}
	err = y.keep("PostgreSQL", command("postgres", "-k", dir, "-c", "listen_addresses=", "-c", "shared_buffers=32MB"))
	if err != nil {
		return err
	}
	return y.until(ctx, func() error {
		_, err := os.Stat(dir + "/.s.PGSQL.5432")
		return err
	})
}

// programs returns the folder of the newest PostgreSQL.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian keeps it off the PATH
	if len(found) == 0 {
		return "", tool.Errorf(tool.CodeUnsupported, "none is installed; on Debian: apt install postgresql")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// ordinary makes the folder of the database, and returns the words that begin its commands: PostgreSQL refuses to run as root.
// As any child it ends with this program; that has to be said again after a change of user.
func (y *yard) ordinary(dir string) ([]string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil || os.Getuid() != 0 {
		return nil, err
	}
	as, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(as.Uid)
	gid, _ := strconv.Atoi(as.Gid)
	if err := os.Chmod(y.dir, 0o711); err != nil { //nolint:gosec // so that it can reach its folder
		return nil, err
	}
	return []string{"setpriv", fmt.Sprint("--reuid=", uid), fmt.Sprint("--regid=", gid), "--clear-groups", "--pdeathsig=KILL"}, os.Chown(dir, uid, gid)
}
