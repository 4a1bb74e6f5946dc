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
	"toolpost/internal/kit"
)

func parsed(t *testing.T, path, text string) *config.Config {
	t.Helper()
	return kit.Must(config.Parse(path, []byte(text)))(t)
}

// found returns the state folder of a config after FindState, which every source has too.
func found(t *testing.T, c *config.Config, given string) string {
	t.Helper()
	kit.OK(t, c.FindState(given))
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
	kit.Equal(t, found(t, parsed(t, path, "state: kept\n"), ""), dir+"/kept", "as the file says")
	kit.Equal(t, found(t, parsed(t, path, someSource), ""), dir+"/.toolpost", "nobody says")
}

func TestAStateFolderWithTheConfigInItIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, state := range []string{".", "..", dir, "/", "kept/.."} {
		_, err := config.Parse(filepath.Join(dir, config.FileName), []byte("a: 1\nstate: "+state+"\n"))
		kit.Fails(t, err, ":2:8: the state folder", "state: %s", state)
	}
	kit.Fails(t, parsed(t, filepath.Join(dir, config.FileName), someSource).FindState(dir), "", "given, it was taken")
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
	kit.OK(t, <-done)
	return c.StateDir()
}

func TestStateFallsBackToTheUsersFolder(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	kit.OK(t, errors.Join(os.Symlink(dir, dir+"/way"), os.Chmod(dir, 0o555), os.Chmod(filepath.Dir(dir), 0o755)))
	t.Setenv("XDG_STATE_HOME", home)
	one, two := asAnybody(t, dir+"/one.yaml", someSource), asAnybody(t, dir+"/two.yaml", someSource)
	if one == two || filepath.Dir(one) != home+"/toolpost" || filepath.Dir(two) != home+"/toolpost" {
		t.Errorf("%s and %s", one, two)
	}
	kit.Equal(t, asAnybody(t, dir+"/way/one.yaml", someSource), one, "by another way")
	kit.Equal(t, asAnybody(t, dir+"/one.yaml", "state: kept"), dir+"/kept", "what the file says is not second-guessed")
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", home)
	if got := asAnybody(t, dir+"/one.yaml", someSource); filepath.Dir(got) != home+"/.local/state/toolpost" {
		t.Errorf("without XDG_STATE_HOME: %s", got)
	}
	t.Setenv("HOME", "")
	kit.Equal(t, asAnybody(t, dir+"/one.yaml", someSource), dir+"/.toolpost", "without a home")
}

func TestAServiceKeepsItsStateInItsOwnFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), config.FileName)
	t.Setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
	if got := found(t, parsed(t, path, someSource), ""); filepath.Base(got) != ".toolpost" {
		t.Errorf("of a parent that is a service: %s", got)
	}
	t.Setenv("SYSTEMD_EXEC_PID", strconv.Itoa(os.Getpid()))
	kit.Equal(t, found(t, parsed(t, path, someSource), ""), "/var/lib/one", "of the service")
	if got := found(t, parsed(t, "/var/lib/one/toolpost.yaml", someSource), ""); strings.HasPrefix("/var/lib/one", got) {
		t.Errorf("with the config in the folder of the service: %s", got)
	}
	t.Setenv("STATE_DIRECTORY", "")
	kit.Equal(t, found(t, parsed(t, "/etc/toolpost/toolpost.yaml", someSource), ""),
		"/var/lib/toolpost", "from a shell")
}
