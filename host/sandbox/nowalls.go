//go:build !linux

package sandbox

import (
	"errors"
	"os"
	"runtime"

	"toolpost/tool"
)

// On a system without these walls every profile is refused: a source runs there only with `walls: {off: true}` in its
// config. This file replaces the files that build walls, so that callers need no check of their own.

// A machine lists what can be built here: nothing.
type machine struct {
	UserNS, PidNS, NetNS, Mounts, Seccomp, Notify bool

	Landlock int
	groups   controllers
	broken   error
}

type controllers struct{ why map[string]error }

// The versions of Landlock that matter.
const landlockTruncate, landlockScopes = 3, 6

func thisMachine() *machine {
	return &machine{broken: errors.New("walls are made by the Linux kernel, and this is " + runtime.GOOS)}
}

func (m *machine) backstopPids() bool { return false }

func outOfFiles(error) bool { return false }

func tooFewFiles(err error) error { return err }

func (m *machine) layers() []Layer {
	return []Layer{{
		Name: "walls", Why: m.broken.Error(),
		Means: "keep tools apart; here a source runs only where its config says `walls: {off: true}`, with your own rights",
	}}
}

// Probe returns one layer, which does not work.
func Probe() []Layer { return thisMachine().layers() }

// Main does nothing: there is no forker.
func Main() (handled bool) { return false }

// Keep does nothing: there is no forker.
func Keep() (release func()) { return func() {} }

// Leave does nothing: there is no forker.
func Leave() {}

// A Confined is a started child. It never exists here.
type Confined struct {
	Pid, Init int
	Layers    []string
	Window    *Window
}

// Start refuses every profile.
func Start(s Spawn) (*Confined, error) { return nil, thisMachine().cover(s.Profile) }

// Moved returns false.
func Moved(error) bool { return false }

// Kill does nothing.
func (c *Confined) Kill() {}

// Alone returns false.
func (c *Confined) Alone() bool { return false }

// End does nothing.
func (c *Confined) End() {}

// Reached returns no limits.
func (c *Confined) Reached() []Violation { return nil }

// A Window looks into a room. It never exists here.
type Window struct{}

// Open always fails.
func (w *Window) Open(string, string) (*os.File, error) {
	return nil, tool.Errorf(tool.CodeUnsupported, "%w", thisMachine().broken)
}

// Close does nothing.
func (w *Window) Close() {}

// ForkPython returns no module.
func ForkPython() string { return "" }

// ForkScript refuses every profile.
func ForkScript(server, _ Profile) ([]byte, error) { return nil, thisMachine().cover(server) }
