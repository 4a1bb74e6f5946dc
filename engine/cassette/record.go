package cassette

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An Env is what a recorder needs of the surrounding program. None of it may be nil.
type Env struct {
	// Args and Clean remove secrets: from arguments, in which names count too, and from all other JSON. Bytes removes
	// them from the content of an asset.
	Args, Clean func(json.RawMessage) json.RawMessage
	Bytes       func([]byte) []byte
	// Asset opens an asset that a caller's call produced.
	Asset func(ctx context.Context, caller, sha256 string) (*os.File, tool.Asset, error)
	Log   *slog.Logger
}

// A Recorder writes a cassette.
type Recorder struct {
	env   Env
	mu    sync.Mutex
	file  *os.File
	known map[string][]byte // tools as they were written, by source and name
	err   error             // why the cassette is not complete
	calls int
}

// Create creates a file and begins a cassette in it. It does not overwrite an existing file.
func Create(path, version string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, tool.Errorf(tool.CodeConflict, "%s exists already, and a cassette is not written over; give another name",
			path)
	case err != nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "no cassette can be written: %w", err)
	}
	r := &Recorder{file: f, known: map[string][]byte{}}
	r.write(line{Cassette: &head{Version: Version, Toolpost: version, Made: time.Now().UTC()}})
	return r, r.err
}

// In sets the environment of the recorder. It must be called before any call is made.
func (r *Recorder) In(env Env) { r.env = env }

// For is the engine.Stage. Toolpost's own tools are not recorded: the replaying program has them too, and the calls that
// they make are on the cassette.
func (r *Recorder) For(spec *tool.Spec) tool.Middleware {
	if spec == nil || spec.Source == config.OwnSource {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			heard := &listener{r: r, out: out, caller: c.Caller.ID, ctx: ctx, began: time.Now()}
			result, err := next.Invoke(ctx, c, heard)
			if ctx.Err() == nil && !c.DryRun && !awaits(result) { // a call that its caller gave up has no outcome
				r.keep(spec, c, heard, result, err)
			}
			return result, err
		})
	}
}

// awaits reports whether a call must be approved first. It is made again, and only then is there an outcome to record: a
// replay has no approvers, or others.
func awaits(r *tool.Result) bool { return r != nil && r.Ask != nil && r.Ask.Kind == tool.AskApproval }

// answers reports whether a call answers a question of its tool. A call that was repeated after an approval does not: it
// is the call itself.
func answers(c *tool.Call) bool {
	return c.Resume != "" && (c.Record == nil || c.Record.Approval.ID != c.Resume)
}

// keep writes a call that has ended.
func (r *Recorder) keep(spec *tool.Spec, c *tool.Call, heard *listener, result *tool.Result, err error) {
	heard.mu.Lock()
	defer heard.mu.Unlock()
	own, keys := cmp.Or(spec.Own, spec.Name), secret.Of(c)
	call := &Call{
		Source: spec.Source, Tool: own, Args: keys.JSON(r.env.Args(c.Args)), Run: c.Run,
		At: heard.began.UTC(), Millis: time.Since(heard.began).Milliseconds(), Events: heard.events, Cut: heard.cut,
	}
	if answers(c) { // a tool may have asked for a password
		call.Resumed, call.Answers = true, keys.JSON(r.env.Args(c.Answers))
	}
	if err != nil {
		e := tool.AsError(keys.Error(err))
		call.Error = &tool.Error{Code: e.Code, Reason: e.Reason, Message: e.Message, Details: e.Details}
	} else {
		call.Result = &Result{result.OK, result.Output, result.Summary, result.Failure, result.Ask}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	r.describe(spec, own)
	r.write(line{Call: call})
	r.calls++
}

// describe writes a tool, unless the cassette has it already in this form.
func (r *Recorder) describe(spec *tool.Spec, own string) {
	s := *spec
	s.Name, s.Own, s.Slug, s.Walls, s.Guarantees = own, "", "", "", tool.Guarantees{}
	now, err := strictjson.Marshal(s)
	key := s.Source + "\x00" + own
	if err != nil || bytes.Equal(r.known[key], now) {
		return
	}
	r.known[key] = now
	r.write(line{Tool: &s})
}

// write writes a line whole, or notes that the cassette is incomplete.
func (r *Recorder) write(l line) {
	text, err := strictjson.Marshal(l)
	if err == nil && l.Cassette == nil {
		text = r.env.Clean(text) // the whole line once more, to be sure
	}
	if err == nil && len(text) >= maxLine && l.Call != nil {
		l.Call.Events, l.Call.Result = nil, nil
		l.Call.Error = tool.Errorf(tool.CodeUnavailable, "what it gave was too large for a cassette: %d bytes", len(text))
		text, err = strictjson.Marshal(l)
	}
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if err != nil {
		r.err = tool.Errorf(tool.CodeUnavailable, "the cassette %s is not complete: %w", r.file.Name(), err)
		if r.env.Log != nil {
			r.env.Log.Error("calls are no longer recorded", "error", r.err)
		}
	}
}

// Close ends the cassette, and returns how many calls it has.
func (r *Recorder) Close() (calls int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls, errors.Join(r.err, r.file.Sync(), r.file.Close())
}

// A listener records the events of one call.
type listener struct {
	r      *Recorder
	out    tool.Sink
	ctx    context.Context
	caller string
	began  time.Time

	mu     sync.Mutex
	events []Event
	said   int
	cut    bool
}

// Emit implements tool.Sink.
func (l *listener) Emit(ev tool.Event) error {
	l.hear(ev)
	return l.out.Emit(ev)
}

func (l *listener) hear(ev tool.Event) {
	e := Event{Millis: time.Since(l.began).Milliseconds(), Kind: ev.Kind, Data: ev.Data}
	if ev.Kind == tool.KindAsset {
		e = l.withContent(e)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said += len(e.Data); l.cut || l.said > maxSaid || len(l.events) >= maxEvents {
		l.cut = true
		return
	}
	l.events = append(l.events, e)
}

// withContent adds the content of an asset to its description. It drops the path, which is useless for a replay.
func (l *listener) withContent(e Event) Event {
	var a tool.Asset
	if strictjson.Unmarshal(e.Data, &a) != nil || a.SHA256 == "" || a.Size > maxContent {
		return e
	}
	f, _, err := l.r.env.Asset(l.ctx, l.caller, a.SHA256)
	if err != nil {
		return e
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxContent+1))
	if err != nil || len(content) > maxContent {
		return e
	}
	a.Path, a.SHA256, a.Size = "", "", 0
	if data, err := strictjson.Marshal(a); err == nil {
		e.Data, e.Content = data, l.r.env.Bytes(content)
	}
	return e
}
