package alphahuman

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A Door is a skill whose tools are all the registered tools. It speaks both generations: a host that begins with initialize
// gets the contract, a host that begins with tools/list or skill/load gets the second.
//
// Calls are answered as they finish. A tool's failure is a result with isError; a call without an outcome is an error whose
// data has {code, reason}. In the second generation events go to the host as intelligence/emitEvent and state patches as
// state/set, each with the callId that it belongs to. The first cannot carry them, and they go to Log.
type Door struct {
	In     io.Reader
	Out    io.Writer // one message per Write, and nothing else
	Log    io.Writer // receives what the protocol cannot carry, one per line; nil drops it
	Caller tool.Principal

	drainTime time.Duration // how long calls may take to finish at the end; default 5 s
}

var _ tool.Door = (*Door)(nil)

// maxInFlight bounds the calls of one host; further ones wait in its pipe.
const maxInFlight = 4096

// Serve answers until the host sends shutdown, closes In, or ctx ends.
func (d *Door) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k := &desktop{
		Door: d, h: h, c: c, places: make(chan struct{}, maxInFlight), patching: make(chan struct{}, 1),
		sessions: map[string]bool{}, calls: map[string]context.CancelFunc{},
	}
	out := jsonrpc.NewStream(d.Out, cancel) // once the host is gone, its calls are cancelled
	k.conn = jsonrpc.NewConn(jsonrpc.Options{
		Writer: out, Take: func(in *jsonrpc.Incoming) error { return k.request(ctx, in) }, Unusable: k.unusable, NullIDs: true,
	})
	err := k.conn.Read(ctx, bounded.NewLines(d.In, bounded.LineLimits{Line: defaultMaxLine, Open: true}))
	var limit *bounded.LimitError
	if errors.As(err, &limit) {
		k.refuse(nil, jsonrpc.Errorf(jsonrpc.CodeParse, "Parse error: %v", limit))
	}
	k.conn.End(errNoAnswer)
	k.drain(ctx)
	cancel(nil)
	k.running.Wait()
	if errors.Is(err, errShutdown) {
		k.reply(k.last, okResult, nil)
	}
	return out.Err()
}

var (
	errShutdown = errors.New("the host said shutdown")
	errNoAnswer = errors.New("no answer")
)

// drain lets running calls finish: a host may send all its calls and then close.
func (k *desktop) drain(ctx context.Context) {
	finished := make(chan struct{})
	go func() { k.running.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-ctx.Done():
	case <-time.After(cmp.Or(k.drainTime, 5*time.Second)):
	}
}

// A desktop is an open Door.
type desktop struct {
	*Door
	h       tool.Handler
	c       tool.Catalog
	conn    *jsonrpc.Conn
	running sync.WaitGroup // the calls
	places  chan struct{}
	logging sync.Mutex

	patching chan struct{} // has room for the one call that changes the host's state

	// Used by the reading goroutine alone.
	met      bool                  // the generation of the host is known
	second   bool                  // it is the second; set before its first call
	last     *jsonrpc.Incoming     // shutdown
	sessions map[string]bool       // opened by the host
	listed   map[string]*tool.Spec // the tools by their names on the wire, which the engine may not know

	mu    sync.Mutex // guards what follows
	calls map[string]context.CancelFunc
}

// unusable answers a line that is not a valid message, and the door goes on. It drops an answer to no pending question, which is
// late.
func (k *desktop) unusable(m *jsonrpc.Message, line []byte, why error) {
	invalid := (*jsonrpc.Error)(nil)
	switch {
	case errors.Is(why, jsonrpc.ErrUnasked):
	case errors.Is(why, jsonrpc.ErrNotMessage):
		k.refuse(m.ReplyID(), m.Check())
	case errors.As(why, &invalid):
		k.refuse(m.ReplyID(), invalid)
	case strictjson.Check(line) != nil:
		k.refuse(nil, jsonrpc.Errorf(jsonrpc.CodeParse, "Parse error: %s", jsonrpc.Clip(why.Error())))
	case strictjson.KindOf(line) == "array":
		k.refuse(nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"Invalid Request: batches are not taken; send one message a line"))
	default:
		k.refuse(nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: %s", jsonrpc.Clip(why.Error())))
	}
}

// request answers a request. A notification, which has no id, never gets an answer.
func (k *desktop) request(ctx context.Context, in *jsonrpc.Incoming) error {
	k.meet(in.Method)
	switch in.Method {
	case methodShutdown, methodSkillShutdown:
		k.last = in
		return errShutdown
	case methodToolsCall:
		k.call(ctx, in)
	case methodCancel:
		k.cancel(in.Params)
	default:
		result, err := k.answer(ctx, in.Method, in.Params)
		k.reply(in, result, err)
	}
	return nil
}

// meet determines the host's generation, by the first method that only one of them has.
func (k *desktop) meet(method string) {
	second := method == methodToolsList || strings.HasPrefix(method, "skill/")
	if !k.met && (second || method == methodInitialize || strings.HasPrefix(method, "lifecycle/")) {
		k.met, k.second = true, second
	}
}

func (k *desktop) reply(in *jsonrpc.Incoming, result []byte, err *jsonrpc.Error) {
	k.conn.Reply(context.Background(), in, result, err) // the stream takes it, or the host is gone
}

// refuse answers a line that is not a request. A nil id becomes null.
func (k *desktop) refuse(id []byte, err *jsonrpc.Error) {
	_ = k.conn.Send(context.Background(), jsonrpc.EncodeReply(id, nil, err)) // the stream keeps an error
}

// answer answers the methods that need no waiting.
func (k *desktop) answer(ctx context.Context, method string, params []byte) (json.RawMessage, *jsonrpc.Error) {
	switch method {
	case methodInitialize:
		return k.introduce(ctx, false)
	case methodToolsList:
		return k.introduce(ctx, true)
	case methodOnSessionStart, methodSessionStart:
		return k.talk(params, true)
	case methodOnSessionEnd, methodSessionEnd:
		return k.talk(params, false)
	case methodOnLoad, methodOnTick, methodLoad, methodUnload, methodTick:
		return okResult, nil
	case methodBeforeMessage:
		return json.RawMessage(`{"message":null}`), nil
	case methodAfterResponse:
		return json.RawMessage(`{"response":null}`), nil
	case methodStatus:
		return encoded(map[string]any{"ok": true, "name": skillName, "tools": len(k.tools(ctx))})
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "Method not found: %s", jsonrpc.Clip(method))
}

// talk records that a session begins or ends.
func (k *desktop) talk(params []byte, begins bool) (json.RawMessage, *jsonrpc.Error) {
	var p struct {
		SessionID string `json:"sessionId"`
	}
	if strictjson.Unmarshal(or(params, "{}"), &p) != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: sessionId must be a string")
	}
	delete(k.sessions, p.SessionID)
	if begins && p.SessionID != "" && len(k.sessions) < maxTalks {
		k.sessions[p.SessionID] = true
	}
	return okResult, nil
}

// skillName is the door's name as a skill.
const skillName = "toolpost"

// introduce describes the door and its present tools.
func (k *desktop) introduce(ctx context.Context, second bool) (json.RawMessage, *jsonrpc.Error) {
	in := introduction{Tools: []json.RawMessage{}, Capabilities: &capabilities{Cancel: true, Sessions: true}}
	if !second {
		in.Name, in.Description, in.Version = skillName, "The tools of a Toolpost.", "1.0.0"
	}
	tools := k.tools(ctx)
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		o := offer{Name: name, Description: tools[name].Description, Parameters: or(tools[name].Input, anyObject)}
		if second {
			o.Parameters, o.InputSchema = nil, o.Parameters
		}
		b, err := strictjson.Marshal(o)
		if err != nil {
			k.log("%s is not offered: %v", name, err)
			continue
		}
		in.Tools = append(in.Tools, b)
	}
	return encoded(in)
}

func encoded(v any) (json.RawMessage, *jsonrpc.Error) {
	b, err := strictjson.Marshal(v)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "Internal error: %v", err)
	}
	return b, nil
}

// tools returns the tools by their names on the wire. It only logs tools that cannot be called now.
func (k *desktop) tools(ctx context.Context) map[string]*tool.Spec {
	var specs []*tool.Spec
	for s, err := range k.c.Specs(ctx, k.Caller) {
		if err != nil {
			k.log("%s cannot be called now: %s", cmp.Or(s.Name, s.Source), tool.AsError(err).Message)
			continue
		}
		specs = append(specs, s)
	}
	k.listed = tool.Slugs(specs)
	return k.listed
}

// find returns the engine's name of a tool. An unlisted name may be an alias, which the engine knows, or new: only then are
// the tools listed again.
func (k *desktop) find(ctx context.Context, name string) string {
	spec := k.listed[name]
	if spec == nil {
		if _, err := k.c.Lookup(ctx, k.Caller, name); err == nil {
			return name
		}
		spec = k.tools(ctx)[name]
	}
	if spec == nil {
		return name
	}
	return spec.Name
}

// callRequest is the params of tools/call. The session is our addition: the contract has none here.
type callRequest struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Session   string          `json:"sessionId"`
}

func decodeCall(params []byte) (c callRequest, err error) {
	if err := strictjson.Unmarshal(or(params, "{}"), &c); err != nil {
		return c, err
	}
	if c.Name == "" {
		return c, errors.New("name must be a string that is not empty")
	}
	c.Arguments = or(c.Arguments, "{}")
	if kind := strictjson.KindOf(c.Arguments); kind != "object" {
		return c, fmt.Errorf("arguments must be an object, not %s", kind)
	}
	return c, nil
}

// call starts a call; its answer follows when it is done.
func (k *desktop) call(ctx context.Context, in *jsonrpc.Incoming) {
	req, err := decodeCall(in.Params)
	if err != nil {
		k.reply(in, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: %s", jsonrpc.Misread(err)))
		return
	}
	select {
	case k.places <- struct{}{}:
	case <-ctx.Done():
		return
	}
	c := &tool.Call{
		Tool: k.find(ctx, req.Name), Args: req.Arguments, Caller: k.Caller,
		Session: cmp.Or(req.Session, k.session()),
	}
	ctx, end := context.WithCancel(ctx)
	k.enter(in.ID, end)
	second := k.second
	k.running.Go(func() {
		defer func() { <-k.places }()
		r, err := k.h.Invoke(ctx, c, &relay{k: k, ctx: ctx, call: in.ID, second: second})
		k.leave(in.ID)
		end()
		k.finish(in, r, err, second)
	})
}

// session returns the host's session if it has opened exactly one: calls of the contract do not name theirs.
func (k *desktop) session() string {
	for id := range k.sessions {
		if len(k.sessions) == 1 {
			return id
		}
	}
	return ""
}

// finish answers a call.
func (k *desktop) finish(in *jsonrpc.Incoming, r *tool.Result, err error, second bool) {
	if err == nil && r.Ask != nil {
		err = tool.Errorf(tool.CodeUnsupported,
			"the tool asks a question, which this protocol cannot carry: %s", r.Ask.Message)
	}
	if err == nil && !r.OK && saidBySkill(r.Failure) != nil { // it was an error, and stays one
		err = r.Failure
	}
	var b []byte
	if err == nil {
		if b, err = encodeResult(r, second); err != nil {
			err = tool.Errorf(tool.CodeInternal, "the result is not JSON: %w", err)
		}
	}
	if err != nil {
		k.reply(in, nil, toRPC(tool.AsError(err)))
		return
	}
	k.reply(in, b, nil)
}

func (k *desktop) enter(id []byte, end context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if id != nil {
		k.calls[string(id)] = end
	}
}

func (k *desktop) leave(id []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.calls, string(id))
}

// cancel ends a call that the host has abandoned.
func (k *desktop) cancel(params []byte) {
	var p struct {
		ID json.RawMessage `json:"id"`
	}
	if strictjson.Unmarshal(params, &p) != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if end := k.calls[string(p.ID)]; end != nil {
		end()
	}
}

func (k *desktop) log(format string, args ...any) {
	if k.Log == nil {
		return
	}
	k.logging.Lock()
	defer k.logging.Unlock()
	fmt.Fprintf(k.Log, format+"\n", args...)
}
