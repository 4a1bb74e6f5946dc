package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/progress"
	"toolpost/tool"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

// A reporter shows the events of one call and its outcome. The error of finish ends the command.
type reporter interface {
	tool.Sink
	finish(r *tool.Result, err error) error
}

func (a *app) reporter(req callRequest) reporter {
	switch {
	case a.json:
		return &documentReporter{out: a.out}
	case req.events:
		return &lineReporter{out: a.out}
	}
	return &plainReporter{a, newLive(a.err, req.call.Tool, a.verbose), req.job}
}

// openEvents begins a document of events.
const openEvents = `{"events": [`

// A documentReporter writes {"events": [...], "result": {...}} incrementally, so that it never holds more than one event.
type documentReporter struct {
	out   *screen
	begun bool
}

func (d *documentReporter) Emit(ev tool.Event) error {
	b, err := strictjson.Marshal(ev)
	if err != nil {
		return err
	}
	before := ","
	if !d.begun {
		before, d.begun = openEvents, true
	}
	_, err = fmt.Fprintf(d.out, "%s\n  %s", before, cleanLines(string(b)))
	return err
}

func (d *documentReporter) finish(r *tool.Result, err error) error {
	before := openEvents
	if d.begun {
		before = "\n"
	}
	return writeOutcome(d.out, before+"], ", r, err)
}

// A lineReporter writes a line of JSON for each event and one for the outcome.
type lineReporter struct{ out *screen }

func (l *lineReporter) Emit(ev tool.Event) error {
	_, err := fmt.Fprintln(l.out, cleanLines(string(raw(ev))))
	return err
}

func (l *lineReporter) finish(r *tool.Result, err error) error {
	return writeOutcome(l.out, "{", r, err)
}

// writeOutcome writes the outcome of a call at the end of a JSON object, and returns its exit code.
func writeOutcome(out *screen, before string, r *tool.Result, err error) (code error) {
	name, value := "result", any(r)
	switch {
	case err != nil:
		name, value, code = "error", tool.AsError(err), exit(exitCode(tool.AsError(err)))
	case r.Ask != nil:
		code = exitAsks
	case !r.OK:
		code = exitFailed
	}
	if _, err := fmt.Fprintf(out, "%s%q: %s}\n", before, name, cleanLines(string(raw(value)))); err != nil {
		return err
	}
	return code
}

// A plainReporter is for people, and for scripts that want the result alone.
type plainReporter struct {
	*app
	*live
	job string // the job whose outcome it is; empty for a call
}

func (p *plainReporter) finish(r *tool.Result, err error) error {
	took := p.End()
	switch {
	case err != nil:
		return err
	case r.Ask != nil:
		return p.unanswered(p.name, p.job, r)
	}
	if err := p.print(r.Output); err != nil {
		return err
	}
	if !r.OK {
		fmt.Fprintf(p.err, "%s %s failed: %s\n", p.err.red("toolpost:"), p.name, failureOf(r))
		return exitFailed
	}
	p.summary(r.Summary, took)
	return nil
}

// print shows a result: text as it is, byte for byte unless a person looks at it; everything else as JSON.
func (p *plainReporter) print(output json.RawMessage) error {
	var text string
	switch kind := strictjson.KindOf(output); {
	case kind == "nothing" || kind == "null":
		return nil
	case kind != "string":
		return p.printIndented(output)
	}
	if err := strictjson.Unmarshal(output, &text); err != nil {
		return err
	}
	if p.out.terminal {
		text = strings.TrimSuffix(cleanLines(text), "\n") + "\n"
	}
	_, err := fmt.Fprint(p.out, text)
	return err
}

func (p *plainReporter) summary(text string, took time.Duration) {
	switch {
	case p.err.terminal:
		said := fmt.Sprintf("%s (%v)", clean(p.name+" "+text), took.Round(time.Millisecond))
		fmt.Fprintf(p.err, "%s %s\n", p.err.green("✓"), p.err.dim(said))
	case text != "":
		fmt.Fprintln(p.err, clean(text))
	}
}

func failureOf(r *tool.Result) string {
	if r.Failure == nil {
		return clean(r.Summary)
	}
	text := cleanLines(r.Failure.Message)
	if r.Failure.Reason != "" {
		text = clean(r.Failure.Reason) + ": " + text
	}
	return text
}

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
		return l.s.dim("output: " + format.Indented(read[tool.Output](ev).Text))
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
	text := clean(log.Level) + ": " + format.Indented(log.Message)
	switch {
	case log.Level == "debug" && !l.verbose:
		return ""
	case log.Level == "warn" || log.Level == "error":
		return l.s.painted(log.Level, text)
	}
	return l.s.dim(text)
}

// read decodes the data of an event; data that does not fit is left zero.
func read[T any](ev tool.Event) T {
	var v T
	_ = strictjson.Unmarshal(ev.Data, &v)
	return v
}
