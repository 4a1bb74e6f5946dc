package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
)

// call is POST /v1/tools/{name}/call. The arguments are bounded here and checked by the handler, once.
func (s *server) call(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	if err := checkContent(r.Header); err != nil {
		refuse(w, r, http.StatusUnsupportedMediaType, err)
		return
	}
	c := &tool.Call{Tool: r.PathValue("name"), Caller: p}
	timeout, err := readCall(r.Header, c)
	if err != nil {
		refuse(w, r, http.StatusBadRequest, tool.AsError(err))
		return
	}
	body, status, bad := s.ReadBody(w, r)
	if bad != nil {
		refuse(w, r, status, bad)
		return
	}
	if c.Args = body; len(bytes.TrimSpace(body)) == 0 {
		c.Args = json.RawMessage(`{}`)
	}
	if wantsJob(r.Header) {
		s.start(w, r, c, timeout)
		return
	}
	s.run(w, r, c, timeout, wantsStream(r.Header))
}

// run lets the call in, and answers it as a stream or as a whole.
func (s *server) run(w http.ResponseWriter, r *http.Request, c *tool.Call, timeout time.Duration, stream bool) {
	ctx, end, ok := s.begin(w, r, c, timeout)
	if !ok {
		return
	}
	defer end()
	if stream {
		s.runStream(ctx, w, c, 0)
		return
	}
	res, err := s.invoke(ctx, c, tool.Discard)
	s.answer(w, c, http.StatusOK, res, err)
}

// begin lets a call in, or refuses it. Its context ends when the caller has gone, has cancelled it or gave it no more
// time; the function is called once it has been answered.
func (s *server) begin(
	w http.ResponseWriter, r *http.Request, c *tool.Call, timeout time.Duration,
) (_ context.Context, _ func(), ok bool) {
	ctx, end, err := s.Begin(w, r, c)
	if err != nil {
		refuse(w, r, web.StatusOf(err.Code), err)
		return nil, nil, false
	}
	ctx, stop := envelope.Within(ctx, timeout, c.Tool)
	return ctx, func() { end(); stop() }, true
}

// answer writes the outcome of a call as a whole; status is for one that there is.
func (s *server) answer(w http.ResponseWriter, c *tool.Call, status int, res *tool.Result, err error) {
	failed, body := encodeOutcome(res, err, c.ID)
	if failed != http.StatusOK {
		status = failed
	}
	setRetryAfter(w.Header(), err)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Patience()))
	web.Reply(w, status, body)
}

// runStream answers with a stream, whose events are numbered on from those that the caller has had before.
func (s *server) runStream(ctx context.Context, w http.ResponseWriter, c *tool.Call, before uint64) {
	out := newStream(w, s.Patience())
	out.before = before
	stop := out.keepAlive(s.Beat)
	res, err := s.invoke(ctx, c, out)
	stop()
	status, body := encodeOutcome(res, err, c.ID)
	name := eventResult
	if status != http.StatusOK {
		name = eventNoOutcome
	}
	out.finish(name, body)
}

// invoke keeps a panic of the handler from costing the caller its answer.
func (s *server) invoke(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("a call panicked", "tool", c.Tool, "call", c.ID, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			r, err = nil, tool.Errorf(tool.CodeInternal, "%s: an internal error; the server's log has the details",
				c.Tool)
		}
	}()
	return s.handler.Invoke(ctx, c, out)
}

func checkContent(h http.Header) *tool.Error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return tool.Errorf(tool.CodeUnsupported,
			"the content encoding %q is not read here: send the arguments as they are", enc)
	}
	given := h.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(given)
	charset := params["charset"]
	if err != nil || kind != typeJSON || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return tool.Errorf(tool.CodeUnsupported, "the content type %q is not read here: send application/json", given)
	}
	return nil
}

func wantsStream(h http.Header) bool {
	for _, accepted := range h.Values("Accept") {
		for one := range strings.SplitSeq(accepted, ",") {
			if kind, _, err := mime.ParseMediaType(one); err == nil && kind == typeStream {
				return true
			}
		}
	}
	return false
}
