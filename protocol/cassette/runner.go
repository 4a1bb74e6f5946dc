// Package cassette replays the calls of a cassette: a source that offers the recorded tools, which return their recorded
// results. Nothing runs.
package cassette

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/engine/audit"
	"toolpost/engine/cassette"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options are the fields of a source of this protocol.
type Options struct {
	File     string   `yaml:"file" kind:"path" doc:"the cassette, which toolpost record wrote"`
	Source   string   `yaml:"source" doc:"which of the recorded sources it plays; default: the one with this source's name"`
	Loose    bool     `yaml:"loose" doc:"a call may be made more often than it was recorded: its last outcome is repeated; default: each recorded call is played once, those with the same arguments in their order"`
	Ignore   []string `yaml:"ignore" doc:"names of arguments, at any depth, that do not matter for finding a call, such as a time"`
	Realtime bool     `yaml:"realtime" doc:"take as long as the recorded calls took; default: answer at once"`
}

// A Runner plays one source of a cassette.
type Runner struct {
	o     Options
	specs []*tool.Spec

	mu    sync.Mutex
	tools map[string]*track
}

// A track holds the calls of one tool.
type track struct {
	calls map[string][]*cassette.Call // the remaining calls by their question, in order
	asked []string                    // all recorded questions, in order
}

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// Open makes the runner of a configured source.
func Open(_ context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
	var o Options
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	o.Source = cmp.Or(o.Source, src.Name)
	return tool.Opened(New(src.Dir, o))
}

// Claim returns the cassette as the file that a source starts from.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o Options
	err := src.Decode(&o)
	return offlimits.Claim{Starts: []string{under(src.Dir, o.File)}}, err
}

func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// New makes a runner. A relative path is relative to base, the folder of the config.
func New(base string, o Options) (*Runner, error) {
	if o.File == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "`file` is missing: it names the cassette")
	}
	f, err := os.Open(under(base, o.File))
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the cassette cannot be read: %w", err)
	}
	defer f.Close()
	tape, err := cassette.Read(f)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %s", o.File, tool.AsError(err).Message)
	}
	r := &Runner{o: o, tools: map[string]*track{}}
	for _, s := range tape.Tools {
		if s.Source == o.Source {
			r.tools[s.Name] = &track{calls: map[string][]*cassette.Call{}}
			r.specs = append(r.specs, played(s))
		}
	}
	if len(r.specs) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s has no calls of a source %q; `source` names one of: %s", o.File,
			o.Source, strings.Join(tape.Sources(), ", "))
	}
	for n, c := range tape.Calls {
		if c.Source != o.Source {
			continue
		}
		asked, err := r.question(c.Args, c.Answers, c.Resumed)
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s: call %d: %s", o.File, n+1, tool.AsError(err).Message)
		}
		t := r.tools[c.Tool]
		t.asked = append(t.asked, asked)
		t.calls[asked] = append(t.calls[asked], c)
	}
	return r, nil
}

// played returns a recorded tool as it is offered again. It keeps its effects and its tier although nothing happens, so that
// a policy decides as it would for the tool itself.
func played(was *tool.Spec) *tool.Spec {
	s := *was
	s.Source, s.Protocol, s.Timeout = "", "", 0
	return &s
}

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) { return r.specs, nil }

// Close implements tool.Runner. There is nothing to close.
func (r *Runner) Close(context.Context) error { return nil }

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	call, err := r.find(c)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	wait := func(millis int64) error {
		if r.o.Realtime && !tool.Sleep(ctx, time.Until(began.Add(time.Duration(millis)*time.Millisecond))) {
			return tool.Ended(ctx)
		}
		return nil
	}
	for _, ev := range call.Events {
		if err := errors.Join(wait(ev.Millis), play(ev, out)); err != nil {
			return nil, err
		}
	}
	if call.Cut {
		if err := out.Emit(tool.LogEvent("warn", "the cassette has no more of the events of this call")); err != nil {
			return nil, err
		}
	}
	if err := wait(call.Millis); err != nil {
		return nil, err
	}
	if e := call.Error; e != nil {
		return nil, &tool.Error{Code: e.Code, Reason: e.Reason, Message: e.Message, Details: e.Details}
	}
	was := call.Result
	return &tool.Result{OK: was.OK, Output: was.Output, Summary: was.Summary, Failure: was.Failure, Ask: was.Ask}, nil
}

// play emits a recorded event. The content of an asset is a file again while its event is emitted.
func play(ev cassette.Event, out tool.Sink) error {
	now := tool.Event{Kind: ev.Kind, Data: ev.Data}
	if ev.Content == nil {
		return out.Emit(now)
	}
	f, err := os.CreateTemp("", "toolpost-cassette-")
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "an asset of the cassette cannot be played: %w", err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if _, err := f.WriteAt(ev.Content, 0); err != nil {
		return tool.Errorf(tool.CodeUnavailable, "an asset of the cassette cannot be played: %w", err)
	}
	var a tool.Asset
	if err := strictjson.Unmarshal(ev.Data, &a); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "an asset of the cassette is none: %w", err)
	}
	a.Path = f.Name()
	if now.Data, err = strictjson.Marshal(a); err != nil {
		return err
	}
	now.File = f
	return out.Emit(now)
}

// find takes the recorded call that answers c.
func (r *Runner) find(c *tool.Call) (*cassette.Call, error) {
	asked, err := r.question(audit.Redacted(c.Args, nil), audit.Redacted(c.Answers, nil), c.Resume != "")
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tools[c.Tool]
	if t == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "the cassette has no tool named %q", c.Tool)
	}
	calls, known := t.calls[asked]
	switch {
	case len(calls) == 0 && known:
		return nil, tool.Errorf(tool.CodeNotFound, "%s was recorded with these arguments, but not that often: each recorded "+
			"call is played once; `loose` (`toolpost replay --loose`) repeats the last outcome", c.Tool).Because(cassette.NotRecorded)
	case len(calls) == 0:
		return nil, tool.Errorf(tool.CodeNotFound, "%s was not recorded with %s%s", c.Tool, shortened(asked), t.near(asked)).
			Because(cassette.NotRecorded)
	case len(calls) > 1 || !r.o.Loose:
		t.calls[asked] = calls[1:]
	}
	return calls[0], nil
}

// question returns what a call asks, in a canonical form.
func (r *Runner) question(args, answers json.RawMessage, resumed bool) (string, error) {
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	v, err := strictjson.Decode(args)
	if err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "its arguments cannot be read: %w", err)
	}
	text, err := strictjson.Marshal(r.alike(v))
	if err != nil || !resumed {
		return string(text), err
	}
	if len(answers) == 0 {
		return string(text) + " again", nil
	}
	if v, err = strictjson.Decode(answers); err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "its answers cannot be read: %w", err)
	}
	answer, err := strictjson.Marshal(r.alike(v))
	return string(text) + " with the answers " + string(answer), err
}

// alike returns a canonical form of a value: without ignored members, and with numbers in one notation.
func (r *Runner) alike(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if slices.Contains(r.o.Ignore, name) {
				delete(v, name)
			} else {
				v[name] = r.alike(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = r.alike(v[i])
		}
	case json.Number:
		const exact = 1 << 53 // up to here an integer is exact as a float
		if f, err := strconv.ParseFloat(string(v), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < exact {
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
	}
	return v
}

// Bounds of the search for similar arguments: it is only a hint, and not worth more.
const (
	maxPieces = 32
	maxNear   = 1000
)

// near names the recorded arguments that are most similar to asked.
func (t *track) near(asked string) string {
	pieces := strings.SplitN(asked[:min(len(asked), maxPieces<<10)], ",", maxPieces)
	best, most := "", -1
	for _, other := range t.asked[:min(len(t.asked), maxNear)] {
		n := 0
		for _, p := range pieces {
			if strings.Contains(other[:min(len(other), maxPieces<<10)], strings.Trim(p, "{}")) {
				n++
			}
		}
		if n > most {
			best, most = other, n
		}
	}
	if best == "" {
		return "; none of its calls was recorded"
	}
	return "; the nearest that was is " + shortened(best)
}

func shortened(text string) string {
	const most = 300
	if len(text) > most {
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:most], ""), len(text))
	}
	return text
}
