package tool

import "slices"

// Touches lists what a call is going to touch, as far as its arguments show before it runs. Paths are absolute and
// clean; links in them are not resolved.
type Touches struct {
	Reads    []string   `json:"reads,omitempty"`
	Writes   []string   `json:"writes,omitempty"`   // created, changed, moved or deleted
	Commands [][]string `json:"commands,omitempty"` // each a program and its arguments, byte for byte as they would run

	// The paths of a relative argument in other roots that it may refer to. Policy judges those too, so that a caller
	// does not learn what is in a closed folder; no record names them.
	MayRead  []string `json:"-"`
	MayWrite []string `json:"-"`
}

// Judged returns what policy judges, which includes what may be touched.
func (t Touches) Judged() Touches {
	return Touches{Reads: slices.Concat(t.Reads, t.MayRead), Writes: slices.Concat(t.Writes, t.MayWrite), Commands: t.Commands}
}

// None reports whether nothing is touched.
func (t Touches) None() bool { return len(t.Reads)+len(t.Writes)+len(t.Commands) == 0 }

// A Toucher is a runner that knows what a call will touch. Policy judges its answer, so the runner must derive it from
// the same reading of the arguments as what runs.
type Toucher interface {
	// Touches reads the arguments and changes nothing. An error refuses the call. If the error depends on what exists,
	// it comes with the touches that the arguments name: policy judges those first, so a caller learns no more than
	// policy allows.
	Touches(c *Call) (Touches, error)
}

// A Previewer is a Toucher that can read files as the caller of a call could.
type Previewer interface {
	// Preview returns what is in a file of the call's touches, for people who look at the call before it runs: within the
	// call's scope, and not more than limit bytes. The error is not_found if there is no such file.
	Preview(c *Call, path string, limit int64) ([]byte, error)
}

// A Scope is the part of the files below its roots that policy leaves to a call. A runner asks it for every file that
// it reaches, by the file's real name: a walk finds files that no argument named, and a link with one name leads to a
// file with another.
type Scope interface {
	// Path returns nil if the file may be read (or written), else an access_denied. It is quick and safe for concurrent
	// use.
	Path(abs string, write bool) error
}
