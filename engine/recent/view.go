package recent

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Line is something that happened to a call, as followers see it: exactly one of the other fields is set.
type Line struct {
	Seq   int64  `json:"seq"`
	Begin *Begin `json:"begin,omitzero"`
	Event *Event `json:"event,omitzero"`
	End   *End   `json:"end,omitzero"`
}

// A Begin describes a call.
type Begin struct {
	Call     string    `json:"call"`
	Caller   string    `json:"caller"`
	Door     string    `json:"door"`
	Tool     string    `json:"tool"` // as published; as its caller wrote it if there is no such tool
	Source   string    `json:"source,omitzero"`
	Protocol string    `json:"protocol,omitzero"`
	Parent   string    `json:"parent,omitzero"` // the call that made it
	Session  string    `json:"session,omitzero"`
	Run      string    `json:"run,omitzero"`
	Since    time.Time `json:"since"`
	DryRun   bool      `json:"dry_run,omitzero"`
}

// An Event is an event of a call. If Cut is set, it has the original length, and Data is a string with the beginning of
// the data.
type Event struct {
	Call   string          `json:"call,omitzero"`
	Caller string          `json:"caller,omitzero"`
	Seq    int64           `json:"seq"`
	Time   time.Time       `json:"time"`
	Kind   tool.Kind       `json:"kind"`
	Data   json.RawMessage `json:"data"`
	Cut    int             `json:"cut,omitzero"`
}

// An End is the outcome of a call.
type End struct {
	Call    string       `json:"call"`
	Caller  string       `json:"caller"`
	Outcome tool.Outcome `json:"outcome"`
	Code    tool.Code    `json:"code,omitzero"`
	Millis  float64      `json:"ms"`
}

// A Call is everything that is kept of one call.
type Call struct {
	Begin
	End     *End // nil if it runs
	Record  tool.Record
	Args    json.RawMessage // a string with the beginning of them, if Cut lists them; likewise Output and Error
	Output  json.RawMessage
	Error   json.RawMessage
	Summary string
	Events  []Event
	Omitted int64 // events before the kept ones
	Stages  []Stage
	Cut     []Cut
	Spec    *tool.Spec     // nil if there is no such tool
	Blocked []tool.Blocked // what its walls stopped
}

// A Stage is a place of the chain that the call entered. Its time includes the stages inside it.
type Stage struct {
	Name  string `json:"name"`
	Start int64  `json:"start_us"`
	Took  int64  `json:"took_us"`
	Own   int64  `json:"own_us" doc:"of that, what the stages inside did not take"`
	Kind  string `json:"kind" schema:"enum=wait|run|other" doc:"wait: the call waited for its turn; run: the tool ran"`
}

// A Cut reports that a value was too long to be kept.
type Cut struct {
	What  string `json:"what" schema:"enum=args|output|error"`
	Bytes int    `json:"bytes" doc:"its length"`
	Kept  int    `json:"kept"`
}

// A Filter selects the calls that a follower is told of, among those that it may know of: its own, or for an operator
// those of all callers.
type Filter struct {
	Who    tool.Principal
	Parent string // only this call, and those that it made; empty means all
	Events bool   // with events
}

func (f *Filter) fits(s *slot) bool {
	return (f.Who.Operator() || s.is(partCaller, f.Who.ID)) &&
		(f.Parent == "" || s.is(partParent, f.Parent) || s.is(partCall, f.Parent))
}

// A Page is some lines, the oldest first.
type Page struct {
	Lines  []Line
	Last   int64 // the number of the last line that was examined
	Missed int64 // lines in between that are no longer kept, of any caller
	More   bool  // there are more already
}

// Next returns lines after the given number, and examines at most most of them.
func (c *Calls) Next(f Filter, after int64, most int) (p Page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if after < c.gone {
		p.Missed, after = c.gone-after, c.gone
	}
	for ; after < c.last && most > 0; most-- {
		after++
		l := c.at(after)
		s := l.of
		switch {
		case l.call != s.call:
			p.Missed++ // the call is no longer kept
		case l.what == told && (!f.Events || l.event < s.omitted) || !f.fits(s):
		default:
			p.Lines = append(p.Lines, s.line(after, l))
		}
	}
	p.Last, p.More = after, after < c.last
	return p
}

// Known reports whether a follower can continue after a line. If not, it must start over: the line is from an earlier
// process.
func (c *Calls) Known(seq int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return seq >= c.base && seq <= c.last
}

// page is how many calls are copied under one lock.
const page = 100

// Now returns the kept calls, the oldest first, as lines; those that have ended come with their end. Everything later
// follows the line with the number last.
func (c *Calls) Now(f Filter) (lines []Line, last int64) {
	type ref struct {
		*slot
		call uint64
	}
	c.mu.Lock()
	last = c.last
	all := make([]ref, 0, len(c.ended)+len(c.running))
	for _, s := range c.ended {
		all = append(all, ref{s, s.call})
	}
	for _, s := range c.running {
		if s.seq[0] > 0 {
			all = append(all, ref{s, s.call})
		}
	}
	c.mu.Unlock()
	for part := range slices.Chunk(all, page) {
		c.mu.Lock()
		for _, r := range part {
			if r.slot.call == r.call && f.fits(r.slot) {
				lines = append(lines, r.line(r.seq[0], &line{what: began}))
				if r.seq[1] > 0 && r.seq[1] <= last { // otherwise it comes again
					lines = append(lines, r.line(r.seq[1], &line{what: over}))
				}
			}
		}
		c.mu.Unlock()
	}
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Compare(a.Seq, b.Seq) })
	return lines, last
}

// Find returns a call by its id: one of p's, or for an operator any caller's. whose names the caller if several used the
// same id. If several calls match, the last one counts. Other callers do not learn whether such a call exists.
func (c *Calls) Find(p tool.Principal, whose, id string) (Call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var best *slot
	f := Filter{Who: p}
	look := func(s *slot) {
		if s.is(partCall, id) && f.fits(s) && (whose == "" || s.is(partCaller, whose)) &&
			(best == nil || s.began.After(best.began)) {
			best = s
		}
	}
	for _, s := range c.running {
		look(s)
	}
	for _, s := range c.ended {
		look(s)
	}
	if best == nil {
		return Call{}, false
	}
	return best.whole(c.env), true
}

// Children returns the calls that a call made, as far as they are kept, the oldest first.
func (c *Calls) Children(p tool.Principal, id string) []Line {
	lines, _ := c.Now(Filter{Who: p, Parent: id})
	return slices.DeleteFunc(lines, func(l Line) bool {
		return l.Begin != nil && l.Begin.Parent != id || l.End != nil && l.End.Call == id
	})
}

func (s *slot) line(seq int64, l *line) Line {
	out := Line{Seq: seq}
	switch l.what {
	case began:
		b := s.begin()
		out.Begin = &b
	case told:
		ev := s.event(s.events[l.event-s.omitted])
		ev.Call, ev.Caller = s.text(partCall), s.text(partCaller)
		out.Event = &ev
	case over:
		out.End = s.end()
	}
	return out
}

func (s *slot) begin() Begin {
	b := Begin{
		Call: s.text(partCall), Caller: s.text(partCaller), Door: s.door, Tool: s.text(partTool),
		Parent: s.text(partParent), Session: s.text(partSession), Run: s.text(partRun), Since: s.began,
		DryRun: s.known.dry,
	}
	if s.spec != nil {
		b.Tool, b.Source, b.Protocol = s.spec.Name, s.spec.Source, s.spec.Protocol
	}
	return b
}

func (s *slot) end() *End {
	return &End{
		Call: s.text(partCall), Caller: s.text(partCaller), Outcome: s.outcome, Code: tool.Code(s.text(partCode)),
		Millis: float64(s.took.Microseconds()) / 1000,
	}
}

func (s *slot) event(e event) Event {
	ev := Event{Seq: int64(e.seq), Time: e.time, Kind: e.kind, Data: slices.Clone(s.data[e.from:e.to])}
	if e.to-e.from < e.whole {
		ev.Data, ev.Cut = beginning(ev.Data), e.whole
	}
	return ev
}

// beginning returns what is left of cut JSON, as a string.
func beginning(doc []byte) json.RawMessage {
	return strictjson.Quote(strings.ToValidUTF8(string(doc), ""))
}

// whole copies everything that is kept of the call.
func (s *slot) whole(env Env) Call {
	call := Call{
		Begin: s.begin(), Summary: s.text(partSummary), Omitted: int64(s.omitted), Spec: s.spec,
		Blocked: slices.Clone(s.blocked), Stages: s.stages(),
	}
	call.Args = env.RedactByName(s.json(&call, partArgs, "args"))
	call.Output = s.json(&call, partOutput, "output")
	call.Error = s.json(&call, partError, "error")
	for _, e := range s.events {
		call.Events = append(call.Events, s.event(e))
	}
	if s.seq[1] > 0 {
		call.End = s.end()
	}
	call.Record = s.asRecord(&call)
	return call
}

// json returns a part that is JSON, or what is left of it.
func (s *slot) json(call *Call, which int, name string) json.RawMessage {
	p := s.parts[which]
	doc := slices.Clone(s.head[p.from:p.to])
	if kept := p.to - p.from; kept < p.whole {
		call.Cut = append(call.Cut, Cut{name, int(p.whole), int(kept)})
		return beginning(doc)
	}
	if len(doc) == 0 {
		return nil
	}
	return doc
}

// asRecord returns the call's record in the audit log, as far as it is known here.
func (s *slot) asRecord(call *Call) tool.Record {
	r := tool.Record{
		Time: s.began, Call: call.Call, Trace: s.text(partTrace), Tool: call.Tool, Source: call.Source,
		Protocol: call.Protocol, Tier: s.known.tier, Door: s.door, Caller: call.Caller, Session: call.Session,
		Run: call.Run, Key: s.text(partKey), Decision: s.known.decision, Rule: s.known.rule, Walls: s.known.walls,
		Replay: s.known.replay, Cached: s.known.cached, DryRun: s.known.dry, Outcome: s.outcome,
		Code: tool.Code(s.text(partCode)), Reason: s.text(partReason), Duration: s.took,
		In: int64(s.parts[partArgs].whole), Out: int64(s.parts[partOutput].whole),
	}
	if asked := s.text(partTool); asked != r.Tool {
		r.Asked = asked
	}
	if s.spec == nil {
		r.Tool, r.Asked = "", s.text(partTool)
	}
	return r
}

// stages returns the steps, each with the time that was its own. A call is in one stage at a time, so a step that begins
// before this one has ended lies inside it, and so do the steps inside that one.
func (s *slot) stages() (list []Stage) {
	us := time.Duration.Microseconds
	for i, st := range s.steps {
		if st.took < 0 { // the call is in it now
			st.took = time.Since(s.began) - st.start
		}
		one := Stage{Name: st.stage, Start: us(st.start), Took: us(st.took), Own: us(st.took), Kind: "other"}
		if i+1 < len(s.steps) && s.steps[i+1].start < st.start+st.took {
			inner := s.steps[i+1]
			if inner.took < 0 {
				inner.took = time.Since(s.began) - inner.start
			}
			one.Own = max(0, us(st.took-inner.took))
		}
		switch st.stage {
		case "queue":
			one.Kind = "wait"
		case "runner":
			one.Kind = "run"
		}
		list = append(list, one)
	}
	return list
}

// Running reports whether the call has not ended.
func (c *Call) Running() bool { return c.End == nil }
