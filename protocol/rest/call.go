package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"mime"
	"net/http"
	"strings"
	"time"

	"toolpost/engine/follow"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/nearest"
)

// call is POST /v1/tools/{name}/call. The arguments are bounded here and checked by the handler, once.
func (s *server) call(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	if err := checkContent(r.Header); err != nil {
		web.Refuse(w, r, nil, http.StatusUnsupportedMediaType, err)
		return nil
	}
	c := &tool.Call{Tool: r.PathValue("name"), Caller: p}
	timeout, err := readCall(r.Header, c)
	if err != nil {
		return err
	}
	body, status, bad := s.ReadBody(w, r)
	if bad != nil {
		web.Refuse(w, r, nil, status, bad)
		return nil
	}
	if c.Args = body; len(bytes.TrimSpace(body)) == 0 {
		c.Args = json.RawMessage(`{}`)
	}
	if wantsJob(r.Header) {
		return s.start(w, r, c, timeout)
	}
	return s.run(w, r, c, timeout, s.asked(w, r))
}

// suggesting adds similar names to the error of a call of an unknown tool.
func suggesting(h tool.Handler, c tool.Catalog) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := h.Invoke(ctx, call, out)
		if tool.CodeOf(err) == tool.CodeNotFound {
			if _, unknown := c.Lookup(ctx, call.Caller, call.Tool); unknown != nil { // otherwise it is about a file, a job ...
				err = nearest.Tool(ctx, c, call.Caller, call.Tool, "", err)
			}
		}
		return r, err
	})
}

// An answering runs an admitted call, and answers it.
type answering func(ctx context.Context, c *tool.Call)

// run admits a call, or refuses it. The call's context ends when the caller disconnects or cancels it, or when its
// timeout expires.
func (s *server) run(
	w http.ResponseWriter, r *http.Request, c *tool.Call, timeout time.Duration, answer answering,
) error {
	ctx, end, err := s.Begin(w, r, c)
	if err != nil {
		return err
	}
	defer end()
	ctx, stop := envelope.Within(ctx, timeout, c.Tool)
	defer stop()
	answer(ctx, c)
	return nil
}

// asked answers with a stream or a document, as the request asks.
func (s *server) asked(w http.ResponseWriter, r *http.Request) answering {
	return func(ctx context.Context, c *tool.Call) {
		if wantsStream(r.Header) {
			s.runStream(ctx, w, c, 0)
			return
		}
		res, err := s.handler.Invoke(ctx, c, tool.Discard)
		if err == nil && res != nil {
			s.forgetAfter(r, len(res.Output))
		}
		s.answer(w, r, c, http.StatusOK, res, err)
	}
}

// answer writes the outcome of a call as one document; status is for a call that has one.
func (s *server) answer(w http.ResponseWriter, r *http.Request, c *tool.Call, status int, res *tool.Result, err error) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Patience()))
	if err == nil && sendLarge(w, status, res, c.ID) {
		return
	}
	failed, body := encodeOutcome(res, err, c.ID)
	kind := typeJSON
	if failed != http.StatusOK {
		status = failed
		if web.WantsProblem(r) && err != nil {
			kind, body = web.TypeProblem, web.ProblemDetails(status, tool.AsError(err), c.ID)
		}
	}
	web.SetRetryAfter(w.Header(), tool.AsError(err))
	web.Send(w, status, kind, body)
}

// runStream answers with a stream, whose event numbers continue those of an earlier stream.
func (s *server) runStream(ctx context.Context, w http.ResponseWriter, c *tool.Call, before uint64) {
	out := &stream{s.NewStream(w), before}
	stop := out.KeepAlive(s.Beat)
	res, err := s.handler.Invoke(ctx, c, out)
	stop()
	status, body := encodeOutcome(res, err, c.ID)
	name := eventResult
	if status != http.StatusOK {
		name = eventNoOutcome
	}
	out.Finish(name, body)
}

func checkContent(h http.Header) *tool.Error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return tool.Errorf(tool.CodeUnsupported,
			"the content encoding %q is not read here: send the arguments as they are", enc)
	}
	given := h.Get("Content-Type")
	if given == "" || given == typeJSON {
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
	for one := range listed(h, "Accept") {
		if kind, _, err := mime.ParseMediaType(one); err == nil && kind == web.TypeStream {
			return true
		}
	}
	return false
}

// follows reports whether a request follows something, such as the calls of all callers. Other calls may outlive a token: they
// may have changed something, and their outcome must reach the caller.
func (s *server) follows(r *http.Request, p tool.Principal) bool {
	if !wantsStream(r.Header) {
		return false
	}
	spec, err := s.catalog.Lookup(r.Context(), p, r.PathValue("name"))
	return err == nil && spec.Effects.ChangesNothing() && spec.Timeout >= follow.Timeout
}

// listed returns the elements of a list in a header, on any number of lines.
func listed(h http.Header, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range h.Values(name) {
			for one := range strings.SplitSeq(line, ",") {
				if !yield(one) {
					return
				}
			}
		}
	}
}
