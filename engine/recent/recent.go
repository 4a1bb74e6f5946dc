// Package recent keeps the running calls and the last ones that ran, only in memory: the caller, the tool, the
// arguments, the events, the outcome, how long each stage took and what the walls stopped. The audit log keeps every
// call for ever and no values; this package is for looking at a call now.
//
// Calls and bytes are bounded, of each call and of all. Data is copied into memory that the package owns and reuses for
// later calls: arguments are often a slice of a request, and a hundred bytes of them would keep all of it alive, which
// no count of ours would see. So a call allocates next to nothing here either.
//
// As in a journal, a follower has only the number of the last line that it saw: no call waits for followers.
package recent

import (
	"cmp"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/tool"
)

// Options is the section limits.recent of a config. It has useful zero values.
type Options struct {
	Off   bool `yaml:"off" doc:"keep no calls: nobody can watch them or look at their arguments and events afterwards"`
	Calls int  `yaml:"calls" schema:"default=1000" doc:"calls that are kept after they ended; at most 100000"`
	Bytes int  `yaml:"bytes" schema:"default=16777216" doc:"bytes of all calls that are kept, also of those that run; at most 1 GiB"`
}

// The largest values that a config may set.
const (
	maxCalls = 100_000
	maxBytes = 1 << 30
)

// Validate checks the options of a config.
func (o *Options) Validate() error {
	switch {
	case o.Calls < 0 || o.Bytes < 0:
		return errors.New("calls and bytes cannot be negative; `off: true` keeps no calls")
	case o.Calls > maxCalls || o.Bytes > maxBytes:
		return errors.New("at most 100000 calls and 1 GiB (1073741824 bytes) are kept")
	}
	return nil
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{
		Name: "limits.recent", Options: Options{},
		Doc: "how many of the last calls are kept in memory, for those who watch calls or look at one",
	}
}

// The limits of one call. Longer values are cut; see Cut.
const (
	maxName   = 500
	maxArgs   = 64 << 10
	maxOutput = 64 << 10
	maxError  = 16 << 10
	maxEvent  = 16 << 10
	maxEvents = 500       // the last ones are kept
	maxTold   = 128 << 10 // their bytes
	maxSteps  = 64
	maxBlock  = 64
)

// linesPerCall is how many lines are kept for followers, for each call that may be kept.
const linesPerCall = 8

// Calls holds the calls of one process.
type Calls struct {
	tool.Changes // closed when there are new lines
	env          Env
	watching     atomic.Int32

	mu      sync.Mutex
	o       Options
	made    uint64  // calls that were given a slot
	running []*slot // in no order
	ended   []*slot // the oldest first
	free    []*slot
	bytes   int

	lines []line // line n is at (n-first-1) % len(lines)
	base  int64  // lines up to this number belong to earlier processes
	first int64  // lines up to this number were kept under other limits
	gone  int64  // lines up to this number are no longer kept
	last  int64  // the number of the last line
}

// Env is what the stage needs from other packages.
type Env struct {
	Redactor *secret.Redactor // knows the secrets that are never kept; nil means none
	// RedactByName returns JSON without the values of members whose names suggest secrets. Arguments are shown in that
	// form, and the output of our own tools, such as a token that is shown once, is kept only in that form. Nil means
	// unchanged.
	RedactByName func(json.RawMessage) json.RawMessage
}

// New makes an empty set.
func New(o Options, env Env) *Calls {
	if env.RedactByName == nil {
		env.RedactByName = func(doc json.RawMessage) json.RawMessage { return doc }
	}
	c := &Calls{env: env}
	// Numbers continue from process to process, so that a follower that reconnects to a new process does not seem to
	// have seen everything: no process writes a thousand lines in every millisecond of its life.
	c.base = time.Now().UnixMilli() * 1000
	c.first, c.gone, c.last = c.base, c.base, c.base
	c.set(o)
	return c
}

// Read reads the limits of a config; apply switches to them.
func (c *Calls) Read(cfg *config.Config) (apply func(), err error) {
	var o Options
	if err := cfg.Section(Section().Name).Decode(&o); err != nil {
		return nil, err
	}
	return func() { c.set(o) }, nil
}

// set switches to other limits, and drops what exceeds them.
func (c *Calls) set(o Options) {
	o.Calls, o.Bytes = cmp.Or(o.Calls, 1000), cmp.Or(o.Bytes, 16<<20)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o == o {
		return
	}
	c.o, c.lines, c.free, c.first, c.gone = o, nil, nil, c.last, c.last
	for len(c.ended) > 0 && (o.Off || len(c.ended) > o.Calls || c.bytes > o.Bytes) {
		c.drop()
	}
}

// Watching notes that a client watches calls: until done is called, the times of all stages are recorded.
func (c *Calls) Watching() (done func()) {
	c.watching.Add(1)
	return sync.OnceFunc(func() { c.watching.Add(-1) })
}

// A line reports that something happened to a call. The details are in the slot, as long as it holds that call.
type line struct {
	of    *slot
	call  uint64
	what  what
	event uint64
}

type what uint8

const (
	began what = iota
	told
	over
)

// tell adds a line. The caller holds mu.
func (c *Calls) tell(s *slot, w what, event uint64) int64 {
	c.last++
	l := line{s, s.call, w, event}
	if len(c.lines) < c.o.Calls*linesPerCall {
		c.lines = append(c.lines, l)
		return c.last
	}
	*c.at(c.last) = l
	c.gone++
	return c.last
}

// at returns where a line is kept.
func (c *Calls) at(seq int64) *line { return &c.lines[(seq-c.first-1)%int64(len(c.lines))] }

// room makes room for more bytes by dropping the oldest calls. It returns false if the rest all run. The caller holds
// mu.
func (c *Calls) room(n int) bool {
	for c.bytes+n > c.o.Bytes {
		if len(c.ended) == 0 {
			return false
		}
		c.drop()
	}
	return true
}

// start adds a call to the running ones, and stop removes it. The caller holds mu.
func (c *Calls) start(s *slot) {
	s.place = len(c.running)
	c.running = append(c.running, s)
}

func (c *Calls) stop(s *slot) {
	last := len(c.running) - 1
	c.running[s.place] = c.running[last]
	c.running[s.place].place = s.place
	c.running[last] = nil
	c.running = c.running[:last]
}

// drop forgets the oldest call that has ended. The caller holds mu.
func (c *Calls) drop() {
	s := c.ended[0]
	c.ended[0] = nil
	c.ended = c.ended[1:]
	c.release(s)
}

// release takes a slot back. Its number no longer belongs to a call, so lines about it are not found.
func (c *Calls) release(s *slot) {
	c.bytes -= s.size
	s.clear()
	if len(c.free) < min(c.o.Calls, 64) { // a dropped slot makes room for a new call
		c.free = append(c.free, s)
	}
}

// Bytes returns roughly how many bytes are kept.
func (c *Calls) Bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}
