// Package logs has the tool watchLogs, which shows what happens in this program, and what happened recently. It covers every
// caller, so only operators may use it.
package logs

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/fleet"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options of the tool.
type Options struct {
	Log       *calls.Log
	Followers *follow.Followers
	Fleet     fleet.In
}

// New makes the tool.
func New(o Options) *define.Set {
	return define.NewSet(define.New(tool.Spec{
		Name: "watchLogs", Effects: tool.Effects{Reads: true}, Timeout: follow.Timeout,
		Description: "Gives the last lines of the program's log, what tools logged, and how calls ended, as log events: " +
			"the line itself is in their fields. With follow, also those to come, for an hour at the most. For operators.",
	}, define.ForOperators("see the log", define.Following(o.Followers, o.watch))))
}

// Args are the arguments of watchLogs.
type Args struct {
	Filter
	Level  string `json:"level,omitzero" schema:"enum=debug|info|warn|error" doc:"lowest level to show; default: info"`
	Last   int    `json:"last,omitzero" schema:"minimum=0 maximum=4096" doc:"number of past lines to start with; default: none"`
	Follow bool   `json:"follow,omitzero" doc:"continue with new lines"`
	After  *int64 `json:"after,omitzero" schema:"minimum=0" doc:"continue after this line: the next of the previous call; last is then ignored"`
	// Others is a map of small numbers.
	Others map[string]int64 `json:"others,omitzero" doc:"in a fleet, with after: the others of the previous call"`
}

// A Filter selects lines. With any of these, lines that are not about a call are left out.
type Filter struct {
	Tool    string       `json:"tool,omitzero" doc:"only lines about calls of this tool"`
	Caller  string       `json:"caller,omitzero" doc:"only lines about calls of this caller"`
	Session string       `json:"session,omitzero" doc:"only lines about calls of this session"`
	Run     string       `json:"run,omitzero" doc:"only lines about calls of this run of an agent"`
	Outcome tool.Outcome `json:"outcome,omitzero" schema:"enum=ok|failed|asked|refused|error|lost" doc:"only lines about calls with this outcome; a tool's last 50 lines appear once its call has ended"`
}

// page is how many lines are read at once.
const page = 500

// watch follows the journals of all nodes.
func (o Options) watch(ctx context.Context, c *define.Call, a Args, f *follow.Follower) (follow.Watched, error) {
	everywhere := define.Everywhere{Name: "watchLogs", Field: "node", What: "its lines are missing here", Workers: true, Fleet: o.Fleet}
	return everywhere.Lines(ctx, c, !a.Follow, a.Others, func(ctx context.Context) (follow.Watched, error) { return o.here(ctx, c, a, f) })
}

// here reads the journal at the listener's pace: a slow listener finds that lines are gone, and nothing waits for it.
func (o Options) here(ctx context.Context, c *define.Call, a Args, f *follow.Follower) (w follow.Watched, err error) {
	s := newSelector(a)
	if err := o.begin(c, a, s, &w); err != nil || !a.Follow {
		return w, err
	}
	err = f.Lines(ctx, c.Out, &w, o.Log.Changed, func(after int64) (all []tool.Event, last, missed int64) {
		lines, missed := o.Log.Journal(after, page)
		last = after
		for _, l := range lines {
			last = l.Seq
			for _, l := range s.take(l) {
				all = append(all, event(l))
			}
		}
		return all, last, missed
	})
	return w, err
}

// begin shows the last lines, or continues after the previous call.
func (o Options) begin(c *define.Call, a Args, s *selector, w *follow.Watched) error {
	if w.Next = o.Log.JournalEnd(); a.After != nil {
		if w.Next < *a.After { // a line of an earlier program: none of this one's lines have been seen
			w.Next = 0
		} else {
			w.Next = *a.After
		}
		return nil
	}
	if a.Last == 0 {
		return nil
	}
	var last []calls.JournalLine
	lines, _ := o.Log.Journal(0, int(w.Next)) // the journal is bounded
	for _, l := range lines {
		last = append(last, s.take(l)...)
		w.Next = l.Seq
	}
	for _, l := range last[max(0, len(last)-a.Last):] {
		if err := c.Out.Emit(event(l)); err != nil {
			return err
		}
	}
	return nil
}

// event makes an event of a line: in words for clients that do not know lines, and whole in its fields.
func event(l calls.JournalLine) tool.Event {
	var words []string
	switch l.From {
	case calls.FromCall:
		words = []string{l.Tool, "of", l.Caller, "ended:", string(l.Outcome), string(l.Code),
			time.Duration(l.Millis * float64(time.Millisecond)).String()}
	case calls.FromTool:
		words = []string{l.Tool + ":"}
	}
	words = slices.DeleteFunc(append(words, l.Message), func(w string) bool { return w == "" })
	ev := tool.NewEvent(tool.KindLog, tool.Log{Level: l.Level, Message: strings.Join(words, " "), Fields: raw(l)})
	ev.Time = l.Time
	return ev
}

// raw marshals a value that has a JSON form: the fields of a line were checked on arrival.
func raw(v any) json.RawMessage {
	b, err := strictjson.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

// How much a selector holds back: calls, and lines of each.
const (
	mostCalls = 50
	mostLines = 50
)

// A selector finds the matching lines. If the filter asks for an outcome, it holds back the lines of a call until it ends.
type selector struct {
	Filter
	least int // level
	held  []*call
}

// A call is one that has not ended, with the lines of its tool.
type call struct {
	id, caller string
	lines      []calls.JournalLine
}

func newSelector(a Args) *selector {
	s := &selector{Filter: a.Filter, least: 1}
	if i := slices.Index(calls.Levels(), a.Level); i >= 0 {
		s.least = i
	}
	return s
}

// take returns the lines to show now that l has come.
func (s *selector) take(l calls.JournalLine) []calls.JournalLine {
	either := func(want, is string) bool { return want == "" || want == is }
	fits := either(s.Tool, l.Tool) && either(s.Caller, l.Caller) && either(s.Session, l.Session) && either(s.Run, l.Run)
	shown := slices.Index(calls.Levels(), l.Level) >= s.least
	switch {
	case l.From == calls.Server:
		if !shown || s.Filter != (Filter{}) {
			return nil
		}
	case !fits:
		return nil
	case s.Outcome != "" && l.From == calls.FromCall:
		lines := s.release(l)
		if l.Outcome != s.Outcome {
			return nil
		}
		return append(lines, l) // a filter by outcome includes the outcome itself
	case !shown:
		return nil
	case s.Outcome != "":
		s.hold(l)
		return nil
	}
	return []calls.JournalLine{l}
}

func (s *selector) find(l calls.JournalLine) int {
	return slices.IndexFunc(s.held, func(c *call) bool { return c.id == l.Call && c.caller == l.Caller })
}

// hold keeps a line until its call has ended. Beyond the bounds it drops the oldest lines and calls.
func (s *selector) hold(l calls.JournalLine) {
	i := s.find(l)
	if i < 0 {
		if len(s.held) == mostCalls {
			s.held = slices.Delete(s.held, 0, 1)
		}
		i, s.held = len(s.held), append(s.held, &call{id: l.Call, caller: l.Caller})
	}
	c := s.held[i]
	if len(c.lines) == mostLines {
		c.lines = slices.Delete(c.lines, 0, 1)
	}
	c.lines = append(c.lines, l)
}

// release returns the lines that were held back for a call that has ended.
func (s *selector) release(l calls.JournalLine) (lines []calls.JournalLine) {
	if i := s.find(l); i >= 0 {
		lines = s.held[i].lines
		s.held = slices.Delete(s.held, i, i+1)
	}
	return lines
}
