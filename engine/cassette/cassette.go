// Package cassette records calls in a file, which package protocol/cassette replays. So an agent can be tested without
// real tools: it sees the same tools, events and outcomes, and nothing runs.
//
// A cassette is lines of JSON. The first is a header; each of the others is a tool, as it was published when it was
// first called, or a call that has ended. Each line is written at once and whole: everything recorded before a kill can
// be replayed, and half a line at the end is ignored.
package cassette

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Version is the version of the format.
const Version = 1

// The limits: of a whole cassette that is replayed, of one line, and of the events of one call.
const (
	maxFile    = 1 << 30
	maxLine    = 64 << 20
	maxEvents  = 10_000
	maxSaid    = 8 << 20 // bytes of the events of a call, without assets
	maxContent = 4 << 20 // bytes of one asset
)

// A line has exactly one of these members.
type line struct {
	Cassette *head      `json:"cassette,omitzero"`
	Tool     *tool.Spec `json:"tool,omitzero"`
	Call     *Call      `json:"call,omitzero"`
}

type head struct {
	Version  int       `json:"version"`
	Toolpost string    `json:"toolpost,omitzero"` // the version of the program
	Made     time.Time `json:"made"`
}

// A Call is a recorded call.
type Call struct {
	Source  string          `json:"source"`
	Tool    string          `json:"tool"` // the name at its source
	Args    json.RawMessage `json:"args,omitzero"`
	Resumed bool            `json:"resumed,omitzero"` // it was repeated after a question
	Answers json.RawMessage `json:"answers,omitzero"`
	Run     string          `json:"run,omitzero"`
	At      time.Time       `json:"at"`
	Millis  int64           `json:"ms"`
	Events  []Event         `json:"events,omitzero"`
	Cut     bool            `json:"cut,omitzero"` // there were more events
	// The outcome: one of the two.
	Result *Result     `json:"result,omitzero"`
	Error  *tool.Error `json:"error,omitzero"`
}

// An Event is an event of a call.
type Event struct {
	Millis  int64           `json:"ms"` // since the call began
	Kind    tool.Kind       `json:"kind"`
	Data    json.RawMessage `json:"data"`
	Content []byte          `json:"content,omitzero"` // of an asset; absent if it was too large to keep
}

// A Result is a tool.Result without the parts that are specific to one run.
type Result struct {
	OK      bool            `json:"ok"`
	Output  json.RawMessage `json:"output,omitzero"`
	Summary string          `json:"summary,omitzero"`
	Failure *tool.Error     `json:"error,omitzero"`
	Ask     *tool.Ask       `json:"ask,omitzero"`
}

// A Tape is a cassette in memory.
type Tape struct {
	Tools []*tool.Spec // each as last published
	Calls []*Call      // in the order in which they ended
}

// Sources lists the sources of its tools, in order of appearance.
func (t *Tape) Sources() (names []string) {
	seen := map[string]bool{}
	for _, s := range t.Tools {
		if !seen[s.Source] {
			seen[s.Source] = true
			names = append(names, s.Source)
		}
	}
	return names
}

// Read reads a cassette.
func Read(r io.Reader) (*Tape, error) {
	t, places := &Tape{}, map[[2]string]int{}
	lines := bufio.NewReaderSize(io.LimitReader(r, maxFile+1), 64<<10)
	for n, size := 1, 0; ; n++ {
		text, err := readLine(lines)
		if size += len(text); size > maxFile {
			return nil, tool.Errorf(tool.CodeInvalidInput, "a cassette has at most %d bytes", maxFile)
		}
		switch {
		case errors.Is(err, io.EOF) && n > 1: // the text after the last newline is incomplete
			return t, nil
		case errors.Is(err, io.EOF):
			return nil, tool.Errorf(tool.CodeInvalidInput, "it is empty, and no cassette")
		case err == nil:
			err = t.add(text, n == 1, places)
		}
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "line %d: %s", n, tool.AsError(err).Message)
		}
	}
}

// readLine reads a line that ends with a newline.
func readLine(r *bufio.Reader) (text []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, tool.Errorf(tool.CodeInvalidInput, "it is longer than %d bytes", maxLine)
		case !errors.Is(err, bufio.ErrBufferFull):
			return bytes.TrimSuffix(text, []byte("\n")), err
		}
	}
}

// add adds a line. places holds the indexes of tools, by source and name.
func (t *Tape) add(text []byte, first bool, places map[[2]string]int) error {
	var l line
	err := strictjson.UnmarshalClosed(text, &l)
	if first && (err != nil || l.Cassette == nil || l.Tool != nil || l.Call != nil) {
		return errors.New("it is no cassette: the first line of one says `{\"cassette\": ...}`")
	}
	switch {
	case err != nil:
		return err
	case first:
		if l.Cassette.Version != Version {
			return tool.Errorf(tool.CodeUnsupported, "a cassette of version %d, and this program knows version %d",
				l.Cassette.Version, Version)
		}
	case l.Tool != nil && l.Call == nil && l.Cassette == nil:
		return t.addTool(l.Tool, places)
	case l.Call != nil && l.Tool == nil && l.Cassette == nil:
		return t.addCall(l.Call, places)
	default:
		return errors.New("it is neither a tool nor a call")
	}
	return nil
}

func (t *Tape) addTool(s *tool.Spec, places map[[2]string]int) error {
	if s.Name == "" || s.Source == "" {
		return errors.New("a tool has a name and a source")
	}
	key := [2]string{s.Source, s.Name}
	if at, known := places[key]; known {
		t.Tools[at] = s
		return nil
	}
	places[key] = len(t.Tools)
	t.Tools = append(t.Tools, s)
	return nil
}

func (t *Tape) addCall(c *Call, places map[[2]string]int) error {
	if _, known := places[[2]string{c.Source, c.Tool}]; !known {
		return tool.Errorf(tool.CodeInvalidInput, "a call of %s.%s, which no line before it describes", c.Source, c.Tool)
	}
	if (c.Result == nil) == (c.Error == nil) {
		return errors.New("a call has either a result or an error")
	}
	t.Calls = append(t.Calls, c)
	return nil
}
