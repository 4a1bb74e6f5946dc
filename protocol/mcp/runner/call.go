package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/host/worker"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// An upstreamCall is one call on its way to a server. It runs apart from the Invoke that began it: a legacy server asks
// in the middle of a call, and then the Invoke ends with the question while the upstream call waits for the next Invoke
// to bring the answer.
type upstreamCall struct {
	r     *Runner
	call  *tool.Call
	tool  *upstreamTool
	level int // the least severe messages that it wants: an index of mcp.Levels

	ctx      context.Context // ends with the call, or when its question expires
	cancel   context.CancelCauseFunc
	requests chan *serverRequest // questions of the server
	ended    chan struct{}       // closed with result and err
	result   *tool.Result
	err      error

	paused atomic.Bool // waiting for an answer

	mu     sync.Mutex
	events *tool.Relay // nil if no Invoke is following

	// What a modern server gets when the call is repeated.
	responses json.RawMessage
	state     *string
	task      string // the server's id of a task that continues without us

	layers []string // the walls around the program that got the call
}

var _ worker.Pausing = (*upstreamCall)(nil)

func (r *Runner) newUpstreamCall(c *tool.Call, o *upstreamTool) *upstreamCall {
	return &upstreamCall{
		r: r, call: c, tool: o, level: r.levelFor(c.LogLevel), requests: make(chan *serverRequest), ended: make(chan struct{}),
	}
}

// run begins the upstream call and waits for its end or its first question.
func (u *upstreamCall) run(ctx context.Context, out tool.Sink, do func(*upstreamCall) (*tool.Result, error)) (*tool.Result, error) {
	// Keep the values of ctx; its end counts only while an Invoke waits.
	u.ctx, u.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	forget := context.AfterFunc(u.r.life, func() {
		u.cancel(tool.Errorf(tool.CodeUnavailable, "the server is no longer used"))
	})
	return u.wait(ctx, out, func() {
		u.r.levels.running[u.level].Add(1)
		u.r.running.Go(func() {
			defer close(u.ended)
			defer u.r.levels.running[u.level].Add(-1)
			defer u.cancel(nil)
			defer forget()
			u.result, u.err = do(u)
		})
	})
}

// wait waits for the upstream call on behalf of an Invoke.
func (u *upstreamCall) wait(ctx context.Context, out tool.Sink, begin func()) (*tool.Result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	events := tool.NewRelay(out, stop)
	u.setEvents(events)
	defer events.Close()
	defer u.setEvents(nil)
	begin()
	select {
	case <-u.ended:
	case q := <-u.requests:
		return u.r.questions.ask(u.call, []tool.Need{q.need}, u.resumeWith(q), func() { u.cancel(errUnanswered) })
	case <-ctx.Done():
		u.cancel(context.Cause(ctx))
		<-u.ended
	}
	if failed := events.Err(); failed != nil {
		return nil, failed
	}
	return u.result, u.err
}

var errUnanswered error = tool.Errorf(tool.CodeTimeout, "the question of the server was not answered in time").
	Because("not_answered")

func (u *upstreamCall) setEvents(events *tool.Relay) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.events = events
}

// Events implements worker.Scope.
func (u *upstreamCall) Events() *tool.Relay {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.events
}

// Paused implements worker.Pausing.
func (u *upstreamCall) Paused() bool { return u.paused.Load() }

// emit passes an event on, if an Invoke is following.
func (u *upstreamCall) emit(ev tool.Event) {
	if events := u.Events(); events != nil {
		_ = events.Emit(ev) // the relay keeps an error and ends the call
	}
}

// maxTurns bounds how often a server may have a call repeated without a question to the caller.
const maxTurns = 16

// execute makes the call, and repeats it as long as the server needs no answer from the caller.
func (u *upstreamCall) execute() (*tool.Result, error) {
	for turn := 1; ; turn++ {
		q := u.query()
		raw, err := u.r.upstream.ask(u.ctx, q)
		if rpcErr := answeredError(err); rpcErr != nil && rpcErr.Code == mcp.CodeHeaderMismatch && turn == 1 && u.relistTool() {
			continue
		}
		if err != nil {
			return u.unanswered(err)
		}
		res, again, err := u.outcome(raw, q.server)
		if !again {
			return res, err
		}
		if turn == maxTurns {
			return nil, tool.Errorf(tool.CodeProtocol,
				"the server has %s called again and again, and gives no result", u.call.Tool)
		}
	}
}

// relistTool lists the tools again: the server's definition of the tool differs from the one that we know.
func (u *upstreamCall) relistTool() bool {
	u.r.stale.Store(true)
	if _, err := u.r.Tools(u.ctx); err != nil {
		return false
	}
	u.r.Tell() // a stage that holds back changed tools has not seen them
	one, err := u.r.find(u.ctx, u.call.Tool)
	if err == nil {
		u.tool = one
	}
	return err == nil
}

func (u *upstreamCall) query() *query {
	args := strictjson.OrEmpty(u.call.Args)
	return &query{
		method: cmp.Or(u.tool.method, mcp.MethodCallTool), name: u.tool.subject(args), header: u.tool.mirrorHeaders(args),
		call: u.call, owner: u,
		params: func(info *serverInfo, w *strictjson.Writer) {
			u.tool.write(w, args)
			switch {
			case info.modern && u.responses != nil:
				w.Raw("inputResponses", u.responses)
			case u.asTask(info):
				w.Raw("task", []byte("{}"))
			}
			if info.modern && u.state != nil {
				w.Text("requestState", *u.state)
			}
		},
	}
}

// outcome reads an answer to the call. again is true if the call is to be repeated at once.
func (u *upstreamCall) outcome(raw json.RawMessage, info *serverInfo) (_ *tool.Result, again bool, _ error) {
	a, err := readAnswer(raw)
	if err != nil {
		return nil, false, tool.Errorf(tool.CodeProtocol,
			"the answer to %s cannot be read: %s", u.call.Tool, jsonrpc.Misread(err))
	}
	kind := a.kind
	if !info.modern { // result types exist only in the modern era
		kind = ""
		if a.task != nil && u.asTask(info) {
			res, err := u.awaitTask(a.task)
			return res, false, err
		}
	}
	switch kind {
	case "", mcp.ResultComplete:
		res, err := u.complete(a, info)
		return res, false, err
	case mcp.ResultAsks:
		return u.inputRequired(a)
	case mcp.ResultTask:
		res, err := u.poll(raw)
		return res, false, err
	}
	return nil, false, tool.Errorf(tool.CodeProtocol,
		"the server answers %s with a result of the unknown kind %q", u.call.Tool,
		jsonrpc.Clip(kind))
}

// unanswered returns the outcome of a call without a result: the server refused it, or did not answer.
func (u *upstreamCall) unanswered(err error) (*tool.Result, error) {
	switch rpcErr := answeredError(err); {
	case rpcErr != nil:
		return u.errorOutcome(rpcErr)
	case u.ctx.Err() != nil:
		ended := *tool.AsError(context.Cause(u.ctx))
		ended.Message = fmt.Sprintf("%s was given up: %s", u.call.Tool, ended.Message)
		return nil, &ended
	}
	return nil, err
}

// codeLinkRequired is the code of the legacy era for a call before which the user must follow a link.
const codeLinkRequired = -32042

// errorOutcome interprets an error answer: the call has no outcome, or the server reports in this way that a tool
// failed.
func (u *upstreamCall) errorOutcome(rpcErr *jsonrpc.Error) (*tool.Result, error) {
	name, why := u.call.Tool, jsonrpc.Clip(rpcErr.Message)
	switch rpcErr.Code {
	case jsonrpc.CodeMethodNotFound, mcp.CodeNoResource:
		return nil, tool.Errorf(tool.CodeNotFound, "the server does not know %s: %s", name, why)
	case jsonrpc.CodeInvalidParams:
		return nil, tool.Errorf(tool.CodeInvalidInput, "the server does not take the call of %s: %s", name, why)
	case jsonrpc.CodeParse, jsonrpc.CodeInvalidRequest, mcp.CodeHeaderMismatch, mcp.CodeBadVersion, mcp.CodeMissingCapability:
		return nil, tool.Errorf(tool.CodeProtocol, "the server did not understand the call of %s: %s", name, why)
	case codeLinkRequired:
		return u.linkRequired(rpcErr)
	}
	if why == "" {
		why = "the tool failed and did not say why"
	}
	return tool.Failed(fmt.Sprint(rpcErr.Code), why), nil
}

// early handles messages of a server that must not queue behind a question.
func (r *Runner) early(in *jsonrpc.Incoming, open *mcp.InFlight, answer func([]byte)) bool {
	switch in.Method {
	case mcp.NoteToolsChanged, mcp.NotePromptsChanged, mcp.NoteListChanged:
		r.changed()
	case mcp.NoteUpdated:
		r.updated(in.Params)
	case mcp.NoteAcknowledged:
		r.updates.opened.Tell()
	case mcp.NoteCancelled:
		open.HandleCancel(in.Method, in.Params)
	case mcp.MethodPing:
		if in.ID != nil {
			answer([]byte("{}"))
		}
	default:
		return false
	}
	return true
}

// serve answers a request of a server, for the call that it belongs to, or with a nil upstreamCall if there is none.
// gone is closed when the server has gone.
func (r *Runner) serve(
	in *jsonrpc.Incoming, u *upstreamCall, info *serverInfo, open *mcp.InFlight, gone <-chan struct{},
) (json.RawMessage, *jsonrpc.Error) {
	switch in.Method {
	case mcp.NoteProgress:
		if u != nil {
			u.progress(in.Params)
		}
	case mcp.NoteMessage:
		r.message(in.Params, u)
	case mcp.MethodElicit, mcp.MethodSample, mcp.MethodRoots:
		switch {
		case in.ID == nil:
		case info != nil && info.modern:
			return nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound,
				"%s: in %s a server asks with a result that is input_required",
				in.Method, mcp.ModernVersion)
		case in.Method == mcp.MethodRoots && len(r.o.Roots) == 0:
			return nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "%s: we have said that we have none", in.Method)
		case in.Method == mcp.MethodRoots:
			return r.rootsAnswer(), nil
		case u != nil:
			return u.awaitAnswer(in, open, gone)
		default:
			r.log.Warn("a question of the server could not be asked: it belongs to no call, or to one of several; "+
				"with `concurrency: 1` it would be known which", "method", in.Method)
			return nil, jsonrpc.Errorf(jsonrpc.CodeServer, "%s: cannot tell which call this belongs to", in.Method)
		}
	default:
		if in.ID != nil {
			return nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "Method not found: %s", jsonrpc.Clip(in.Method))
		}
	}
	return nil, nil
}

// progress forwards the progress of the call.
func (u *upstreamCall) progress(params json.RawMessage) {
	var p tool.Progress
	if strictjson.Unmarshal(strictjson.OrEmpty(params), &p) == nil {
		u.emit(tool.NewEvent(tool.KindProgress, p))
	}
}

// levels are the log levels that the running calls of a server want.
type levels struct {
	running [8]atomic.Int32 // calls, by the index in mcp.Levels
	setting chan struct{}   // has room for one: the server is told one level at a time
}

// levelFor returns the index of the level for a call whose client wants asked. A level in the config is the same for all.
func (r *Runner) levelFor(asked string) int {
	level := slices.Index(mcp.Levels(), cmp.Or(r.o.LogLevel, "info"))
	if wanted := slices.Index(mcp.Levels(), asked); r.o.LogLevel == "" && wanted >= 0 {
		level = min(level, wanted)
	}
	return level
}

// setLevel has a legacy server, which has one level for all callers, send what the running calls want.
func (r *Runner) setLevel(ctx context.Context, info *serverInfo, send func(ctx context.Context, level string)) {
	if info.modern || info.capabilities.Logging == nil {
		return
	}
	select {
	case r.levels.setting <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-r.levels.setting }()
	lowest := r.levelFor("")
	for i := lowest - 1; i >= 0; i-- {
		if r.levels.running[i].Load() > 0 {
			lowest = i
		}
	}
	if level := mcp.Levels()[lowest]; info.level != level {
		info.level = level
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		send(ctx, level) // whether the server honours it, or answers at all, does not matter
	}
}

// message forwards a message of the server; one that belongs to no call goes to the log.
func (r *Runner) message(params json.RawMessage, u *upstreamCall) {
	var msg struct {
		Level  string          `json:"level"`
		Logger string          `json:"logger"`
		Data   json.RawMessage `json:"data"`
	}
	if strictjson.Unmarshal(strictjson.OrEmpty(params), &msg) != nil {
		return
	}
	log := tool.Log{Level: levelOf(msg.Level), Message: jsonrpc.Text(msg.Data), Logger: msg.Logger}
	if i := slices.Index(mcp.Levels(), msg.Level); i >= 0 {
		if log.Severity = msg.Level; u != nil && i < u.level {
			return // another call wants it, or the server ignores the level
		}
	}
	switch strictjson.KindOf(msg.Data) {
	case "string":
	case "object":
		var own struct { // as another Toolpost sends it
			Message string          `json:"message"`
			Fields  json.RawMessage `json:"fields"`
		}
		log.Message, log.Fields = string(msg.Data), msg.Data
		if strictjson.UnmarshalClosed(msg.Data, &own) == nil && own.Message != "" && strictjson.KindOf(own.Fields) == "object" {
			log.Message, log.Fields = own.Message, own.Fields
		}
	default:
		log.Message, log.Data = string(msg.Data), msg.Data
	}
	if u != nil {
		u.emit(tool.NewEvent(tool.KindLog, log))
		return
	}
	r.serverLog.log(r.log, "level", log.Level, "message", jsonrpc.Clip(log.Message))
}

// A limitedLog logs a server's unrelated messages, at a limited rate.
type limitedLog struct {
	mu      sync.Mutex
	until   time.Time // end of the current minute
	lines   int       // logged in this minute
	dropped int
}

// maxLogLines bounds the log lines of a server per minute.
const maxLogLines = 60

func (l *limitedLog) log(to *slog.Logger, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.After(l.until) {
		if l.dropped > 0 {
			to.Warn("the server said more than is written down", "lines", l.dropped)
		}
		l.until, l.lines, l.dropped = now.Add(time.Minute), 0, 0
	}
	if l.lines++; l.lines > maxLogLines {
		l.dropped++
		return
	}
	to.Info("the server says", args...)
}

// levelOf converts a level of the protocol to ours.
func levelOf(level string) string {
	switch level {
	case "debug", "error":
		return level
	case "warning":
		return "warn"
	case "critical", "alert", "emergency":
		return "error"
	}
	return "info"
}
