package calls

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The limits of one call. Longer values are cut; see Cut.
const (
	maxName   = 500
	maxDoc    = 64 << 10 // of arguments, and of an output
	maxError  = 16 << 10
	maxEvent  = 16 << 10
	maxEvents = 500       // the last ones are kept
	maxTold   = 128 << 10 // their bytes
	maxSteps  = 64
	maxBlock  = 64
)

// A slot refers to a kept call, which is nil once it was dropped: lines may outlive the calls that they are about.
type slot struct{ *kept }

// A kept call is read and written under the lock of Log.
type kept struct {
	seq     [2]int64    // the lines for its start and its end; 0 if not yet
	spec    *tool.Spec  // nil if there is no such tool
	record  tool.Record // as far as it is known here
	summary string
	docs    [3]doc
	events  []Event // without the oldest if there were too many
	told    int     // bytes of their data
	omitted int64   // events that are no longer kept
	blocked []tool.Blocked
	steps   []step
	size    int // of all of this, roughly
}

// A doc is JSON of a call, or the beginning of it.
type doc struct {
	text  []byte
	whole int // bytes before it was cut
}

const (
	docArgs = iota
	docOutput
	docError
)

// A step is a stage that the call has entered.
type step struct {
	stage       string
	start, took time.Duration // took is negative while the call is inside
}

// The sizes of the structs, roughly, with their entries in lists.
const (
	slotSize  = 1200
	eventSize = 200
	stepSize  = 50
)

// grow counts memory of a call. The caller holds mu.
func (l *Log) grow(s *slot, bytes int) {
	s.size += bytes
	l.bytes += bytes
}

// room makes room for more bytes by dropping the oldest calls. It returns false if the rest all run. The caller holds
// mu.
func (l *Log) room(n int) bool {
	for l.bytes+n > l.o.Bytes && len(l.ended) > 0 {
		l.drop()
	}
	return l.bytes+n <= l.o.Bytes
}

// drop forgets the oldest call that has ended. The caller holds mu.
func (l *Log) drop() {
	s := l.ended[0]
	l.ended[0] = nil
	l.ended = l.ended[1:]
	l.release(s)
}

// take returns memory for a call, which another call may have used before: so most calls allocate next to nothing here.
func (l *Log) take() *kept {
	n := len(l.free)
	if n == 0 {
		return new(kept)
	}
	k := l.free[n-1]
	l.free = l.free[:n-1]
	return k
}

// release takes the memory of a call back, but no large buffers.
func (l *Log) release(s *slot) {
	l.bytes -= s.size
	if len(l.free) < maxFree {
		next := kept{steps: reusable(s.steps)}
		for i, d := range s.docs {
			next.docs[i].text = reusable(d.text)
		}
		*s.kept = next
		l.free = append(l.free, s.kept)
	}
	s.kept = nil
}

// How many calls' memory waits for other calls, and how many items of a buffer.
const (
	maxFree     = 64
	maxReusable = 1 << 10
)

func reusable[T any](buffer []T) []T {
	if cap(buffer) > maxReusable {
		return nil
	}
	return buffer[:0]
}

// put keeps JSON of a call, at most most bytes of it, and none if there is no room. The caller holds mu.
func (l *Log) put(s *slot, which int, text []byte, most int) {
	some := text[:min(len(text), most)]
	if !l.room(len(some)) {
		some = nil
	}
	d := &s.docs[which]
	d.text, d.whole = append(d.text, some...), len(text)
	l.grow(s, cap(d.text))
}

// say keeps an event, without its data if there is no room for it. The caller holds mu.
func (l *Log) say(s *slot, ev tool.Event, whole int) {
	for len(s.events) == maxEvents || s.told+len(ev.Data) > maxTold {
		l.forget(s, len(s.events)/2+1)
	}
	if !l.room(len(ev.Data)) {
		ev.Data = nil
	}
	one := Event{Seq: int64(ev.Seq), Time: ev.Time, Kind: ev.Kind, Data: ev.Data}
	if len(ev.Data) < whole {
		one.Data, one.Cut = beginning(ev.Data), whole
	}
	s.told += len(one.Data)
	l.grow(s, eventSize+len(one.Data))
	s.events = append(s.events, one)
	l.tell(s, s.omitted+int64(len(s.events))-1)
}

// forget drops the oldest events: for a call with many events, the latest matter most.
func (l *Log) forget(s *slot, n int) {
	for _, ev := range s.events[:n] {
		s.told -= len(ev.Data)
		l.grow(s, -eventSize-len(ev.Data))
	}
	s.events = slices.Delete(s.events, 0, n)
	s.omitted += int64(n)
}

// block keeps what a wall stopped, once. The caller holds mu.
func (l *Log) block(s *slot, b tool.Blocked) {
	if len(s.blocked) < maxBlock && !slices.Contains(s.blocked, b) {
		s.blocked = append(s.blocked, b)
		l.grow(s, 64+len(b.Target))
	}
}

// cut shortens a text that is too long to be kept.
func cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// beginning returns what is left of cut JSON, as a string.
func beginning(doc []byte) json.RawMessage {
	return strictjson.Quote(strings.ToValidUTF8(string(doc), ""))
}

// copyTexts copies texts into one piece of memory, and returns its size.
func copyTexts(texts ...*string) int {
	var all strings.Builder
	size := 0
	for _, text := range texts {
		size += len(*text)
	}
	all.Grow(size)
	for _, text := range texts {
		from := all.Len()
		all.WriteString(*text)
		*text = all.String()[from:]
	}
	return size
}
