// Package calls is the log of calls in memory, whichever door they came through. One stage writes it, and it has three
// views:
//
//   - the calls that run now, which their callers and operators can cancel by their ids;
//   - the last calls, for looking at them while they run and for a while after: the caller, the tool, the arguments, the
//     events, the outcome, how long each stage took and what the walls stopped. The audit log keeps every call for ever
//     and no values;
//   - the journal: how calls ended, what tools logged, and the lines of the process's own log.
//
// The stage is outside the redaction of what callers see, so no view keeps a secret. Calls, lines and bytes are bounded.
// Data is copied into memory that the package owns: arguments are often a slice of a request, and a hundred bytes of them
// would keep all of it alive, which no count of ours would see. The names of a call are copied once, for all views.
//
// A follower has only the number of the last line that it saw. So no call waits for followers, and they cost no memory,
// however slow they are: a follower that falls behind by more than is kept learns how many lines it missed.
package calls

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
	Off   bool `yaml:"off" doc:"keep no calls: they cannot be watched, and their arguments and events cannot be seen afterwards"`
	Calls int  `yaml:"calls" schema:"default=1000" doc:"calls that are kept after they ended; at most 100000"`
	Bytes int  `yaml:"bytes" kind:"bytes" schema:"default=16777216" doc:"bytes of all calls that are kept, also of those that run; at most 1 GiB"`
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

// Env is what the stage needs from other packages.
type Env struct {
	Redactor *secret.Redactor // knows the secrets that are never kept; nil means none
	// RedactByName returns JSON without the values of members whose names suggest secrets. Arguments are shown in that
	// form, and the output of our own tools, such as a token that is shown once, is kept only in that form. Nil means
	// unchanged.
	RedactByName func(json.RawMessage) json.RawMessage
	Node         func() string // returns the name of this node of a fleet, or ""; nil means no fleet
	// Elsewhere cancels a call at another hub of the fleet, and returns the error not_found if none has it; nil means no fleet.
	Elsewhere func(p tool.Principal, whose, id string) error
}

// A Log holds the calls of one process, and its journal.
type Log struct {
	tool.Changes // closed when there are new lines
	env          Env
	base         int64 // lines about calls up to this number belong to earlier processes
	watching     atomic.Int32

	mu      sync.Mutex
	o       Options
	running map[key]*entry
	ended   []*slot // the oldest first
	free    []*kept
	bytes   int // of all slots

	lines   ring[line]
	journal ring[written]
	size    int // bytes of the journal
}

// linesPerCall is how many lines are kept for followers, for each call that may be kept.
const linesPerCall = 8

// New makes an empty log, with the limits of a config that sets none.
func New(env Env) *Log {
	if env.RedactByName == nil {
		env.RedactByName = func(doc json.RawMessage) json.RawMessage { return doc }
	}
	if env.Node == nil {
		env.Node = func() string { return "" }
	}
	// Numbers continue from process to process, so that a follower that reconnects to a new process does not seem to
	// have seen everything: no process writes a thousand lines in every millisecond of its life.
	l := &Log{env: env, base: time.Now().UnixMilli() * 1000, running: map[key]*entry{}}
	l.lines.last = l.base
	l.Limit(Options{})
	return l
}

// Read reads the limits of a config; apply switches to them.
func (l *Log) Read(cfg *config.Config) (apply func(), err error) {
	var o Options
	if err := cfg.Section(Section().Name).Decode(&o); err != nil {
		return nil, err
	}
	return func() { l.Limit(o) }, nil
}

// Limit switches to other limits, and drops what exceeds them. The journal has limits of its own.
func (l *Log) Limit(o Options) {
	o.Calls, o.Bytes = cmp.Or(o.Calls, 1000), cmp.Or(o.Bytes, 16<<20)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.o == o {
		return
	}
	at := l.lines.last
	l.o, l.lines = o, ring[line]{first: at, gone: at, last: at}
	for len(l.ended) > 0 && (o.Off || len(l.ended) > o.Calls || l.bytes > o.Bytes) {
		l.drop()
	}
}

// Watching notes that a client watches calls: until done is called, the times of all stages are recorded.
func (l *Log) Watching() (done func()) {
	l.watching.Add(1)
	return sync.OnceFunc(func() { l.watching.Add(-1) })
}

// A ring holds the last items of a numbered series.
type ring[T any] struct {
	items []T   // item n is at (n-first-1) % len(items)
	first int64 // items up to this number were kept in another ring
	gone  int64 // items up to this number are no longer kept
	last  int64 // the number of the last item
}

func (r *ring[T]) at(n int64) *T { return &r.items[(n-r.first-1)%int64(len(r.items))] }

// add adds an item. A full ring must have dropped one before.
func (r *ring[T]) add(item T, most int) {
	if r.last++; len(r.items) < most {
		r.items = append(r.items, item)
		return
	}
	*r.at(r.last) = item
}

// full reports whether as many items are kept as may be.
func (r *ring[T]) full(most int) bool { return r.last-r.gone == int64(most) }

// A line reports that something happened to a call: its event with that number, or one of the two below. The details are
// in the slot, as long as the call is kept.
type line struct {
	of    *slot
	event int64
}

const (
	began = -2
	over  = -1
)

// tell adds a line. The caller holds mu.
func (l *Log) tell(s *slot, event int64) int64 {
	most := l.o.Calls * linesPerCall
	if l.lines.full(most) {
		l.lines.gone++
	}
	l.lines.add(line{s, event}, most)
	return l.lines.last
}
