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

// A kept line is read when somebody wants to see it: most are never looked at.
type kept struct {
	Line             // without its names
	event tool.Event // of a tool, whose data has the rest; its Kind is empty: there is none

	// The names are copied, since they may be cut out of a request that is larger than all that is kept. A place in the
	// ring is used for them again and again, so that a call which ends allocates nothing.
	names []byte
	ends  [5]int
}

// named lists the names in a line that a call brings with it.
func (l *Line) named() [5]*string {
	return [...]*string{&l.Call, &l.Tool, &l.Caller, &l.Session, &l.Run}
}

func (k *kept) size() int {
	return 384 + len(k.Message) + len(k.Fields) + len(k.event.Data) + len(k.names) // 384: about that of the struct
}

// reusable is how large the room for names may be that is left behind by a line.
const reusable = 256

func (k *kept) clear() {
	if *k = (kept{names: k.names[:0]}); cap(k.names) > reusable {
		k.names = nil
	}
}

// add keeps a line, and no longer the oldest where there are too many.
func (j *Journal) add(k kept) {
	j.mu.Lock()
	j.last++
	k.Seq = j.last
	if len(j.ring) < KeepLines {
		j.ring = append(j.ring, kept{})
	} else if j.last-j.gone > KeepLines {
		j.drop()
	}
	at := j.at(k.Seq)
	k.names = at.names
	for i, name := range k.named() {
		k.names = append(k.names, *name...)
		*name, k.ends[i] = "", len(k.names)
	}
	*at = k
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
	for _, k := range j.take(after, most) {
		if len(lines) == 0 {
			missed = k.Seq - after - 1
		}
		lines = append(lines, k.read())
	}
	return lines, missed
}

// take copies lines, so that they are read while nobody waits.
func (j *Journal) take(after int64, most int) (lines []kept) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for seq := max(after, j.gone) + 1; seq <= j.last && len(lines) < most; seq++ {
		k := *j.at(seq)
		names, from := string(k.names), 0
		for i, name := range k.named() {
			*name, from = names[from:k.ends[i]], k.ends[i]
		}
		lines = append(lines, k)
	}
	return lines
}

// read gives the line with what its event says.
func (k *kept) read() Line {
	l := k.Line
	switch k.event.Kind {
	case tool.KindLog:
		var data tool.Log
		_ = strictjson.Unmarshal(k.event.Data, &data) // what does not fit is left out
		l.Level, l.Message, l.Fields = level(data.Level), short(data.Message), data.Fields
	case tool.KindError:
		var data tool.ErrorEvent
		_ = strictjson.Unmarshal(k.event.Data, &data)
		l.Level, l.Message, l.Fields = "error", short(data.Code+": "+data.Message), data.Details
	}
	if len(l.Fields) > maxText {
		l.Fields = nil
	}
	return l
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
