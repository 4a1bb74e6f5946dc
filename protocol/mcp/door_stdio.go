package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A Door is an MCP server on stdin and stdout. It speaks both eras: after initialize, a request without a version is
// legacy.
type Door struct {
	Options
	In     io.Reader
	Out    io.Writer // one message per Write, and nothing else
	Caller tool.Principal
}

var _ tool.Door = (*Door)(nil)

// Bounds on one client.
const (
	maxLine     = 8 << 20
	maxInFlight = 4096
)

// Serve answers until the client closes In, or ctx ends.
func (d *Door) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	live, over := context.WithCancel(ctx)
	defer over()
	l := &line{
		live: live, unwatch: func() {},
		server: newServer(d.Options, h, c), caller: d.Caller, out: jsonrpc.NewStream(d.Out, cancel),
		places: make(chan struct{}, maxInFlight),
	}
	err := l.read(ctx, process.NewLines(d.In, process.LineLimits{Line: maxLine, Open: true}))
	over()
	var limit *process.LimitError
	if errors.As(err, &limit) {
		l.send(withoutID(jsonrpc.Errorf(jsonrpc.CodeParse, "Parse error: %v", limit)))
	}
	l.drain(ctx)
	cancel(nil)
	l.calls.Wait()
	l.watching.Wait()
	return l.out.Err()
}

// A line is an open Door.
type line struct {
	*server
	caller   tool.Principal
	out      *jsonrpc.Stream
	places   chan struct{}
	calls    sync.WaitGroup
	inFlight inFlight
	live     context.Context // until In is closed; ends requests that would never end by themselves

	// Used only by the goroutine that reads:
	session *session // of a legacy client, once it has introduced itself
	unwatch func()   // stops notifying it of changes

	watching sync.WaitGroup
}

// read handles messages until there are no more.
func (l *line) read(ctx context.Context, in *process.Lines) error {
	type read struct {
		text []byte
		err  error
	}
	lines, taken := make(chan read), make(chan struct{})
	go func() { // a read cannot be interrupted: if ctx ends first, the goroutine stays until In ends
		for {
			text, err := in.Next()
			select {
			case lines <- read{text, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			select {
			case <-taken:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case got := <-lines:
			if got.err != nil {
				return got.err
			}
			if len(bytes.TrimSpace(got.text)) > 0 {
				l.take(ctx, bytes.Clone(got.text))
			}
			taken <- struct{}{}
		}
	}
}

// drain waits for running calls: a client may send all its requests and then close In.
func (l *line) drain(ctx context.Context) {
	finished := make(chan struct{})
	go func() { l.calls.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
}

func (l *line) send(b []byte) {
	if len(b) == 0 || b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	_ = l.out.Send(context.Background(), nil, b) // the stream keeps the error
}

// take handles one message.
func (l *line) take(ctx context.Context, text []byte) {
	r, bad := decode(text)
	r.caller = l.caller
	r.session = l.session
	r.modern = r.meta.version != "" || r.session == nil && r.method != methodInitialize
	if r.modern {
		r.session = nil
	}
	switch {
	case bad != nil:
		l.send(refusal(r, bad))
	case r.method == "" && r.session != nil:
		r.session.take(text)
	case r.method == "":
	case r.id == nil:
		l.inFlight.handleCancel(r.method, r.params)
	case r.method == methodInitialize:
		l.meet(r)
	default:
		l.serve(ctx, r)
	}
}

// meet answers initialize.
func (l *line) meet(r *request) {
	one, result, bad := l.initialize(r)
	if bad != nil {
		l.send(refusal(r, bad))
		return
	}
	l.session = one
	l.send(jsonrpc.EncodeReply(r.id, result.Done(), nil))
	l.unwatch()
	ctx, cancel := context.WithCancel(l.live)
	l.unwatch = cancel
	changes := l.watch(ctx, l.caller, one.subscription)
	l.watching.Go(func() {
		defer l.subscriptions.leave(l.caller.ID, one.subscription)
		changes.run(ctx, everything(), func(method string, params *strictjson.Writer) error {
			l.send(jsonrpc.EncodeNotification(method, params.Done()))
			return l.out.Err()
		})
	})
}

// serve answers a request when it is done. A cancelled request gets no answer.
func (l *line) serve(ctx context.Context, r *request) {
	if r.modern {
		if bad := checkModern(r); bad != nil {
			l.send(refusal(r, bad))
			return
		}
	}
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return
	}
	if r.method == methodListen {
		ctx = l.live
	}
	ctx, leave, ok := l.inFlight.enter(ctx, r.id)
	if !ok {
		<-l.places
		l.send(refusal(r, errTwice()))
		return
	}
	l.calls.Go(func() {
		defer func() { <-l.places }()
		reply, _ := l.answer(ctx, r, &wire{l, r.session})
		if !errors.Is(context.Cause(ctx), errCancelled) {
			l.send(reply)
		}
		leave()
	})
}

func errTwice() *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: a request with this id is still being answered")
}

// A wire is the client of a line, for one of its requests.
type wire struct {
	line    *line
	session *session
}

var _ peer = (*wire)(nil)

func (w *wire) notify(method string, params []byte) error {
	w.line.send(jsonrpc.EncodeNotification(method, params))
	return w.line.out.Err()
}

func (w *wire) ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	if w.session == nil {
		return nil, errNoStream
	}
	return w.session.ask(ctx, method, params, func(b []byte) error { w.line.send(b); return w.line.out.Err() })
}

// begin does nothing: a client cancels by the id of its request, and the engine has its own id for the call.
func (w *wire) begin(ctx context.Context, _ *tool.Call) (context.Context, func(), *tool.Error) {
	return ctx, func() {}, nil
}
