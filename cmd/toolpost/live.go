package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// How the progress line moves. Quick calls never show it.
const (
	liveDelay    = 300 * time.Millisecond
	liveInterval = 100 * time.Millisecond
	spinner      = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
)

// A live view shows the events of a call as lines and, on a terminal, below them a line that moves.
type live struct {
	s       *screen
	name    string
	verbose bool
	start   time.Time

	mu       sync.Mutex
	progress tool.Progress
	frame    int
	shown    bool // the moving line is on the screen

	stop chan struct{}
	done sync.WaitGroup
}

func newLive(s *screen, name string, verbose bool) *live {
	l := &live{s: s, name: clean(name), verbose: verbose, start: time.Now(), stop: make(chan struct{})}
	if s.terminal {
		l.done.Go(l.move)
	}
	return l
}

func (l *live) move() {
	wait := time.NewTimer(liveDelay)
	defer wait.Stop()
	for {
		select {
		case <-l.stop:
			return
		case now := <-wait.C:
			l.draw(now.Sub(l.start))
			wait.Reset(liveInterval)
		}
	}
}

// end takes the moving line away and says how long it all took.
func (l *live) end() time.Duration {
	close(l.stop)
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	return time.Since(l.start)
}

// still does something while nothing else is written to the screen.
func (l *live) still(do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	return do()
}

func (l *live) draw(elapsed time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	frames := []rune(spinner)
	l.frame = (l.frame + 1) % len(frames)
	p := l.progress
	text := strings.TrimSpace(fmt.Sprintf("%s %.1fs %s", l.name, elapsed.Seconds(), share(p.Progress, p.Total, p.Message)))
	fmt.Fprintf(l.s, "%c %s", frames[l.frame], l.s.dim(short(text, l.s.width()-3)))
	l.shown = true
}

// share says how far something has come, and the last word of it.
func share(done, total float64, message string) string {
	if total <= 0 {
		return clean(message)
	}
	return clean(fmt.Sprintf("%.0f%% %s", 100*done/total, message))
}

func (l *live) erase() {
	if l.shown {
		fmt.Fprint(l.s, "\r\x1b[2K")
		l.shown = false
	}
}

// Emit implements tool.Sink.
func (l *live) Emit(ev tool.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.line(ev)
	if line == "" {
		return nil
	}
	l.erase()
	_, err := fmt.Fprintln(l.s, line)
	return err
}

// line is an event in words; empty: it is not shown.
func (l *live) line(ev tool.Event) string {
	switch ev.Kind {
	case tool.KindLog:
		return l.logLine(read[tool.Log](ev))
	case tool.KindProgress:
		l.progress = read[tool.Progress](ev)
		return ""
	case tool.KindOutput:
		return l.s.dim("output: " + indented(read[tool.Output](ev).Text))
	case tool.KindStatePatch:
		return l.s.dim("state: " + short(clean(string(ev.Data)), 200))
	case tool.KindAsset:
		a := read[tool.Asset](ev)
		return l.s.dim(fmt.Sprintf("asset: %s (%s) %s", clean(a.AssetID), clean(a.MediaType), clean(a.Path)))
	case tool.KindUIEvent:
		return l.s.dim(uiLine(read[tool.UIEvent](ev)))
	case tool.KindError:
		e := read[tool.ErrorEvent](ev)
		return l.s.red("error: ") + clean(e.Code+": "+e.Message)
	}
	return ""
}

// uiLine lists the choices of a narrative_choice. Every other request gets a line with its name and
// what came with it: there is nothing on a command line to do it with.
func uiLine(u tool.UIEvent) string {
	var payload struct {
		Choices []json.RawMessage `json:"choices"`
	}
	if u.Event != "narrative_choice" || strictjson.Unmarshal(u.Payload, &payload) != nil || len(payload.Choices) == 0 {
		return fmt.Sprintf("ui: %s %s", clean(u.Event), short(clean(string(u.Payload)), 200))
	}
	var b strings.Builder
	b.WriteString("choose:")
	for i, raw := range payload.Choices {
		fmt.Fprintf(&b, "\n  %d. %s", i+1, short(clean(choiceText(raw)), 200))
	}
	return b.String()
}

// choiceText is what a choice, a string or {id, label, hint}, says to the one who chooses.
func choiceText(raw json.RawMessage) string {
	var text string
	if strictjson.Unmarshal(raw, &text) == nil {
		return text
	}
	var c struct {
		Label string `json:"label"`
		Hint  string `json:"hint"`
	}
	if strictjson.Unmarshal(raw, &c) != nil || c.Label == "" {
		return string(raw)
	}
	if c.Hint != "" {
		c.Label += " (" + c.Hint + ")"
	}
	return c.Label
}

func (l *live) logLine(log tool.Log) string {
	text := clean(log.Level) + ": " + indented(log.Message)
	switch log.Level {
	case "debug":
		if !l.verbose {
			return ""
		}
	case "warn":
		return l.s.amber(text)
	case "error":
		return l.s.red(text)
	}
	return l.s.dim(text)
}

// indented keeps the lines of a message together, so that no tool can speak for us.
func indented(s string) string {
	return strings.ReplaceAll(cleanLines(strings.TrimRight(s, "\n")), "\n", "\n  ")
}

// read takes the data of an event apart; what does not fit is left zero.
func read[T any](ev tool.Event) T {
	var v T
	_ = strictjson.Unmarshal(ev.Data, &v)
	return v
}
