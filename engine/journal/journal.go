// Package journal keeps the latest events of this process for followers: the lines of its own log, what tools log and
// report while they run, and a line for the end of each call. It is only in memory, and bounded.
//
// There is one list of lines, and a follower has only the number of the last line that it saw. So a call that writes a
// line never waits for a follower, and followers cost no memory, however slow they are: a follower that falls behind by
// more than is kept learns how many lines it missed.
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

// KeepLines is how many lines are kept; the others limit their bytes, and the text of one line.
const (
	KeepLines = 4096
	keepBytes = 4 << 20
	maxText   = 2000
)

// An Origin is the kind of source of a line.
type Origin string

// The origins.
const (
	Server Origin = "server" // this process
	Tool   Origin = "tool"   // a tool, while a call of it ran
	Call   Origin = "call"   // a call has ended
)

// A Line is one event.
type Line struct {
	Seq     int64           `json:"seq"` // 1, 2, 3 ... since the start of the process
	Time    time.Time       `json:"time"`
	From    Origin          `json:"from"`
	Level   string          `json:"level"` // debug, info, warn, error
	Message string          `json:"message,omitzero"`
	Fields  json.RawMessage `json:"fields,omitzero"` // what the process or the tool added to the message

	// Set for a call.
	Call    string `json:"call,omitzero"`
	Tool    string `json:"tool,omitzero"`
	Caller  string `json:"caller,omitzero"`
	Door    string `json:"door,omitzero"`
	Session string `json:"session,omitzero"`
	Run     string `json:"run,omitzero"`

	// Set for the end of a call.
	Outcome tool.Outcome `json:"outcome,omitzero"`
	Code    tool.Code    `json:"code,omitzero"`
	Millis  float64      `json:"duration_ms,omitzero"`
}

// A Journal is the lines of one process. The zero value is empty and ready for use.
type Journal struct {
	tool.Changes // closed when there are new lines

	mu    sync.Mutex
	ring  []kept // line n is at (n-1) % KeepLines
	gone  int64  // lines up to this number are no longer kept
	last  int64  // the number of the last line
	bytes int
}

// A kept is a line in little memory: there is one for every call, most are never read, and each place in the ring is out
// of the processor's cache when its turn comes again. Its texts are copied, because they may be slices of a request that
// is larger than everything kept. The buffer for them is reused, so that the end of a call allocates nothing.
type kept struct {
	at     int64 // in nanoseconds
	millis float64
	texts  []byte
	ends   [9]uint16       // of each text
	more   json.RawMessage // the data of an event, or the fields of the line
	event  tool.Kind       // of a tool's event, whose data is parsed when the line is read; empty if it is not an event
	from   uint8           // index in origins
	level  uint8           // index in Levels
}

// written lists the texts of a line that are kept unchanged. Together they fit into a uint16: see short.
func (l *Line) written() [9]*string {
	return [...]*string{
		&l.Call, &l.Tool, &l.Caller, &l.Session, &l.Run, &l.Door, &l.Message, (*string)(&l.Outcome), (*string)(&l.Code),
	}
}

func origins() []Origin { return []Origin{Server, Tool, Call} }

// keep fills an empty place.
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

func (k *kept) size() int { return 112 + cap(k.texts) + len(k.more) } // 112 is roughly the size of the struct

// reusable is the largest text buffer that is kept for the next line.
const reusable = 512

func (k *kept) clear() {
	if *k = (kept{texts: k.texts[:0]}); cap(k.texts) > reusable {
		k.texts = nil
	}
}

// add keeps a line, and drops the oldest if there are too many. For an event of a tool, the line has only the call; the
// rest is in ev.
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

// at returns where a line is kept.
func (j *Journal) at(seq int64) *kept { return &j.ring[(seq-1)%KeepLines] }

// Last returns the number of the last line.
func (j *Journal) Last() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Next returns at most most lines after the given number, the oldest first, and how many in between are no longer kept.
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

// take copies lines, so that they can be parsed without the lock, and returns the number of the first.
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

// read returns the line, with the content of its event.
func (k *kept) read(seq int64) Line {
	l := Line{Seq: seq, Time: time.Unix(0, k.at), Millis: k.millis, From: origins()[k.from], Level: Levels()[k.level]}
	from := uint16(0)
	for i, text := range l.written() {
		*text, from = string(k.texts[from:k.ends[i]]), k.ends[i]
	}
	l.tell(k.event, k.more)
	return l
}

// tell adds the content of an event, or the fields if it is not an event.
func (l *Line) tell(event tool.Kind, more json.RawMessage) {
	switch event {
	case "":
		l.Fields = more
	case tool.KindLog:
		var data tool.Log
		_ = strictjson.Unmarshal(more, &data) // fields that do not fit are dropped
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

// Levels lists the levels, the least severe first.
func Levels() []string { return []string{"debug", "info", "warn", "error"} }

// level returns one of the four levels: tools choose their own words.
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
