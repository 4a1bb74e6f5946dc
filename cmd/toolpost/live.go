package main

import (
	"fmt"
	"strings"

	"toolpost/cmd/toolpost/progress"
	"toolpost/tool"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

// A live view shows the events of a call as lines and, below them, its progress.
type live struct {
	*progress.Line
	s       *screen
	name    string
	verbose bool
}

func newLive(s *screen, name string, verbose bool) *live {
	name = clean(name)
	return &live{s.progress(name), s, name, verbose}
}

// progress starts to show progress. The name must be safe to show.
func (s *screen) progress(name string) *progress.Line {
	return progress.New(progress.Out{Writer: s, Terminal: s.terminal, Width: s.width, Dim: s.dim}, name)
}

// share writes the progress and the latest message about it.
func share(done, total float64, message string) string {
	if total <= 0 {
		return clean(message)
	}
	return clean(fmt.Sprintf("%.0f%% %s", 100*done/total, message))
}

// Emit implements tool.Sink.
func (l *live) Emit(ev tool.Event) error {
	if ev.Kind == tool.KindProgress {
		p := read[tool.Progress](ev)
		l.Set(p.Progress, p.Total, clean(p.Message))
		return nil
	}
	line := l.line(ev)
	if line == "" {
		return nil
	}
	return l.Above(func() error {
		_, err := fmt.Fprintln(l.s, line)
		return err
	})
}

// line describes an event, or returns "" if it is not shown.
func (l *live) line(ev tool.Event) string {
	switch ev.Kind {
	case tool.KindLog:
		return l.logLine(read[tool.Log](ev))
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

// uiLine lists the choices of a narrative_choice. Every other request gets a line with its name and data, since a command
// line cannot act on it.
func uiLine(u tool.UIEvent) string {
	choices := modeltext.Choices(u)
	if len(choices) == 0 {
		return fmt.Sprintf("ui: %s %s", clean(u.Event), short(clean(string(u.Payload)), 200))
	}
	var b strings.Builder
	b.WriteString("choose:")
	for i, c := range choices {
		fmt.Fprintf(&b, "\n  %d. %s", i+1, short(clean(c.String()), 200))
	}
	return b.String()
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

// indented indents the lines of a message, so that a tool's text cannot pass for ours.
func indented(s string) string {
	return strings.ReplaceAll(cleanLines(strings.TrimRight(s, "\n")), "\n", "\n  ")
}

// read decodes the data of an event; data that does not fit is left zero.
func read[T any](ev tool.Event) T {
	var v T
	_ = strictjson.Unmarshal(ev.Data, &v)
	return v
}
