package calls

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Line is something that happened to a call, as followers see it: exactly one of the other fields is set.
type Line struct {
	Seq   int64  `json:"seq"`
	Hub   string `json:"hub,omitzero"` // that the call came in at; empty without a fleet
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
	Node     string    `json:"node,omitzero"` // of the fleet, to which it was sent; empty if its hub runs it
	// Brief is the beginning of the arguments, in a line that tells of a start; empty if they are too long to look for secrets.
	Brief string `json:"brief,omitzero"`
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
	Message string       `json:"message,omitzero"` // the beginning of its error, or of its summary
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

// A Child is a call that another one made.
type Child struct {
	Begin
	Outcome tool.Outcome `json:"outcome,omitzero"`
	Code    tool.Code    `json:"code,omitzero"`
	Millis  float64      `json:"ms,omitzero"`
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

func (f *Filter) fits(s *kept) bool {
	r := &s.record
	return (f.Who.Operator() || r.Caller == f.Who.ID) && (f.Parent == "" || r.Parent == f.Parent || r.Call == f.Parent)
}

// A Page is some lines, the oldest first.
type Page struct {
	Lines  []Line
	Last   int64 // the number of the last line that was examined
	Missed int64 // lines in between that are no longer kept, of any caller
}

// Next returns lines after the given number, and examines at most most of them.
func (l *Log) Next(f Filter, after int64, most int) (p Page) {
	defer func() { l.redact(p.Lines) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	if after < l.lines.gone {
		p.Missed, after = l.lines.gone-after, l.lines.gone
	}
	for ; after < l.lines.last && most > 0; most-- {
		after++
		one := l.lines.at(after)
		s := one.of.kept
		switch {
		case s == nil:
			p.Missed++ // the call is no longer kept
		case one.event >= 0 && (!f.Events || one.event < s.omitted) || !f.fits(s):
		default:
			p.Lines = append(p.Lines, s.line(after, one.event))
		}
	}
	p.Last = after
	return p
}

// Known reports whether a follower can continue after a line. If not, it must start over: the line is from an earlier
// process.
func (l *Log) Known(seq int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return seq >= l.base && seq <= l.lines.last
}

// each visits the calls that are kept. The caller holds mu.
func (l *Log) each(visit func(*kept)) {
	for _, s := range l.ended {
		visit(s.kept)
	}
	for _, e := range l.running {
		if e.slot != nil {
			visit(e.slot.kept)
		}
	}
}

// Now returns the kept calls, the oldest first, as lines; those that have ended come with their end. Everything later
// follows the line with the number last.
func (l *Log) Now(f Filter) (lines []Line, last int64) {
	defer func() { l.redact(lines) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.each(func(s *kept) {
		if s.seq[0] > 0 && f.fits(s) {
			lines = append(lines, s.line(s.seq[0], began))
			if s.seq[1] > 0 {
				lines = append(lines, s.line(s.seq[1], over))
			}
		}
	})
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Compare(a.Seq, b.Seq) })
	return lines, l.lines.last
}

// Find returns a call by its id: one of p's, or for an operator any caller's. whose names the caller if several used the
// same id. If several calls match, the last one counts. Other callers do not learn whether such a call exists.
func (l *Log) Find(p tool.Principal, whose, id string) (call Call, ok bool) {
	defer func() { // without the lock, which every call waits for
		if ok {
			call.Args = l.env.RedactByName(call.Args)
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	var best *kept
	f := Filter{Who: p}
	l.each(func(s *kept) {
		if r := &s.record; r.Call == id && f.fits(s) && (whose == "" || r.Caller == whose) &&
			(best == nil || r.Time.After(best.record.Time)) {
			best = s
		}
	})
	if best == nil {
		return Call{}, false
	}
	return best.whole(), true
}

// Children returns the calls that a call made, as far as they are kept, the oldest first.
func (l *Log) Children(of *Call) []Child {
	var found []*kept
	l.mu.Lock()
	defer l.mu.Unlock()
	l.each(func(s *kept) {
		if s.record.Parent == of.Call && s.record.Caller == of.Caller && s.seq[0] > 0 {
			found = append(found, s)
		}
	})
	slices.SortFunc(found, func(a, b *kept) int { return cmp.Compare(a.seq[0], b.seq[0]) })
	all := []Child{}
	for _, s := range found {
		all = append(all, Child{*s.begin(), s.record.Outcome, s.record.Code, millis(s.record.Duration)})
	}
	return all
}

func (s *kept) line(seq, event int64) Line {
	switch event {
	case began:
		b := s.begin()
		b.Brief = s.brief()
		return Line{Seq: seq, Begin: b}
	case over:
		return Line{Seq: seq, End: s.end()}
	}
	ev := s.events[event-s.omitted]
	ev.Call, ev.Caller = s.record.Call, s.record.Caller
	return Line{Seq: seq, Event: &ev}
}

func (s *kept) begin() *Begin {
	r := &s.record
	return &Begin{
		Call: r.Call, Caller: r.Caller, Door: r.Door, Tool: cmp.Or(r.Tool, r.Asked), Source: r.Source, Protocol: r.Protocol,
		Parent: r.Parent, Session: r.Session, Run: r.Run, Since: r.Time, DryRun: r.DryRun,
		Node: r.Node,
	}
}

func (s *kept) end() *End {
	r := &s.record
	said := struct {
		Message string `json:"message"`
	}{s.summary}
	_ = strictjson.Unmarshal(s.docs[docError].text, &said) // there is none, or it was cut
	return &End{r.Call, r.Caller, r.Outcome, r.Code, millis(r.Duration), cut(said.Message, maxName)}
}

// brief returns the arguments, before redact.
func (s *kept) brief() string {
	if d := s.docs[docArgs]; len(d.text) == d.whole && d.whole <= maxError {
		return string(d.text)
	}
	return ""
}

// redact removes secrets from the arguments in lines, and cuts them. It runs without the lock, which every call waits for.
func (l *Log) redact(lines []Line) {
	for _, one := range lines {
		if b := one.Begin; b != nil && b.Brief != "" {
			b.Brief = cut(string(l.env.RedactByName([]byte(b.Brief))), maxName)
		}
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// whole copies everything that is kept of the call.
func (s *kept) whole() Call {
	call := Call{
		Begin: *s.begin(), Record: s.record, Summary: s.summary, Events: slices.Clone(s.events), Omitted: s.omitted,
		Spec: s.spec, Blocked: slices.Clone(s.blocked), Stages: s.stages(),
	}
	call.Args = s.json(&call, docArgs, "args")
	call.Output = s.json(&call, docOutput, "output")
	call.Error = s.json(&call, docError, "error")
	call.Record.In, call.Record.Out = int64(s.docs[docArgs].whole), int64(s.docs[docOutput].whole)
	call.Record.Parent = "" // it is in Begin
	if s.seq[1] > 0 {
		call.End = s.end()
	}
	return call
}

// json returns a document of a call, or what is left of it.
func (s *kept) json(call *Call, which int, name string) json.RawMessage {
	d := s.docs[which]
	switch kept := len(d.text); {
	case kept < d.whole:
		call.Cut = append(call.Cut, Cut{name, d.whole, kept})
		return beginning(d.text)
	case kept == 0:
		return nil
	}
	return slices.Clone(d.text)
}

// stages returns the steps, each with the time that was its own. A call is in one stage at a time, so a step that begins
// before this one has ended lies inside it, and so do the steps inside that one.
func (s *kept) stages() (list []Stage) {
	us := time.Duration.Microseconds
	kinds := map[string]string{"queue": "wait", "runner": "run"}
	steps := slices.Clone(s.steps)
	for i := range steps {
		if st := &steps[i]; st.took < 0 { // the call is in it now
			st.took = time.Since(s.record.Time) - st.start
		}
	}
	for i, st := range steps {
		one := Stage{st.stage, us(st.start), us(st.took), us(st.took), cmp.Or(kinds[st.stage], "other")}
		if i+1 < len(steps) && steps[i+1].start < st.start+st.took {
			one.Own = max(0, us(st.took-steps[i+1].took))
		}
		list = append(list, one)
	}
	return list
}

// Running reports whether the call has not ended.
func (c *Call) Running() bool { return c.End == nil }
