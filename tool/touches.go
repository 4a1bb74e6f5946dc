package tool

import "slices"

// Touches says what a call is going to touch, as far as its arguments tell before it runs. Paths are
// absolute and clean; links in them are not resolved.
type Touches struct {
	Reads    []string   `json:"reads,omitempty"`
	Writes   []string   `json:"writes,omitempty"`   // made, changed, moved or deleted
	Commands [][]string `json:"commands,omitempty"` // each a program and its arguments, byte for byte as they would run

	// Where a relative path is in none of these roots, but might be. Policy judges it there too, so that a caller does
	// not learn what is in a closed folder; no record names it.
	MayRead  []string `json:"-"`
	MayWrite []string `json:"-"`
}

// Judged is what policy judges: also what may be touched.
func (t Touches) Judged() Touches {
	return Touches{Reads: slices.Concat(t.Reads, t.MayRead), Writes: slices.Concat(t.Writes, t.MayWrite), Commands: t.Commands}
}

// None reports whether nothing is touched.
func (t Touches) None() bool { return len(t.Reads)+len(t.Writes)+len(t.Commands) == 0 }

// A Toucher is a runner that can tell. What it tells is what policy judges, so it must come from the
// same reading of the arguments as what runs.
type Toucher interface {
	// Touches reads the arguments and changes nothing. An error refuses the call. Where it depends on what is there,
	// it comes with what the arguments name: policy judges that first, and so nobody learns more than policy lets them.
	Touches(c *Call) (Touches, error)
}

// A Scope is what policy leaves to a call of the files below its roots. A runner asks it for every file
// that it comes to, by the name that the file really has: a walk finds files that no argument named, and
// a link with one name leads to a file with another.
type Scope interface {
	// Path gives nil where the file may be read (or written), else an access_denied. It is quick, and many
	// goroutines may ask.
	Path(abs string, write bool) error
}
