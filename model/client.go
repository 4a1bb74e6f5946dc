package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"time"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/regex"
	"toolpost/wire/sse"
	"toolpost/wire/strictjson"
)

// Bounds on requests and answers, in bytes, and on retries.
const (
	maxQuestion = 32 << 20
	maxAnswer   = 8 << 20
	maxStream   = 64 << 20 // with the JSON around each token
	maxRefusal  = 64 << 10
	maxCalls    = 256 // in one answer
	maxTries    = 4
	firstPause  = 500 * time.Millisecond
)

// A Talk sends requests to one model, as many as a conversation takes. Its connections end with it, so that nothing is
// left of a config that was replaced.
type Talk struct {
	*Model
	client *http.Client
	Most   int // bounds an answer, in bytes; 8 MiB unless it is set
}

// Talk begins a conversation, which the caller closes.
func (m *Model) Talk() *Talk {
	return &Talk{Model: m, Most: maxAnswer, client: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true},
		// The key and the conversation are only for the server that the config names.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes its connections.
func (t *Talk) Close() { t.client.CloseIdleConnections() }

// A Listener receives an answer while it comes.
type Listener struct {
	Begun func(http.Header) // the server has begun to answer
	// Said is called with pieces of texts, thoughts and refusals as they come, and with other parts whole; calls only
	// come with the answer. An error ends the answer.
	Said func(Part) error
}

// A wire implements the client side of an API.
type wire interface {
	path() string
	encode(m *Model, r *Request, stream bool) ([]byte, error)
	decode(doc []byte) (*Answer, error)
	reader(to *hearing) reader
}

// A reader reads a stream.
type reader interface {
	// event takes one event, and reports whether it was the last.
	event(sse.Event) (last bool, err error)
	// answer returns the complete answer, or an error if the stream ended too early.
	answer() (*Answer, error)
}

func (m *Model) wire() wire {
	switch m.API {
	case Anthropic:
		return messages{}
	case Responses:
		return responses{}
	}
	return completions{}
}

// Encode encodes a request for a server of an API.
func (r *Request) Encode(api API, stream bool) ([]byte, error) {
	return (&Model{Options: Options{Name: "any", Model: "any", API: api}}).encode(r, stream)
}

func (m *Model) encode(r *Request, stream bool) ([]byte, error) {
	if err := r.carries(m); err != nil {
		return nil, err
	}
	return m.wire().encode(m, r, stream)
}

// Ask requests the next message of a conversation. It retries if the server is busy or failing, unless it has begun to
// answer. Without a listener the answer comes as a whole.
func (t *Talk) Ask(ctx context.Context, r *Request, to *Listener) (*Answer, error) {
	body, err := t.encode(r, to != nil)
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxQuestion:
		return nil, tool.Errorf(tool.CodeInvalidInput, "what model %s would be told is longer than %d bytes; shorten the "+
			"conversation", t.Name, maxQuestion)
	}
	for try := 1; ; try++ {
		answer, got, err := t.post(ctx, r, body, to)
		if err != nil || got == nil {
			return answer.estimated(body), err
		}
		refused := t.refused(got)
		if !passes(got.status) || try == maxTries {
			return nil, refused
		}
		wait := got.after
		if wait < 0 {
			wait = firstPause << (try - 1)
		}
		if err := pause(ctx, wait); err != nil {
			if ctx.Err() != nil {
				return nil, tool.Ended(ctx)
			}
			return nil, refused.RetryAfter(wait)
		}
	}
}

// estimated estimates the tokens if the server does not report them, so that limits hold then too: four bytes each, which
// is about right for English and never far below.
func (a *Answer) estimated(question []byte) *Answer {
	if a == nil {
		return a
	}
	if a.Usage = a.Usage.sane(); a.Usage != (Usage{}) {
		return a
	}
	said := 0
	for _, p := range a.Parts {
		said += len(p.Text) + len(p.Call.Args) + len(p.Raw)
	}
	a.Usage = Usage{In: int64(len(question)/4 + 1), Out: int64(said/4 + 1)}
	return a
}

// A reply is a server's response that is not an answer.
type reply struct {
	status int
	after  time.Duration // the requested delay before a retry; negative if there is none
	doc    []byte
}

// passes reports whether a retry may succeed.
func passes(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError &&
		status != http.StatusNotImplemented
}

// pause waits, unless the deadline is earlier.
func pause(ctx context.Context, wait time.Duration) error {
	if until, ok := ctx.Deadline(); ok && time.Until(until) < wait {
		return context.DeadlineExceeded
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// post sends one request. It returns the answer, or the server's other response.
func (t *Talk) post(ctx context.Context, r *Request, body []byte, to *Listener) (*Answer, *reply, error) {
	route := t.wire().path()
	if r.Of == t.API {
		route += r.Query
	}
	req, err := t.request(ctx, route, body)
	if err != nil {
		return nil, nil, err
	}
	if r.Of == t.API {
		passOn(req.Header, r.Header)
	}
	req.Header.Set("Accept", "application/json")
	if to != nil {
		req.Header.Set("Accept", "text/event-stream")
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, nil, t.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		doc, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // as much of it as there is
		return nil, &reply{resp.StatusCode, retryAfter(resp.Header.Get("Retry-After")), doc}, nil
	}
	var answer *Answer
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case to == nil:
		answer, err = t.read(resp.Body)
	case kind == "application/json":
		err = tool.Errorf(tool.CodeProtocol, "is one document, though a stream was requested: its server does not stream; send "+
			"the request without stream")
	default:
		if to.Begun != nil {
			to.Begun(t.cleaned(resp.Header))
		}
		answer, err = t.listen(resp.Body, to)
	}
	if err != nil {
		return nil, nil, t.misread(ctx, err)
	}
	answer.clean(t.env.Redactor)
	answer.Header = t.cleaned(resp.Header)
	return answer, nil, nil
}

// request makes a request to a route of the server, with its key.
func (t *Talk) request(ctx context.Context, route string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	key, err := t.secret()
	switch {
	case err != nil:
		return nil, err
	case t.API == Anthropic:
		req.Header.Set("Anthropic-Version", anthropicVersion)
		if key != "" {
			req.Header.Set("X-Api-Key", key)
		}
	case key != "":
		req.Header.Set("Authorization", "Bearer "+key)
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

func (t *Talk) read(r io.Reader) (*Answer, error) {
	doc, err := bounded.ReadDocument(r, t.Most)
	if err != nil {
		return nil, err
	}
	a, err := t.wire().decode(doc)
	if err == nil {
		err = strictjson.Unmarshal(doc, &a.Rest)
	}
	return a, err
}

// listen reads an answer that comes in pieces.
func (t *Talk) listen(r io.Reader, to *Listener) (*Answer, error) {
	events := sse.NewBounded(r, t.Most, maxStream)
	heard := &hearing{to: to, left: t.Most, redactor: t.env.Redactor, texts: map[string]*secret.Stream{}}
	in := t.wire().reader(heard)
	for last := false; !last; {
		e, err := events.Next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // it may have given a reason to stop, and then nothing more
		}
		if err == nil {
			last, err = in.event(e)
		}
		if err != nil {
			return nil, err
		}
	}
	answer, err := in.answer()
	if err == nil {
		err = heard.flush()
	}
	return answer, err
}

var errCut = tool.Errorf(tool.CodeUnavailable, "was cut off before its end").Because("cut")

// misread explains what is wrong with an answer.
func (t *Talk) misread(ctx context.Context, err error) error {
	if gone, ok := errors.AsType[*goneError](err); ok {
		return gone.error
	}
	if ctx.Err() != nil {
		return tool.Ended(ctx)
	}
	if e, ok := errors.AsType[*tool.Error](err); ok {
		said := *e
		said.Message = t.visible("the answer of model " + t.Name + " " + e.Message)
		return &said
	}
	if limit, ok := errors.AsType[*bounded.LimitError](err); ok {
		return tool.Errorf(tool.CodeProtocol, "the answer of model %s: %w", t.Name, limit)
	}
	return t.unreachable(ctx, err)
}

func (t *Talk) visible(text string) string {
	return tool.Visible(fmt.Sprintf("%.400s", t.env.Redactor.String(text)))
}

func (t *Talk) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return tool.Ended(ctx)
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner // those around it name the address, which is none of the caller's concern
	}
	if lookup, ok := err.(*net.DNSError); ok {
		err = errors.New(lookup.Err)
	}
	return tool.Errorf(tool.CodeUnavailable, "the server of model %s does not answer: %s; check its url", t.Name,
		t.env.Redactor.String(err.Error()))
}

// retryAfter parses a number of seconds, or a date; it returns a negative number if the text is neither.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(time.Until(date), 0)
	}
	return -1
}

// refused turns a server's response into an error.
func (t *Talk) refused(got *reply) *tool.Error {
	var said struct {
		Error struct {
			Message string          `json:"message"`
			Code    json.RawMessage `json:"code"` // a word, a number, or null
		} `json:"error"`
	}
	_ = strictjson.Unmarshal(got.doc, &said) // it may be the page of a proxy
	why := ""
	if said.Error.Message != "" {
		why = ": " + t.visible(said.Error.Message)
	}
	code, hint := tool.CodeUnavailable, ""
	switch got.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return tool.Errorf(code, "the server of model %s answered HTTP %d %s; check the key of the model", t.Name, got.status,
			http.StatusText(got.status)).Because(KeyRefused)
	case http.StatusNotFound:
		hint = "; check its url, which ends in /v1 for most servers, and its model"
	case http.StatusTooManyRequests:
		code = tool.CodeQuotaExceeded
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		code = tool.CodeInvalidInput
	}
	if got.status/100 == 3 {
		hint = "; it is not followed: put the address that it leads to into the config"
	}
	e := tool.Errorf(code, "the server of model %s answered HTTP %d %s%s%s", t.Name, got.status,
		http.StatusText(got.status), why, hint)
	word, err := strictjson.Unquote(said.Error.Code)
	if err == nil && code == tool.CodeInvalidInput && errorWord().Match(word) && t.visible(string(word)) == string(word) {
		e = e.Because(string(word)) // programs rely on it: context_length_exceeded
	}
	if got.after > 0 {
		e = e.RetryAfter(got.after)
	}
	return e
}

// errorWord matches a code that a server gives to an error.
var errorWord = regex.Lazy(`^[a-z][a-z0-9_]{0,63}$`)

// A goneError comes from the listener, not from the server.
type goneError struct{ error }

// A hearing passes on an answer as it comes, without secrets, and bounds it.
type hearing struct {
	to       *Listener
	left     int
	redactor *secret.Redactor
	texts    map[string]*secret.Stream // by voice: clients join those, whatever comes between two pieces
	last     Part
}

// voice names the text that a piece belongs to: the texts of its kind, or its seals.
func (p Part) voice() string { return fmt.Sprint(p.Kind, p.Seal != "") }

// hear passes on a piece that is not empty, except an end that may be the beginning of a secret: that waits for the next
// piece, if it is of the same voice. A piece has a text, a seal or a whole document.
func (h *hearing) hear(p Part) error {
	err := h.room(len(p.Text) + len(p.Seal) + len(p.Raw))
	if err != nil || h.to.Said == nil || p.Text == "" && p.Seal == "" && p.Raw == nil {
		return err
	}
	if p.voice() != h.last.voice() || p.Raw != nil {
		if err := h.flush(); err != nil {
			return err
		}
	}
	if h.last = p; p.Raw != nil {
		p.Raw = h.redactor.JSON(p.Raw)
		return h.say(p)
	}
	if h.texts[p.voice()] == nil {
		h.texts[p.voice()] = &secret.Stream{Redactor: h.redactor}
	}
	return h.passOn(h.texts[p.voice()].Write(p.Text + p.Seal))
}

// flush passes on the text that waits.
func (h *hearing) flush() error {
	if text := h.texts[h.last.voice()]; text != nil {
		return h.passOn(text.Pause())
	}
	return nil
}

func (h *hearing) passOn(text string) error {
	p := h.last
	switch {
	case text == "":
		return nil
	case p.Seal != "":
		p.Seal = text
	default:
		p.Text = text
	}
	return h.say(p)
}

func (h *hearing) say(p Part) error {
	if err := h.to.Said(p); err != nil {
		return &goneError{err}
	}
	return nil
}

// room counts n more bytes of the answer, and fails beyond the bound.
func (h *hearing) room(n int) error {
	if h.left -= n; h.left < 0 {
		return tool.Errorf(tool.CodeProtocol, "is too long")
	}
	return nil
}
