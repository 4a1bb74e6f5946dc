package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/tool"
)

// StateName is the name of the folder beside a config in which an installation keeps its state.
const StateName = offlimits.StateName

// The folder of a machine-wide config, and the state folder of its service.
const (
	systemConfig = "/etc/toolpost"
	systemState  = "/var/lib/toolpost"
)

// StateDir returns the folder for everything that this installation writes: its store, tokens, keys, indexes, the data
// of skills, packages that it installed.
func (c *Config) StateDir() string { return c.state }

// StateBeside reports whether the state folder is beside the config, where people look for it first.
func (c *Config) StateBeside() bool { return c.state == filepath.Join(c.Dir, StateName) }

// FindState chooses the state folder, in this order: given, relative to the current directory; the one that the file
// names; the one that systemd made for this service; the one beside the config; or, if that cannot be written, one in
// the user's own folder for state. Every command uses the same rules, so they all find the same folder. Nothing is
// created.
func (c *Config) FindState(given string) error {
	if given != "" {
		dir, err := filepath.Abs(given)
		if err != nil {
			return cannotRead(given, err)
		}
		return c.KeepStateIn(dir)
	}
	if c.State == "" {
		c.setState(c.usualState())
	}
	return nil
}

// KeepStateIn sets the state folder to an absolute path.
func (c *Config) KeepStateIn(dir string) error {
	if err := c.checkState(dir); err != nil {
		return err
	}
	c.setState(dir)
	return nil
}

func (c *Config) setState(dir string) {
	c.state = dir
	for i := range c.Sources {
		c.Sources[i].State = dir
	}
}

// checkState refuses a folder that contains the config: tools do not see the state folder, so they would not see
// anything that the config names either.
func (c *Config) checkState(dir string) error {
	if !offlimits.Within(c.Dir, dir) {
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, "the state folder %s has the config in it, and no tool would see a file "+
		"there; give the state a folder of its own, such as %s", dir, filepath.Join(dir, "state"))
}

// usualState returns the state folder if none is given.
func (c *Config) usualState() string {
	besideConfig := filepath.Join(c.Dir, StateName)
	if dir := serviceState(c.Dir); dir != "" && c.checkState(dir) == nil {
		return dir
	}
	if writable(besideConfig) {
		return besideConfig
	}
	return cmp.Or(c.userState(), besideConfig) // the first write there reports why it fails
}

// serviceState returns the state folder of a service. systemd passes it only to the service; operators come from a
// shell, and find it by the folder of the config. A variable inherited from a parent, which may be another service,
// says nothing about this process.
func serviceState(dir string) string {
	if os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid()) {
		first, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
		if filepath.IsAbs(first) {
			return filepath.Clean(first)
		}
	}
	if dir == systemConfig {
		return systemState
	}
	return ""
}

// userState returns the folder for a config among the user's own state, by the XDG base directories, or "" if the user
// has no home. Its name shows people which config it belongs to, and distinguishes two configs.
func (c *Config) userState() string {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the specification says to ignore such values
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, ".local", "state")
	}
	dir := c.realDir()
	return filepath.Join(base, "toolpost", filepath.Base(dir)+"-"+short(filepath.Join(dir, filepath.Base(cmp.Or(c.Path, FileName)))))
}

// realDir returns the folder of the config, which is the same however it is reached.
func (c *Config) realDir() string {
	if real, err := filepath.EvalSymlinks(c.Dir); err == nil {
		return real
	}
	return c.Dir
}

// Key names the config among all configs of this machine, also if it is that of a folder without a file.
func (c *Config) Key() string { return short(filepath.Join(c.realDir(), filepath.Base(c.Path))) }

// Digest identifies the text of the config.
func (c *Config) Digest() string { return short(string(c.Text())) }

func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// Socket returns the path of the socket at which the server of this config answers commands. Several configs can share a
// state folder, so each has a socket of its own.
func (c *Config) Socket() string { return filepath.Join(c.state, "server-"+c.Key()+".sock") }

// Successor returns the path of the socket at which the server of this config hands its sockets to the one that replaces it.
func (c *Config) Successor() string { return filepath.Join(c.state, "successor-"+c.Key()+".sock") }

// ContextsFile returns the path of the user's file of contexts, which has tokens in it, or "" if the user has no home.
func ContextsFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "toolpost", "contexts.json")
}

// writable reports whether a folder can be written, or created if it is missing. It only chooses between places: it is
// not a guard.
func writable(dir string) bool {
	const enter = unix.W_OK | unix.X_OK
	err := unix.Faccessat(unix.AT_FDCWD, dir, enter, unix.AT_EACCESS)
	if err == unix.ENOENT {
		err = unix.Faccessat(unix.AT_FDCWD, filepath.Dir(dir), enter, unix.AT_EACCESS)
	}
	return err == nil
}

// StateDir returns a folder below the state folder of the source's installation.
func (s Source) StateDir(below ...string) string {
	return filepath.Join(append([]string{cmp.Or(s.State, filepath.Join(s.Dir, StateName))}, below...)...)
}

// lockTime is how long Locked waits: longer than a provider may take to renew a login.
const lockTime = 45 * time.Second

// Locked runs do while no other program does so for the same file.
func Locked(ctx context.Context, path string, do func() error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return do()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || !tool.Sleep(ctx, 20*time.Millisecond) {
			return tool.Errorf(tool.CodeUnavailable, "%s is in use by another program: %w; try again", path, err)
		}
	}
}

// WritePrivate replaces a file of the state folder, readable only by its owner: a reader sees all of the old text or all
// of the new.
func WritePrivate(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
