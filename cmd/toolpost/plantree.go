package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/format"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A planView shows a plan while it runs: on a terminal as a tree whose lines change, elsewhere as a line whenever a tool
// ends, is retried or is skipped.
type planView struct {
	s *screen

	mu        sync.Mutex
	narrative string
	tools     []*planLine
	byID      map[string]*planLine
	drawn     int // lines on the terminal
	last      time.Time
}

// A planLine is a tool of the plan.
type planLine struct {
	of    plan.BegunTool
	now   plan.Step
	depth int
	began time.Time
	about string // its latest message
}

// planFields are those of a log line of a plan, or of one of its tools.
type planFields struct {
	Plan   *plan.Begun `json:"plan"`
	Step   *plan.Step  `json:"step"`
	ToolID string      `json:"toolId"` // empty if the line is the plan's own
}

// redrawEvery is the shortest time between two drawings of the tree.
const redrawEvery = 50 * time.Millisecond

func newPlanView(s *screen) *planView { return &planView{s: s} }

// Emit implements tool.Sink.
func (v *planView) Emit(ev tool.Event) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ev.Kind != tool.KindLog && ev.Kind != tool.KindProgress {
		return v.other(ev)
	}
	var said struct {
		tool.Log
		Fields planFields `json:"fields"`
	}
	if err := strictjson.Unmarshal(ev.Data, &said); err != nil {
		return nil // unreadable fields are not shown
	}
	switch f := said.Fields; {
	case v.byID[f.ToolID] != nil: // from a tool, whatever else its fields have: it may run a plan itself
		l, about := v.byID[f.ToolID], short(clean(said.Message), 60)
		told := ev.Kind == tool.KindProgress && l.about == about // a log line said it
		if l.about = about; !v.s.terminal && said.Message != "" && !told {
			fmt.Fprintln(v.s, v.s.dim("  "+clean(f.ToolID)+": "+format.Indented(said.Message)))
		}
	case f.Plan != nil:
		v.begin(f.Plan)
	case f.Step != nil:
		v.step(f.Step)
	default:
		v.above(v.s.painted(said.Level, clean(said.Message)))
	}
	v.draw(false)
	return nil
}

// other shows an event of a tool that does not concern the plan.
func (v *planView) other(ev tool.Event) error {
	if line := (&live{s: v.s}).line(ev); line != "" {
		v.above(line)
		v.draw(true)
	}
	return nil
}

// begin shows a new plan, below the one that it replaces.
func (v *planView) begin(b *plan.Begun) {
	v.draw(true)
	v.drawn, v.tools, v.byID, v.narrative = 0, nil, map[string]*planLine{}, b.Narrative
	words := fmt.Sprintf("plan %s: %s", clean(cmp.Or(b.Title, b.RequestID)), define.Count(len(b.Tools), "tool"))
	if b.Attempt > 1 {
		words += fmt.Sprintf(", attempt %d", b.Attempt)
	}
	fmt.Fprintln(v.s, v.s.bold(words))
	for _, t := range b.Tools { // in the order in which they run: dependencies come first
		l := &planLine{of: t, now: plan.Step{State: plan.Waiting}}
		for _, id := range t.Dependencies {
			if on := v.byID[id]; on != nil {
				l.depth = max(l.depth, on.depth+1)
			}
		}
		v.tools, v.byID[t.ToolID] = append(v.tools, l), l
	}
}

func (v *planView) step(s *plan.Step) {
	l := v.byID[s.ToolID]
	if l == nil {
		return
	}
	if l.now = *s; s.State == plan.Running && s.Attempt <= 1 {
		l.began = time.Now()
	}
	if !v.s.terminal && s.State != plan.Running {
		fmt.Fprintln(v.s, v.line(l))
	}
}

// above prints a line above the tree.
func (v *planView) above(line string) {
	v.erase()
	fmt.Fprintln(v.s, line)
}

func (v *planView) erase() {
	if v.drawn > 0 {
		fmt.Fprintf(v.s, "\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}

// draw draws the tree, and with now even if it was drawn a moment ago. If the plan is longer than the terminal, it shows the
// tools that have not ended, and counts the rest.
func (v *planView) draw(now bool) {
	if !v.s.terminal || len(v.tools) == 0 || !now && time.Since(v.last) < redrawEvery {
		return
	}
	v.last = time.Now()
	shown, rest := v.tools, ""
	if room := max(v.s.height()-3, 3); len(shown) > room {
		busy := slices.DeleteFunc(slices.Clone(shown), (*planLine).ended)
		rest = fmt.Sprintf("%d of %d tools have ended", len(shown)-len(busy), len(shown))
		shown = busy[:min(len(busy), room)]
	}
	v.erase()
	for _, l := range shown {
		fmt.Fprintln(v.s, v.s.cut(v.line(l)))
	}
	if v.drawn = len(shown); rest != "" {
		fmt.Fprintln(v.s, v.s.dim(rest))
		v.drawn++
	}
}

// planSign returns the sign for a state.
func planSign(state string) string {
	switch state {
	case plan.Running:
		return "▶"
	case plan.Retrying:
		return "↻"
	case plan.Success:
		return "✓"
	case plan.Failed, plan.TimedOut:
		return "✗"
	case plan.Skipped:
		return "–"
	}
	return "·"
}

// line describes a tool: its state, what it is, and its outcome.
func (v *planView) line(l *planLine) string {
	paint := v.s.dim
	switch l.now.State {
	case plan.Running:
		paint = v.s.bold
	case plan.Retrying, plan.Skipped:
		paint = v.s.amber
	case plan.Success:
		paint = v.s.green
	case plan.Failed, plan.TimedOut:
		paint = v.s.red
	}
	name := paint(planSign(l.now.State) + " " + clean(l.of.ToolID))
	words := []string{strings.Repeat("  ", l.depth) + name, v.s.dim(clean(l.of.Tool))}
	if l.now.State != plan.Success {
		words = append(words, l.now.State)
	}
	switch {
	case l.now.State == plan.Waiting:
		words = append(words, v.s.dim(v.waitsFor(l)))
	case l.now.State == plan.Running && !l.began.IsZero():
		words = append(words, format.Tidy(time.Since(l.began)), v.s.dim(l.about))
	case l.now.Millis > 0:
		words = append(words, format.Tidy(time.Duration(l.now.Millis)*time.Millisecond))
	}
	if l.now.Attempt > 1 {
		words = append(words, fmt.Sprintf("attempt %d", l.now.Attempt))
	}
	if l.now.Error != nil {
		words = append(words, clean(l.now.Error.Message))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "  ")
}

func (l *planLine) ended() bool {
	return !slices.Contains([]string{plan.Waiting, plan.Running, plan.Retrying}, l.now.State)
}

// waitsFor says why a tool has not begun: the tools that it needs, or else what keeps it from overlapping.
func (v *planView) waitsFor(l *planLine) string {
	var needs []string
	for _, id := range l.of.Dependencies {
		if on := v.byID[id]; on != nil && !on.ended() {
			needs = append(needs, clean(id))
		}
	}
	if len(needs) == 0 {
		return clean(l.of.Alone)
	}
	return "for " + short(strings.Join(needs, ", "), 60)
}

// end draws the tree for the last time.
func (v *planView) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.draw(true)
}
