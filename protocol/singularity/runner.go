package singularity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// Options are the fields of a source with protocol singularity. Only the url is needed.
type Options struct {
	Connect
	Tools   []Declared      `yaml:"tools" doc:"tools of a server that speaks the contract; default: the server is a Toolpost and is asked for its tools"`
	Style   string          `yaml:"style" schema:"enum=plain|tool_call default=plain" doc:"how declared tools are called: with plain arguments, or as OpenAI tool calls"`
	Timeout config.Duration `yaml:"timeout" doc:"time limit of calls whose tool sets none; default: the contract's for its subjects, otherwise limits.timeout"`
}

// Declared is a tool of a server that cannot list its tools.
type Declared struct {
	Name        string          `yaml:"name" doc:"name of the tool; with style tool_call also the function's name"`
	Title       string          `yaml:"title" doc:"display name"`
	Description string          `yaml:"description" doc:"what the tool does and when to use it"`
	Subject     string          `yaml:"subject" doc:"where requests go; default: the contract's subject for this name, otherwise tools.execute.NAME"`
	Input       config.JSON     `yaml:"input" doc:"JSON Schema of the arguments"`
	Output      config.JSON     `yaml:"output" doc:"JSON Schema of the result"`
	Effects     tool.Effects    `yaml:"effects" doc:"what the tool does to the world"`
	Tier        *int            `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects, and 1 if nothing is known of them"`
	Timeout     config.Duration `yaml:"timeout" doc:"time limit of one call; default: the source's timeout"`
}

// The styles of Options.
const (
	stylePlainName    = "plain"
	styleToolCallName = "tool_call"
)

// withDefaults completes the declared tools, and finds errors that would otherwise only show in a call.
func (o Options) withDefaults() (Options, error) {
	o.Style = cmp.Or(o.Style, stylePlainName)
	if o.Style != stylePlainName && o.Style != styleToolCallName {
		return o, tool.Errorf(tool.CodeInvalidInput, "the style %q is not known: there are %s and %s", o.Style,
			stylePlainName, styleToolCallName)
	}
	o.Tools = slices.Clone(o.Tools)
	seen := map[string]bool{}
	for i := range o.Tools {
		d := &o.Tools[i]
		switch {
		case d.Name == "":
			return o, tool.Errorf(tool.CodeInvalidInput, "a declared tool has no name")
		case seen[d.Name]:
			return o, tool.Errorf(tool.CodeInvalidInput, "two declared tools are called %q", d.Name)
		}
		seen[d.Name] = true
		subject, limit := subjectOf(d.Name)
		d.Subject, d.Timeout = cmp.Or(d.Subject, subject), cmp.Or(d.Timeout, o.Timeout, config.Duration(limit))
		if !plainSubject(d.Subject) || envelope.CheckText(d.Subject) != nil {
			return o, tool.Errorf(tool.CodeInvalidInput,
				"%q cannot be the subject of %s: no spaces, no wildcards, no empty parts, at most %d bytes", d.Subject,
				d.Name, maxField)
		}
	}
	return o, nil
}

// subjectOf returns the default subject of a tool.
func subjectOf(name string) (string, time.Duration) {
	for _, s := range contractSubjects() {
		if s.tool == name {
			return s.subject, s.limit
		}
	}
	return prefixExecute + EncodeName(name), 0
}

// A Runner calls tools over NATS: those of another Toolpost node, or declared ones of any server that speaks the contract.
type Runner struct {
	o       Options
	nc      *nats.Conn
	mux     *mux
	foreign map[string]Declared // nil for a Toolpost node

	tool.Changes             // of a node's tools
	stale        atomic.Bool // the node announced a change since it last listed its tools

	mu    sync.Mutex
	specs []*tool.Spec
	walls map[string]tool.Guarantees // guarantees that a node promises for each tool, renewed with every listing
}

var (
	_ tool.Runner   = (*Runner)(nil)
	_ tool.Source   = (*Runner)(nil)
	_ tool.Changing = (*Runner)(nil)
)

// Open makes the runner of a configured source.
func Open(ctx context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	var o Options
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	o.Connect = o.Resolve(src.Dir)
	return tool.Opened(New(ctx, o, log))
}

// Claim returns the files that belong to a configured source.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o Options
	err := src.Decode(&o)
	return o.Connect.claim(src.Dir), err
}

// New connects. A node must be reachable, because it is asked for its tools; a server whose tools are declared is waited for
// in the background.
func New(ctx context.Context, o Options, log *slog.Logger) (*Runner, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	more, err := o.options()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, tool.Ended(ctx)
	}
	r := &Runner{o: o, mux: newMux()}
	r.nc, err = dial(o.URL, o.shown(), log, append(more,
		nats.RetryOnFailedConnect(len(o.Tools) > 0),
		nats.ReconnectBufSize(-1), // a call that cannot be sent now fails now
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { r.mux.fail(r.lost(err)) }),
		nats.ReconnectHandler(func(*nats.Conn) { // changes in the meantime were not announced to us
			log.Info("connected to NATS again", "server", o.shown())
			r.changed()
		}))...)
	if err != nil {
		return nil, err
	}
	if err = r.mux.listen(r.nc); err == nil {
		err = r.learn(ctx)
	}
	if err != nil {
		r.nc.Close()
		return nil, err
	}
	return r, nil
}

// learn finds out which tools exist.
func (r *Runner) learn(ctx context.Context) error {
	if len(r.o.Tools) == 0 {
		if _, err := r.nc.Subscribe(subjectChanged, func(*nats.Msg) { r.changed() }); err != nil {
			return tool.Errorf(tool.CodeUnavailable, "cannot listen for changes of the tools at %s: %w", r.o.shown(),
				err)
		}
		return r.ask(ctx)
	}
	r.foreign = map[string]Declared{}
	for _, d := range r.o.Tools {
		r.foreign[d.Name] = d
		spec := &tool.Spec{
			Name: d.Name, Title: d.Title, Description: d.Description,
			Input: json.RawMessage(d.Input), Output: json.RawMessage(d.Output),
			Effects: d.Effects, Timeout: time.Duration(d.Timeout),
		}
		spec.Declare(d.Tier, tool.TierConfig)
		r.specs = append(r.specs, spec)
	}
	return nil
}

// changed reports that a node's tools may have changed. Declared tools never do.
func (r *Runner) changed() {
	if len(r.o.Tools) == 0 {
		r.stale.Store(true)
		r.Tell()
	}
}

// ask asks a node for its tools.
func (r *Runner) ask(ctx context.Context) error {
	specs, err := discover(ctx, r.nc, r.o.shown())
	if err != nil {
		return err
	}
	walls := make(map[string]tool.Guarantees, len(specs))
	for _, s := range specs {
		walls[s.Name] = s.Guarantees
		if s.Timeout == 0 {
			s.Timeout = time.Duration(r.o.Timeout)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.specs, r.walls = specs, walls
	return nil
}

// Tools implements tool.Source. It includes tools that cannot be called at the moment; the other side reports the reason
// when they are called. A node is asked again after it has announced a change.
func (r *Runner) Tools(ctx context.Context) ([]*tool.Spec, error) {
	if r.stale.Swap(false) {
		if err := r.ask(ctx); err != nil {
			r.stale.Store(true)
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.specs, nil
}

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error {
	r.nc.Close()
	return nil
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if ctx.Err() != nil {
		return nil, tool.Ended(ctx)
	}
	if err := r.covered(c); err != nil {
		return nil, err
	}
	p := r.mux.open()
	defer r.mux.close(p)
	c = c.Forwarded()
	a := &asking{r: r, p: p, out: out, id: c.ID}
	write := a.toNode // in the form that the receiver reads
	if r.foreign != nil {
		write = a.toServer
	}
	msg, err := write(ctx, c)
	if err == nil {
		err = r.send(msg)
	}
	if err != nil {
		return nil, err
	}
	return a.await(ctx)
}

// covered refuses a call that needs guarantees which the other side has not promised: we can enforce none there.
func (r *Runner) covered(c *tool.Call) error {
	if c.Spec == nil {
		return nil
	}
	asked := c.Tightened(tool.Guarantees{})
	r.mu.Lock()
	held, known := r.walls[c.Tool]
	r.mu.Unlock()
	if known && r.foreign == nil && held.Covers(asked) {
		return nil
	}
	return sandbox.Elsewhere(c.Tool, asked)
}

// send publishes a request, or returns at once why it cannot.
func (r *Runner) send(msg *nats.Msg) error {
	if most := r.nc.MaxPayload(); most > 0 && int64(msg.Size()) > most {
		return tool.Errorf(tool.CodeInvalidInput,
			"the arguments make a message of %d bytes, and the NATS server at %s carries %d", msg.Size(), r.o.shown(),
			most).Because("too_large")
	}
	err := nats.ErrDisconnected
	if r.nc.IsConnected() {
		err = r.nc.PublishMsg(msg)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // lost since the check above
		err = nats.ErrDisconnected
	}
	if why := r.nc.LastError(); why != nil && errors.Is(err, nats.ErrDisconnected) {
		err = why
	}
	return tool.Errorf(tool.CodeUnavailable,
		"the NATS server at %s is not there (%w); the connection is tried again in the background", r.o.shown(),
		err).Because("disconnected")
}

// lost returns the error of a call whose answer can no longer come.
func (r *Runner) lost(err error) *tool.Error {
	why := "it was closed"
	if err != nil {
		why = err.Error()
	}
	return tool.Errorf(tool.CodeCrash, "the connection to the NATS server at %s was lost (%s) before the call had an "+
		"outcome; it may have run", r.o.shown(), why).Because("disconnected")
}

// An asking is one call on its way.
type asking struct {
	r       *Runner
	p       *pending
	out     tool.Sink
	id      string // our name for the call on the wire
	subject string
	decode  func([]byte) (*tool.Result, error)
}

func (a *asking) toNode(ctx context.Context, c *tool.Call) (*nats.Msg, error) {
	token := EncodeName(c.Tool)
	if token == "" || len(token) > maxField {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %.100q", c.Tool)
	}
	body, err := encodeNative(c)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s cannot be sent: %w", c.Tool, err)
	}
	msg := &nats.Msg{
		Subject: prefixExecute + token, Reply: a.r.mux.replyTo(a.p), Data: body,
		Header: nats.Header{headerStyle: {nativeStyle}, headerStream: {a.r.mux.eventsTo(a.p)}, headerAck: {"true"}},
	}
	a.subject, a.decode = msg.Subject, decodeNative
	sent := *c
	sent.Answers = nil // they are in the body, which has more room
	return msg, envelope.Write(msg.Header, &sent, envelope.Left(ctx))
}

// toServer writes a request for a server that knows only the contract, and so without headers.
func (a *asking) toServer(_ context.Context, c *tool.Call) (*nats.Msg, error) {
	d, ok := a.r.foreign[c.Tool]
	if !ok {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q is declared for the NATS server at %s", c.Tool,
			a.r.o.shown())
	}
	body := []byte(c.Args)
	if len(body) == 0 {
		body = []byte(`{}`)
	}
	a.subject, a.decode = d.Subject, decodePlain
	if a.r.o.Style == styleToolCallName {
		var err error
		if body, err = encodeToolCall(a.id, d.Name, body); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s cannot be sent: %w", c.Tool, err)
		}
		a.decode = func(reply []byte) (*tool.Result, error) { return decodeToolReply(a.id, reply) }
	}
	return &nats.Msg{Subject: d.Subject, Reply: a.r.mux.replyTo(a.p), Data: body}, nil
}

// await passes events on until the reply comes.
func (a *asking) await(ctx context.Context) (*tool.Result, error) {
	for {
		select {
		case <-ctx.Done():
			a.abandon()
			return nil, tool.Ended(ctx)
		case <-a.p.wake:
		}
		messages, broken := a.p.take()
		for i, m := range messages {
			if isReply(m) {
				return a.outcome(m)
			}
			if err := a.event(m); err != nil {
				if !slices.ContainsFunc(messages[i:], isReply) {
					a.abandon()
				}
				return nil, err
			}
		}
		if broken != nil {
			a.abandon()
			return nil, broken
		}
	}
}

func isReply(m *nats.Msg) bool { return !strings.HasSuffix(m.Subject, eventsToken) }

func (a *asking) event(m *nats.Msg) error {
	var e tool.Event
	if err := strictjson.Unmarshal(m.Data, &e); err != nil {
		return tool.Errorf(tool.CodeProtocol, "the node sent an event that cannot be read: %w", err)
	}
	if err := strictjson.CheckObject(e.Data); err != nil {
		return tool.Errorf(tool.CodeProtocol, "the node sent an event whose data cannot be read: %w", err)
	}
	if err := a.out.Emit(e); err != nil {
		return err
	}
	if m.Reply != "" {
		return m.Respond(nil)
	}
	return nil
}

func (a *asking) outcome(m *nats.Msg) (*tool.Result, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nil, tool.Errorf(tool.CodeUnavailable,
			"no program answers %s on the NATS server at %s: is the program that has this tool running?", a.subject,
			a.r.o.shown()).Because("no_responders")
	}
	res, err := a.decode(m.Data)
	if res != nil && res.Trace.Details == nil {
		res.Trace.Details = map[string]any{"subject": a.subject}
	}
	return res, err
}

const (
	cancelWithin = 2 * time.Second // how long a cancelled call may delay its caller
	cancelEvery  = 100 * time.Millisecond
)

// abandon tells the node to end the call and waits a while for it. The message is repeated because it may overtake the
// request itself. A server that knows only the contract cannot be told.
func (a *asking) abandon() {
	if a.r.foreign != nil {
		return
	}
	over := time.After(cancelWithin)
	again := time.NewTicker(cancelEvery)
	defer again.Stop()
	for tell := true; ; {
		if tell && a.r.nc.Publish(subjectCancel, []byte(a.id)) != nil {
			return
		}
		select {
		case <-over:
			return
		case <-again.C:
			tell = true
		case <-a.p.wake: // the reply, or events, which are no longer wanted
			tell = false
			if messages, _ := a.p.take(); slices.ContainsFunc(messages, isReply) {
				return
			}
		}
	}
}
