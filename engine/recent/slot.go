package recent

import (
	"strings"
	"time"

	"toolpost/tool"
)

// A slot holds one call at a time. All of it is read and written under the lock of Calls.
type slot struct {
	call    uint64 // the number of its call; 0 if it is free
	place   int    // index in Calls.running
	began   time.Time
	took    time.Duration // set when it has ended
	seq     [2]int64      // the lines for its start and its end; 0 if not yet
	spec    *tool.Spec    // nil if there is no such tool
	record  *tool.Record  // of a running call, written by its stages; nil without records
	door    string
	known   known
	outcome tool.Outcome
	ok      bool // there is an output
	size    int  // as it was counted

	// Names, arguments and outcome, one after the other, each cut if it is too long.
	head  []byte
	parts [parts]part

	// Its events, without the oldest if there were too many.
	events  []event
	data    []byte
	omitted uint64 // events that are no longer kept
	blocked []tool.Blocked

	steps []step
}

// known is what the record adds.
type known struct {
	decision, rule, walls string
	tier                  int
	replay, cached, dry   bool
}

// A part is the place of a text or JSON of a call. Every call fills a whole slot that is not in the processor's cache:
// small numbers make it a quarter smaller.
type part struct{ from, to, whole uint32 }

const (
	partCall = iota
	partTrace
	partTool
	partCaller
	partSession
	partRun
	partParent
	partKey
	partCode
	partReason
	partSummary
	partArgs
	partOutput
	partError
	parts
)

type event struct {
	seq      uint64
	time     time.Time
	kind     tool.Kind
	from, to int
	whole    int // bytes before it was cut
}

// A step is a stage that the call has entered.
type step struct {
	stage       string
	start, took time.Duration // took is negative while the call is inside
}

// The memory that a slot keeps for the next call; larger buffers are freed.
const (
	reusableText  = 1 << 10
	reusableItems = 32
)

func (s *slot) clear() {
	keep := slot{head: s.head[:0], data: s.data[:0], events: s.events[:0], steps: s.steps[:0]}
	if cap(keep.head) > reusableText {
		keep.head = nil
	}
	if cap(keep.data) > reusableText {
		keep.data = nil
	}
	if cap(keep.events) > reusableItems {
		keep.events = nil
	}
	if cap(keep.steps) > reusableItems {
		keep.steps = nil
	}
	*s = keep
}

// slotSize is roughly the size of the struct, with its entries in lists.
const slotSize = 600

// measure counts the memory of the slot, and returns the difference for the caller to add.
func (s *slot) measure() (more int) {
	was := s.size
	s.size = slotSize + cap(s.head) + cap(s.data) + 72*cap(s.events) + 40*cap(s.steps)
	for _, b := range s.blocked {
		s.size += 64 + len(b.Target)
	}
	return s.size - was
}

// put keeps a part of a call, at most most bytes of it.
func put[T ~[]byte | string](s *slot, which int, text T, most int) {
	from := len(s.head)
	s.head = append(s.head, text[:min(len(text), most)]...)
	s.parts[which] = part{uint32(from), uint32(len(s.head)), uint32(len(text))}
}

// is reports whether a part is this text.
func (s *slot) is(which int, text string) bool {
	p := s.parts[which]
	return string(s.head[p.from:p.to]) == text
}

// text returns a copy of a part.
func (s *slot) text(which int) string {
	p := s.parts[which]
	text := string(s.head[p.from:p.to])
	if p.whole > p.to-p.from {
		text = strings.ToValidUTF8(text, "") + "…"
	}
	return text
}

// tell keeps an event, without its data if there is no room for it.
func (s *slot) tell(ev tool.Event, room bool) {
	for len(s.events) == maxEvents || len(s.data)+min(len(ev.Data), maxEvent) > maxTold {
		s.forget(len(s.events)/2 + 1)
	}
	from := len(s.data)
	if room {
		s.data = append(s.data, ev.Data[:min(len(ev.Data), maxEvent)]...)
	}
	s.events = append(s.events, event{ev.Seq, ev.Time, ev.Kind, from, len(s.data), len(ev.Data)})
}

// forget drops the oldest events: for a call with many events, the latest matter most.
func (s *slot) forget(n int) {
	from := len(s.data)
	if n < len(s.events) {
		from = s.events[n].from
	}
	s.data = append(s.data[:0], s.data[from:]...)
	s.events = append(s.events[:0], s.events[n:]...)
	for i := range s.events {
		s.events[i].from -= from
		s.events[i].to -= from
	}
	s.omitted += uint64(n)
}
