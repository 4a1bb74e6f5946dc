package machina

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// A Mode is the mode in which a toolhost is started.
type Mode string

// The modes.
const (
	List  Mode = "--list"  // list the tools
	Run   Mode = "--run"   // answer the one request on stdin
	Serve Mode = "--serve" // answer one request per line
)

const usage = "usage: --list SOURCE | --run SOURCE AID | --serve SOURCE"

// ParseArgs reads the command line of a toolhost. Its error is an *ExitError.
func ParseArgs(args []string) (m Mode, source, aid string, err error) {
	if len(args) == 0 {
		return "", "", "", exit(2, "%s", usage)
	}
	switch m = Mode(args[0]); {
	case m != List && m != Run && m != Serve:
		return m, "", "", exit(2, "unknown mode: %s; %s", m, usage)
	case m == Run && len(args) == 2:
		return m, args[1], "", exit(2, "%s; %s", missingAID, usage)
	case m == Run && len(args) != 3 || m != Run && len(args) != 2:
		return m, "", "", exit(2, "%s", usage)
	}
	return m, args[1], strings.Join(args[2:], ""), nil
}

// A Door is a toolhost whose plugin is one source of tools. If it ends with one of the protocol's exit codes, the error of
// Serve is an *ExitError.
//
// Of a tool's events the protocol carries only state patches, as ds_state; the others go to Log.
type Door struct {
	Mode   Mode
	Source string // the plugin: the source whose tools are offered
	AID    string // the tool, for Run
	In     io.Reader
	Out    io.Writer // the answers, one or more with each Write, and nothing else
	Log    io.Writer // receives what the protocol cannot carry, one per line; nil drops it
	Caller tool.Principal
}

var _ tool.Door = (*Door)(nil)

// Serve answers requests until In ends.
func (d *Door) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	host, err := d.open(ctx, h, c)
	if err != nil {
		return d.noPlugin(err)
	}
	switch d.Mode {
	case List:
		return host.list()
	case Run:
		return host.run(ctx)
	case Serve:
		return host.serve(ctx)
	}
	return exit(2, "unknown mode: %s; %s", d.Mode, usage)
}

// noPlugin ends a toolhost that has no plugin. A host that waits for a document gets one.
func (d *Door) noPlugin(err error) error {
	if d.Mode == Serve {
		return err
	}
	return errors.Join((&host{Door: d, box: newOutbox(d.Out)}).write(refusal{Error: err.Error()}, false), err)
}

// A host is an open Door.
type host struct {
	*Door
	h      tool.Handler
	c      tool.Catalog
	runID  string  // the run of the calls
	offers []offer // that can be called now
	byAID  map[string]*tool.Spec
	state  slots
	doc    json.RawMessage // the state as a document; nil until it is made
	reader requestReader
	calls  int    // so far
	reply  reply  // the last one, to reuse its memory
	out    []byte // likewise, encoded
	box    *outbox
}

// open finds the tools of the source.
func (d *Door) open(ctx context.Context, h tool.Handler, c tool.Catalog) (*host, error) {
	var specs []*tool.Spec
	broken := map[string]error{}
	var dead error
	for spec, err := range c.Specs(ctx, d.Caller) {
		switch {
		case spec.Source != d.Source:
		case spec.Name == "":
			dead = err
		default:
			specs = append(specs, spec)
			if err != nil {
				broken[spec.Name] = err
			}
		}
	}
	switch {
	case dead != nil:
		return nil, exit(3, "plugin %s is not available: %s", d.Source, tool.AsError(dead).Message)
	case len(specs) == 0:
		return nil, exit(3, "plugin not found: %s; name a source that has tools, or the path of a source's plugin",
			d.Source)
	}
	o := &host{
		Door: d, h: h, c: c, runID: tool.NewID(), byAID: map[string]*tool.Spec{}, state: slots{},
		reader: newRequestReader(), box: newOutbox(d.Out),
	}
	for _, offer := range offers(d.Source, specs) {
		o.byAID[offer.aid] = offer.spec
		if err := broken[offer.spec.Name]; err != nil {
			d.log("%s cannot be called now: %s", offer.aid, tool.AsError(err).Message)
			continue
		}
		o.offers = append(o.offers, offer)
	}
	return o, nil
}

func (d *Door) log(format string, args ...any) {
	if d.Log != nil {
		fmt.Fprintf(d.Log, format+"\n", args...)
	}
}

func (o *host) list() error {
	l := listing{OK: true, Tools: []listed{}}
	for _, offer := range o.offers {
		l.Tools = append(l.Tools, offer.words())
	}
	return o.write(l, false)
}

// write writes one answer on one line. later means that more requests are waiting.
func (o *host) write(answer any, later bool) error {
	var err error
	switch a := answer.(type) {
	case *reply:
		o.out = a.append(o.out[:0])
	case refusal:
		a.Error = strings.ToValidUTF8(a.Error, "\uFFFD") // an aid on the command line may be anything
		o.out, err = strictjson.Marshal(a)
	default:
		o.out, err = strictjson.Marshal(a)
	}
	if err != nil {
		return fmt.Errorf("machina: the answer is not JSON: %w", err)
	}
	o.out = append(o.out, '\n')
	if err := o.box.put(o.out, later); err != nil {
		return fmt.Errorf("machina: the answer could not be written: %w", err)
	}
	return nil
}

// run answers the one request on stdin.
func (o *host) run(ctx context.Context) error {
	if o.byAID[o.AID] == nil {
		return errors.Join(o.write(refusal{Error: notFound + ": " + o.AID}, false), exit(4, "%s: %s", notFound, o.AID))
	}
	doc, err := bounded.ReadWithin(ctx, o.In, maxStdin)
	var limit *bounded.LimitError
	var req request
	switch {
	case ctx.Err() != nil:
		return tool.AsError(context.Cause(ctx))
	case errors.As(err, &limit):
		err = tooLong()
	case err == nil:
		req, err = o.reader.read(doc)
	}
	if err != nil { // it is not a valid request
		return errors.Join(o.write(refusal{Error: err.Error()}, false), exit(5, "%s", why(err)))
	}
	req.aid = o.AID
	answer := o.call(ctx, &req, true)
	err = o.write(answer, false)
	if r, ok := answer.(*reply); ok && r.died {
		return errors.Join(err, exit(1, "%s: %s", o.AID, r.err))
	}
	return err
}

func why(err error) string {
	if w, ok := errors.AsType[*wireError](err); ok && w.why != "" {
		return w.said + ": " + w.why
	}
	return err.Error()
}

// letGo ends a blocked read, if possible. A goroutine that reads from something that cannot be interrupted, such as a
// terminal, stays behind until the program ends.
func letGo(in io.Reader) {
	if c, ok := in.(io.Closer); ok {
		_ = c.Close()
	}
}

// lastAnswer is how long the host may take to read the answer to a cancelled call.
const lastAnswer = 2 * time.Second

// serve answers each line with a line, until stdin ends or a line is empty. Only ctx and a peer that does not read can end
// it otherwise. One goroutine reads, calls and writes: handing each line to another one would cost more than most calls do.
// If many lines have arrived, other goroutines help with many at once: see inbox and outbox.
func (o *host) serve(ctx context.Context) error {
	busy, closed := make(chan struct{}, 1), make(chan struct{})
	defer close(closed)
	over := make(chan error, 1)
	go func() { over <- o.answerAll(ctx, busy, closed) }()
	defer letGo(o.In)
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	letGo(o.In)
	select {
	case err := <-over:
		return err
	case busy <- struct{}{}: // no call runs, and none will; the last answers may still be unwritten
	case <-time.After(lastAnswer):
		return nil
	}
	written := make(chan struct{})
	go func() { _ = o.box.end(); close(written) }()
	tool.Within(written, lastAnswer)
	return nil
}

// answerAll holds busy while it answers, and stops when closed is closed.
func (o *host) answerAll(ctx context.Context, busy chan struct{}, closed <-chan struct{}) (err error) {
	defer func() {
		if last := o.box.end(); err == nil {
			err = last
		}
	}()
	for in := newInbox(o.In); ; {
		one, end := in.next()
		if one.isEnd() {
			return nil
		}
		select {
		case busy <- struct{}{}:
		case <-closed:
			return nil
		}
		err := o.write(o.answer(ctx, &one), in.more())
		<-busy
		if err != nil || end != nil {
			return err
		}
	}
}

// answer returns the answer to one line.
func (o *host) answer(ctx context.Context, a *asked) any {
	switch {
	case a.err != nil && isOther(a.text):
		return refusal{Error: missingAID}
	case a.err != nil:
		o.log("%s", why(a.err))
		return refusal{Error: a.err.Error()}
	}
	req := &a.req
	switch req.aid {
	case "":
		return refusal{Error: missingAID}
	case aidLeaseIssue:
		return o.issueLease(ctx, a.text, req)
	case aidLeaseGC:
		return o.lease(ctx, toolLeaseGC, map[string]any{}, &leaseCounts{OK: true})
	}
	if o.byAID[req.aid] == nil {
		return refusal{Error: notFound + ": " + req.aid}
	}
	return o.call(ctx, req, false)
}

const (
	missingAID = "missing aid"
	notFound   = "tool not found"
)

// isOther reports whether a line is JSON but not an object. Its JSON is valid, so the error is the missing aid. Toolhosts
// treat null as invalid JSON.
func isOther(line []byte) bool {
	kind := strictjson.KindOf(line)
	return kind != "object" && kind != "null" && strictjson.Check(line) == nil
}

// call runs a tool. If whole, the answer has the whole state, otherwise only the tool's changes.
func (o *host) call(ctx context.Context, req *request, whole bool) any {
	if err := o.take(req.state); err != nil {
		o.log("%s", why(err))
		return refusal{Error: err.Error()}
	}
	spec := o.byAID[req.aid]
	patches := &patchSink{log: o.Door}
	result, err := o.h.Invoke(ctx, &tool.Call{
		ID: o.callID(), Trace: o.runID, Caller: o.Caller,
		Tool: spec.Name, Args: req.args, Key: req.key, Lease: req.lease, State: o.doc,
	}, patches)
	if err != nil {
		return o.failed(ctx, req.aid, spec, tool.AsError(err), whole)
	}
	r := &o.reply
	*r = replyTo(result)
	var told *change
	if result.Ask == nil && !r.hit { // a call that asks a question has not ended
		if told, err = o.patch(patches.patches); err != nil {
			return o.failed(ctx, req.aid, spec, tool.Errorf(tool.CodeProtocol, "the state after %s: %w", req.aid, err),
				whole)
		}
	}
	r.state = o.stated(told, whole)
	return r
}

// callID numbers the calls of a run.
func (o *host) callID() string {
	o.calls++
	id := make([]byte, 0, 64)
	return string(strconv.AppendInt(append(append(id, o.runID...), '-'), int64(o.calls), 10))
}

// replyTo encodes a result for the protocol, without the state.
func replyTo(result *tool.Result) reply {
	r := reply{ok: result.OK, status: statusOK, output: result.Output}
	r.hit, _ = result.Trace.Details["idempotent_hit"].(bool)
	if len(r.output) == 0 {
		r.output = []byte(`{}`)
	}
	switch {
	case result.OK:
	case result.Ask != nil:
		r.status, r.err = statusToolError, "unsupported: the tool asks a question, which this protocol cannot carry: "+
			result.Ask.Message
	case result.Failure != nil:
		r.status, r.err = statusToolError, result.Failure.Message
	default:
		r.status, r.err = statusToolError, "the tool failed and did not say why"
	}
	return r
}

// failed answers a call that has no outcome. A tool that is no longer listed is not found; any other not_found concerns
// something that the tool looked for.
func (o *host) failed(ctx context.Context, aid string, spec *tool.Spec, e *tool.Error, whole bool) any {
	r := &reply{status: statusOf(e.Code), output: []byte(`{}`), err: inWords(e), state: o.stated(nil, whole)}
	switch {
	case e.Reason == statusInvalidPick, e.Reason == statusBreakerTrip: // from a toolhost behind us, unchanged
		r.status, r.err = e.Reason, e.Message
	case e.Code == tool.CodeNotFound && strings.HasPrefix(e.Message, notFound): // likewise
		return refusal{Error: e.Message}
	case e.Code == tool.CodeNotFound:
		if _, err := o.c.Lookup(ctx, o.Caller, spec.Name); err != nil {
			return refusal{Error: notFound + ": " + aid}
		}
	}
	if r.status == "" {
		o.log("%s: %s", aid, e.Message)
		return refuse(aid, e)
	}
	r.died = e.Code == tool.CodeCrash || e.Code == tool.CodeProtocol
	return r
}

// tooLong returns the answer to a request of more than maxStdin bytes. It does not comment on the JSON, which was not read.
func tooLong() error {
	e := tool.Errorf(tool.CodeInvalidInput, "the request is longer than %d bytes, the most that a toolhost takes",
		maxStdin)
	return &wireError{said: inWords(e)}
}
