package command

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolpost/host/process"
	"toolpost/tool"
)

// Progress configures how the progress of a program is read.
type Progress struct {
	Match string `yaml:"match" doc:"regular expression for lines of stdout and stderr, with the named groups percent, or done and total, and message"`
	Lines bool   `yaml:"lines" doc:"every line of stdout is one step"`
	Total string `yaml:"total" doc:"the argument that says how many steps there are: a number, or a list"`
}

// UnmarshalText implements encoding.TextUnmarshaler: the word lines, or a regular expression.
func (p *Progress) UnmarshalText(b []byte) error {
	if string(b) == "lines" {
		p.Lines = true
	} else {
		p.Match = string(b)
	}
	return nil
}

// progress is a checked Progress.
type progress struct {
	Progress
	match  *regexp.Regexp // nil if every line is a step
	groups map[string]int
}

func (p Progress) compile(about map[string]*argument) (*progress, error) {
	switch {
	case p == Progress{}:
		return nil, nil
	case p.Lines == (p.Match != ""):
		return nil, tool.Errorf(tool.CodeInvalidInput, "progress is read with match, a regular expression, or from lines; write one of them")
	case p.Total != "" && about[p.Total] == nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "progress: total names the argument %q, which there is not", p.Total)
	case p.Lines:
		return &progress{Progress: p}, nil
	}
	match, err := regexp.Compile(p.Match)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "progress: %w", err)
	}
	groups := map[string]int{}
	for i, name := range match.SubexpNames() {
		if name != "" && !slices.Contains([]string{"percent", "done", "total", "message"}, name) {
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"progress: the group %q means nothing; there are percent, done, total and message", name)
		}
		groups[name] = i
	}
	if groups["percent"] == 0 && groups["done"] == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, `progress: the expression needs a group that says how far it is, `+
			`such as (?P<percent>\d+)%% or (?P<done>\d+)/(?P<total>\d+)`)
	}
	return &progress{Progress: p, match: match, groups: groups}, nil
}

// A meter reads the progress of one call.
type meter struct {
	*progress
	events *tool.Relay
	total  float64 // 0 if unknown
	steps  float64
}

// meter starts a meter, or returns nil if no progress is read.
func (p *progress) meter(v *values, events *tool.Relay) *meter {
	if p == nil {
		return nil
	}
	m := &meter{progress: p, events: events}
	switch total := v.given[p.Total].(type) {
	case json.Number:
		m.total, _ = total.Float64()
	case []any:
		m.total = float64(len(total))
	}
	return m
}

// sees examines a line, and reports whether it contains progress.
func (m *meter) sees(line []byte, stdout bool) bool {
	if m == nil || m.match == nil && !stdout {
		return false
	}
	at := tool.Progress{Total: m.total}
	if m.match == nil {
		m.steps++ // only for stdout, which one goroutine reads
		at.Progress, at.Message = m.steps, shown(line)
	} else if found := m.match.FindSubmatch(line); found == nil || !m.fill(&at, found) {
		return false
	}
	_ = m.events.Emit(tool.NewEvent(tool.KindProgress, at)) // the relay remembers an error
	return true
}

// without removes the lines that contain progress, which do not explain a failure.
func (m *meter) without(text string) string {
	if m == nil || m.match == nil {
		return text
	}
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		found := m.match.FindSubmatch([]byte(line))
		return found != nil && m.fill(&tool.Progress{}, found)
	}), "\n")
}

func (m *meter) fill(at *tool.Progress, found [][]byte) bool {
	group := func(name string) string {
		if i := m.groups[name]; i > 0 {
			return strings.ReplaceAll(string(found[i]), ",", "")
		}
		return ""
	}
	done := group("done")
	if percent := group("percent"); percent != "" {
		done, at.Total = percent, 100
	}
	n, err := strconv.ParseFloat(done, 64)
	if err != nil || !finite(n) {
		return false
	}
	at.Progress = n
	if total, err := strconv.ParseFloat(group("total"), 64); err == nil && finite(total) {
		at.Total = total
	}
	if i := m.groups["message"]; i > 0 {
		at.Message = shown(found[i])
	}
	return true
}

// finite reports whether JSON can represent n.
func finite(n float64) bool { return !math.IsNaN(n) && !math.IsInf(n, 0) }

// shown returns a line as a message.
func shown(line []byte) string {
	const most = 200
	return strings.TrimSpace(strings.ToValidUTF8(string(line[:process.WholeRunes(line[:min(len(line), most)])]), "\uFFFD"))
}

// A splitter finds lines in the data that is written to it. Lines may end with a carriage return, as programs write them
// that redraw their progress. It does not keep text that is longer than any such line.
type splitter struct {
	line func([]byte)
	part []byte
}

const longestLine = 8 << 10

// Write implements io.Writer.
func (s *splitter) Write(b []byte) (int, error) {
	size := len(b)
	for {
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			s.keep(b)
			return size, nil
		}
		s.keep(b[:i])
		if len(s.part) > 0 {
			s.line(s.part)
		}
		s.part, b = s.part[:0], b[i+1:]
	}
}

func (s *splitter) keep(b []byte) {
	s.part = append(s.part, b[:min(len(b), longestLine-len(s.part))]...)
}
