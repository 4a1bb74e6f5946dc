package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/host/offlimits"
	"toolpost/tool"
)

// StateName is what the folder beside a config is called in which an installation keeps what it writes.
const StateName = offlimits.StateName

// Where a config of the whole machine is, and what the service of that config writes to.
const (
	systemConfig = "/etc/toolpost"
	systemState  = "/var/lib/toolpost"
)

// StateDir is the folder for everything that this installation writes: its store, tokens, keys, indexes, what skills
// keep, packages that it installed.
func (c *Config) StateDir() string { return c.state }

// StateBeside reports whether the state folder is where people look for it first: beside the config.
func (c *Config) StateBeside() bool { return c.state == filepath.Join(c.Dir, StateName) }

// FindState decides where the state folder is: where given says, a path that starts where this program stands; else
// where the file says; else in the folder that systemd made for this service; else beside the config, and where nothing
// can be written there, in the user's own folder for state. Every command decides by the same rules, and so they find
// the same folder. Nothing is made.
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

// KeepStateIn puts the state folder at an absolute path.
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

// checkState refuses a folder that the config itself is in: tools do not see the state folder, so they would not see
// anything that the config names either.
func (c *Config) checkState(dir string) error {
	if !offlimits.Within(c.Dir, dir) {
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, "the state folder %s has the config in it, and no tool would see a file "+
		"there; give the state a folder of its own, such as %s", dir, filepath.Join(dir, "state"))
}

// usualState is where the state is if nobody says where.
func (c *Config) usualState() string {
	beside := filepath.Join(c.Dir, StateName)
	if dir := serviceState(c.Dir); dir != "" && c.checkState(dir) == nil {
		return dir
	}
	if writable(beside) {
		return beside
	}
	return cmp.Or(c.userState(), beside) // whoever then writes there says why it cannot
}

// serviceState is the state folder of a service. systemd tells it only to the service, and those who look after it come
// from a shell: they find it by where the config is. A variable that this process got from a parent, which may be
// another service, says nothing about us.
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

// userState is the folder for a config among the user's own state, by the XDG base directories; empty: the user has no
// home. Its name tells people which config it is, and two configs apart.
func (c *Config) userState() string {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // such values count for nothing, says the specification
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, ".local", "state")
	}
	dir := c.Dir
	if real, err := filepath.EvalSymlinks(dir); err == nil { // the same folder, by whatever way
		dir = real
	}
	sum := sha256.Sum256([]byte(filepath.Join(dir, filepath.Base(cmp.Or(c.Path, FileName)))))
	return filepath.Join(base, "toolpost", filepath.Base(dir)+"-"+hex.EncodeToString(sum[:6]))
}

// writable reports whether a folder can be written, or made where it is missing. It only chooses between places: it is
// no guard.
func writable(dir string) bool {
	const enter = unix.W_OK | unix.X_OK
	err := unix.Faccessat(unix.AT_FDCWD, dir, enter, unix.AT_EACCESS)
	if err == unix.ENOENT {
		err = unix.Faccessat(unix.AT_FDCWD, filepath.Dir(dir), enter, unix.AT_EACCESS)
	}
	return err == nil
}

// StateDir is a folder below the state folder of the source's installation.
func (s Source) StateDir(below ...string) string {
	return filepath.Join(append([]string{cmp.Or(s.State, filepath.Join(s.Dir, StateName))}, below...)...)
}
