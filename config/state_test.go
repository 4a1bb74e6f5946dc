package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/config"
)

func parsed(t *testing.T, path, text string) *config.Config {
	t.Helper()
	c, err := config.Parse(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// found returns the state folder of a config after FindState, which every source has too.
func found(t *testing.T, c *config.Config, given string) string {
	t.Helper()
	if err := c.FindState(given); err != nil {
		t.Fatal(err)
	}
	if len(c.Sources) > 0 && c.Sources[0].StateDir("x") != filepath.Join(c.StateDir(), "x") {
		t.Errorf("the source keeps its state in %s and the config in %s", c.Sources[0].StateDir(), c.StateDir())
	}
	return c.StateDir()
}

const someSource = "sources: [{name: a, protocol: p}]\n"

func TestStateFolderPrecedence(t *testing.T) {
	dir, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	path := filepath.Join(dir, config.FileName)
	named := parsed(t, path, "state: kept\n"+someSource)
	for given, want := range map[string]string{
		"": dir + "/kept", "mine": here + "/mine", "/srv/state": "/srv/state",
	} {
		if got := found(t, named, given); given != "" && got != want {
			t.Errorf("given %q: %s, want %s", given, got, want)
		}
	}
	if got := found(t, parsed(t, path, "state: kept\n"), ""); got != dir+"/kept" {
		t.Errorf("as the file says: %s", got)
	}
	if got := found(t, parsed(t, path, someSource), ""); got != dir+"/.toolpost" {
		t.Errorf("nobody says: %s", got)
	}
}

func TestAStateFolderWithTheConfigInItIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, state := range []string{".", "..", dir, "/", "kept/.."} {
		_, err := config.Parse(filepath.Join(dir, config.FileName), []byte("a: 1\nstate: "+state+"\n"))
		if err == nil || !strings.Contains(err.Error(), ":2:8: the state folder") {
			t.Errorf("state: %s: %v", state, err)
		}
	}
	if err := parsed(t, filepath.Join(dir, config.FileName), someSource).FindState(dir); err == nil {
		t.Error("given, it was taken")
	}
}

// asAnybody finds the state folder of a config on a thread without root's access to all folders.
func asAnybody(t *testing.T, path, text string) (dir string) {
	t.Helper()
	c, done := parsed(t, path, text), make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if os.Getuid() == 0 {
			if err := unix.Setfsuid(65534); err != nil {
				done <- err
				return
			}
		}
		done <- c.FindState("")
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return c.StateDir()
}

func TestStateFallsBackToTheUsersFolder(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	err := errors.Join(os.Symlink(dir, dir+"/way"), os.Chmod(dir, 0o555), os.Chmod(filepath.Dir(dir), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", home)
	one, two := asAnybody(t, dir+"/one.yaml", someSource), asAnybody(t, dir+"/two.yaml", someSource)
	if one == two || filepath.Dir(one) != home+"/toolpost" || filepath.Dir(two) != home+"/toolpost" {
		t.Errorf("%s and %s", one, two)
	}
	if again := asAnybody(t, dir+"/way/one.yaml", someSource); again != one {
		t.Errorf("by another way: %s, want %s", again, one)
	}
	if got := asAnybody(t, dir+"/one.yaml", "state: kept"); got != dir+"/kept" {
		t.Errorf("what the file says is not second-guessed: %s", got)
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", home)
	if got := asAnybody(t, dir+"/one.yaml", someSource); filepath.Dir(got) != home+"/.local/state/toolpost" {
		t.Errorf("without XDG_STATE_HOME: %s", got)
	}
	t.Setenv("HOME", "")
	if got := asAnybody(t, dir+"/one.yaml", someSource); got != dir+"/.toolpost" {
		t.Errorf("without a home: %s", got)
	}
}

func TestAServiceKeepsItsStateInItsOwnFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), config.FileName)
	t.Setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
	if got := found(t, parsed(t, path, someSource), ""); filepath.Base(got) != ".toolpost" {
		t.Errorf("of a parent that is a service: %s", got)
	}
	t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getpid()))
	if got := found(t, parsed(t, path, someSource), ""); got != "/var/lib/one" {
		t.Errorf("of the service: %s", got)
	}
	if got := found(t, parsed(t, "/var/lib/one/toolpost.yaml", someSource), ""); strings.HasPrefix("/var/lib/one", got) {
		t.Errorf("with the config in the folder of the service: %s", got)
	}
	t.Setenv("STATE_DIRECTORY", "")
	if got := found(t, parsed(t, "/etc/toolpost/toolpost.yaml", someSource), ""); got != "/var/lib/toolpost" {
		t.Errorf("from a shell: %s", got)
	}
}
