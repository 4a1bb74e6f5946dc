// Package journal keeps what happened last in this program, for those who follow it: the lines of its own log, what
// tools log and report while they run, and a line for the end of each call. It is in memory alone, and bounded.
//
// There is one list of lines, and a follower has nothing but the number of the last line that it saw. So a call that
// tells something never waits for a follower, and followers cost no memory, however slow they are: one that falls
// behind by more than is kept learns how many lines it missed.
package journal

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// KeepLines is how many lines are kept; the others bound their bytes, and what one line says.
const (
	KeepLines = 4096
	keepBytes = 4 << 20
	maxText   = 2000
)

// An Origin says whose line it is.
type Origin string

// The origins.
const (
	Server Origin = "server" // this program
	Tool   Origin = "tool"   // a tool, while a call of it ran
	Call   Origin = "call"   // a call has ended
)

// A Line is one thing that happened.
type Line struct {
	Seq     int64           `json:"seq"` // 1, 2, 3 ... since the start of the program
	Time    time.Time       `json:"time"`
	From    Origin          `json:"from"`
	Level   string          `json:"level"` // debug, info, warn, error
	Message string          `json:"message,omitzero"`
	Fields  json.RawMessage `json:"fields,omitzero"` // what the program or the tool said beside the message

	// Of a call.
	Call    string `json:"call,omitzero"`
	Tool    string `json:"tool,omitzero"`
	Caller  string `json:"caller,omitzero"`
	Door    string `json:"door,omitzero"`
	Session string `json:"session,omitzero"`
	Run     string `json:"run,omitzero"`

	// Of its end.
	Outcome tool.Outcome `json:"outcome,omitzero"`
	Code    tool.Code    `json:"code,omitzero"`
	Millis  float64      `json:"duration_ms,omitzero"`
}

// A Journal is the lines of one program. The zero value has none and is ready for use.
type Journal struct {
	tool.Changes // closed when there are new lines

	mu    sync.Mutex
	ring  []kept // line n is at (n-1) % KeepLines
	gone  int64  // lines up to this number are no longer kept
	last  int64  // the number of the last line
	bytes int
}

// A kept line is a line in little memory: there is one for every call, most are never looked at, and each place in the
// ring is cold when its turn comes again. Its texts are copied, since they may be cut out of a request that is larger
// than all that is kept; the place is used for them again and again, so that a call which ends allocates nothing.
type kept struct {
	at     int64 // in nanoseconds
	millis float64
	texts  []byte
	ends   [9]uint16       // of each text
	more   json.RawMessage // the data of an event, or the fields of the line
	event  tool.Kind       // of a tool, whose data has the rest, to be read when somebody wants to see it; empty: it is none
	from   uint8           // among origins
	level  uint8           // among Levels
}

// written lists the texts of a line that are kept as they are. All of them together fit into a uint16: see short.
func (l *Line) written() [9]*string {
	return [...]*string{
		&l.Call, &l.Tool, &l.Caller, &l.Session, &l.Run, &l.Door, &l.Message, (*string)(&l.Outcome), (*string)(&l.Code),
	}
}

func origins() []Origin { return []Origin{Server, Tool, Call} }

// keep fills a place that is empty.
func (k *kept) keep(l *Line, ev *tool.Event) {
	k.at, k.millis, k.more, k.event = l.Time.UnixNano(), l.Millis, l.Fields, ev.Kind
	if ev.Kind != "" {
		k.more = ev.Data
	}
	k.from, k.level = uint8(slices.Index(origins(), l.From)), uint8(max(0, slices.Index(Levels(), l.Level)))
	for i, text := range l.written() {
		k.texts = append(k.texts, *text...)
		k.ends[i] = uint16(len(k.texts))
	}
}

func (k *kept) size() int { return 112 + cap(k.texts) + len(k.more) } // 112: about that of the struct

// reusable is how large the room for texts may be that is left behind by a line.
const reusable = 512

func (k *kept) clear() {
	if *k = (kept{texts: k.texts[:0]}); cap(k.texts) > reusable {
		k.texts = nil
	}
}

// add keeps a line, and no longer the oldest where there are too many. Of an event of a tool, where there is one, the
// line has no more than whose it is.
func (j *Journal) add(l *Line, ev *tool.Event) {
	j.mu.Lock()
	j.last++
	if len(j.ring) < KeepLines {
		j.ring = append(j.ring, kept{})
	} else if j.last-j.gone > KeepLines {
		j.drop()
	}
	k := j.at(j.last)
	k.keep(l, ev)
	for j.bytes += k.size(); j.bytes > keepBytes; {
		j.drop()
	}
	j.mu.Unlock()
	j.Tell()
}

// drop forgets the oldest line.
func (j *Journal) drop() {
	j.gone++
	oldest := j.at(j.gone)
	j.bytes -= oldest.size()
	oldest.clear()
}

// at is where a line is kept.
func (j *Journal) at(seq int64) *kept { return &j.ring[(seq-1)%KeepLines] }

// Last is the number of the last line.
func (j *Journal) Last() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Next gives the lines behind the one with a number, the oldest first, at most so many, and how many that came in
// between are no longer kept.
func (j *Journal) Next(after int64, most int) (lines []Line, missed int64) {
	some, first := j.take(after, most)
	for i := range some {
		lines = append(lines, some[i].read(first+int64(i)))
	}
	if len(lines) > 0 {
		missed = first - after - 1
	}
	return lines, missed
}

// take copies lines, so that they are read while nobody waits, and gives the number of the first.
func (j *Journal) take(after int64, most int) (lines []kept, first int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first = max(after, j.gone) + 1
	for seq := first; seq <= j.last && len(lines) < most; seq++ {
		k := *j.at(seq)
		k.texts = slices.Clone(k.texts)
		lines = append(lines, k)
	}
	return lines, first
}

// read gives the line, with what its event says.
func (k *kept) read(seq int64) Line {
	l := Line{Seq: seq, Time: time.Unix(0, k.at), Millis: k.millis, From: origins()[k.from], Level: Levels()[k.level]}
	from := uint16(0)
	for i, text := range l.written() {
		*text, from = string(k.texts[from:k.ends[i]]), k.ends[i]
	}
	l.tell(k.event, k.more)
	return l
}

// tell adds what an event says, or, where there is none, the fields.
func (l *Line) tell(event tool.Kind, more json.RawMessage) {
	switch event {
	case "":
		l.Fields = more
	case tool.KindLog:
		var data tool.Log
		_ = strictjson.Unmarshal(more, &data) // what does not fit is left out
		l.Level, l.Message, l.Fields = level(data.Level), short(data.Message), data.Fields
	case tool.KindError:
		var data tool.ErrorEvent
		_ = strictjson.Unmarshal(more, &data)
		l.Level, l.Message, l.Fields = "error", short(data.Code+": "+data.Message), data.Details
	}
	if len(l.Fields) > maxText {
		l.Fields = nil
	}
}

// Levels lists the levels, the least grave first.
func Levels() []string { return []string{"debug", "info", "warn", "error"} }

// level gives one of the four: tools choose their words themselves.
func level(text string) string {
	if slices.Contains(Levels(), text) {
		return text
	}
	return "info"
}

func short(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
