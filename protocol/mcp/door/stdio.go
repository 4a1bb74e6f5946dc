package door

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/bounded"
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
	// Agent, if it is set, returns the caller by the name that the client calls itself, "" if it has none. It is asked once:
	// a client cannot change its name later.
	Agent func(client string) (tool.Principal, error)
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
	open := &stdioDoor{
		live: live, unwatch: func() {},
		server: newServer(d.Options, h, c), caller: d.Caller, agent: d.Agent, out: jsonrpc.NewStream(d.Out, cancel),
		slots: make(chan struct{}, maxInFlight),
	}
	lines := bounded.NewLines(d.In, bounded.LineLimits{Line: maxLine, Open: true})
	err := jsonrpc.ReadLines(ctx, lines, func(line []byte) error {
		if len(bytes.TrimSpace(line)) > 0 {
			open.take(ctx, bytes.Clone(line))
		}
		return nil
	})
	over()
	var limit *bounded.LimitError
	if errors.As(err, &limit) {
		open.send(withoutID(jsonrpc.Errorf(jsonrpc.CodeParse, "Parse error: %v", limit)))
	}
	open.drain(ctx)
	cancel(nil)
	open.calls.Wait()
	open.watching.Wait()
	return open.out.Err()
}

// A stdioDoor is an open Door.
type stdioDoor struct {
	*server
	caller   tool.Principal
	out      *jsonrpc.Stream
	slots    chan struct{}
	calls    sync.WaitGroup
	inFlight mcp.InFlight
	live     context.Context // until In is closed; ends requests that would never end by themselves

	// Used only by the goroutine that reads:
	session *session // of a legacy client, once it has introduced itself
	unwatch func()   // stops notifying it of changes
	agent   func(client string) (tool.Principal, error)

	watching sync.WaitGroup
}

// drain waits for running calls: a client may send all its requests and then close In.
func (d *stdioDoor) drain(ctx context.Context) {
	finished := make(chan struct{})
	go func() { d.calls.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
}

func (d *stdioDoor) send(b []byte) {
	if len(b) == 0 || b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	_ = d.out.Send(context.Background(), nil, b) // the stream keeps the error
}

// take handles one message.
func (d *stdioDoor) take(ctx context.Context, text []byte) {
	r, bad := decode(text)
	if bad == nil && r.id != nil && r.method != "" && r.method != mcp.MethodPing {
		bad = d.identify(r)
	}
	r.caller = d.caller
	r.session = d.session
	r.modern = r.meta.version != "" || r.session == nil && r.method != mcp.MethodInitialize
	if r.modern {
		r.session = nil
	}
	switch {
	case bad != nil:
		d.send(refusal(r, bad))
	case r.method == "" && r.session != nil:
		r.session.take(text)
	case r.method == "":
	case r.id == nil:
		d.inFlight.HandleCancel(r.method, r.params)
	case r.method == mcp.MethodInitialize:
		d.handleInitialize(ctx, r)
	default:
		d.serve(ctx, r)
	}
}

// identify finds out, by the first request, who the client is.
func (d *stdioDoor) identify(r *request) *jsonrpc.Error {
	if d.agent == nil {
		return nil
	}
	var client struct {
		Name string `json:"name"`
	}
	_ = strictjson.Unmarshal(strictjson.OrEmpty(r.client), &client) // one that cannot be read has no name
	who, err := d.agent(client.Name)
	if err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", tool.AsError(err).Message)
	}
	d.caller, d.agent = who, nil
	return nil
}

// handleInitialize answers initialize.
func (d *stdioDoor) handleInitialize(ctx context.Context, r *request) {
	one, result, bad := d.initialize(ctx, r)
	if bad != nil {
		d.send(refusal(r, bad))
		return
	}
	d.session = one
	d.send(jsonrpc.EncodeReply(r.id, result.Done(), nil))
	d.unwatch()
	ctx, cancel := context.WithCancel(d.live)
	d.unwatch = cancel
	changes := d.watch(ctx, d.caller, one.subscription)
	d.watching.Go(func() {
		defer d.subscriptions.leave(d.caller.ID, one.subscription)
		changes.run(ctx, allChanges(), func(method string, params *strictjson.Writer) error {
			d.send(jsonrpc.EncodeNotification(method, params.Done()))
			return d.out.Err()
		})
	})
}

// serve answers a request when it is done. A cancelled request gets no answer.
func (d *stdioDoor) serve(ctx context.Context, r *request) {
	if r.modern {
		if bad := checkModern(r); bad != nil {
			d.send(refusal(r, bad))
			return
		}
	}
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	if r.method == mcp.MethodListen {
		ctx = d.live
	}
	ctx, leave, ok := d.inFlight.Enter(ctx, r.id)
	if !ok {
		<-d.slots
		d.send(refusal(r, mcp.DuplicateID()))
		return
	}
	d.calls.Go(func() {
		defer func() { <-d.slots }()
		reply, _ := d.answer(ctx, r, &stdioPeer{d, r.session})
		if !errors.Is(context.Cause(ctx), mcp.ErrCancelled) {
			d.send(reply)
		}
		leave()
	})
}

// A stdioPeer is the client of a stdioDoor, for one of its requests.
type stdioPeer struct {
	door    *stdioDoor
	session *session
}

var _ peer = (*stdioPeer)(nil)

func (p *stdioPeer) notify(method string, params []byte) error {
	p.door.send(jsonrpc.EncodeNotification(method, params))
	return p.door.out.Err()
}

func (p *stdioPeer) ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	if p.session == nil {
		return nil, errNoStream
	}
	return p.session.ask(ctx, method, params, func(b []byte) error { p.door.send(b); return p.door.out.Err() })
}

// begin does nothing: a client cancels by the id of its request, and the engine has its own id for the call.
func (p *stdioPeer) begin(ctx context.Context, _ *tool.Call) (context.Context, func(), *tool.Error) {
	return ctx, func() {}, nil
}
