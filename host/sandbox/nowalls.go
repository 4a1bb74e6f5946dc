//go:build !linux

package sandbox

import (
	"errors"
	"os"
	"runtime"

	"toolpost/tool"
)

// On a system without these walls every profile is refused: a source runs there only where its config says
// `walls: {off: true}`. What is here answers for the files that build walls, so that nobody above has to ask.

// A machine is what can be built here: nothing.
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

// Probe says what was found.
func Probe() []Layer { return thisMachine().layers() }

// Main is for programs that fork confined children.
func Main() (handled bool) { return false }

// Keep keeps nothing.
func Keep() (release func()) { return func() {} }

// Leave has nothing to end.
func Leave() {}

// A Confined is a started child: there is none.
type Confined struct {
	Pid, Init int
	Layers    []string
	Window    *Window
}

// Start refuses.
func Start(s Spawn) (*Confined, error) { return nil, thisMachine().cover(s.Profile) }

// Moved reports that nothing moved.
func Moved(error) bool { return false }

// Kill ends nothing.
func (c *Confined) Kill() {}

// Alone knows nothing.
func (c *Confined) Alone() bool { return false }

// End ends nothing.
func (c *Confined) End() {}

// Reached lists no limit.
func (c *Confined) Reached() []Violation { return nil }

// A Window looks into a room: there is none.
type Window struct{}

// Open refuses.
func (w *Window) Open(string, string) (*os.File, error) {
	return nil, tool.Errorf(tool.CodeUnsupported, "%w", thisMachine().broken)
}

// Close does nothing.
func (w *Window) Close() {}

// ForkPython is a module for rooms.
func ForkPython() string { return "" }

// ForkScript refuses.
func ForkScript(server, _ Profile) ([]byte, error) { return nil, thisMachine().cover(server) }
