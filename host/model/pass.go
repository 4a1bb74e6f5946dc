package model

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"toolpost/host/process"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// A Passed is a server's answer to a request that was passed on unchanged. Its header and content are as the server wrote
// them, except that secrets are removed.
type Passed struct {
	Status int
	Header http.Header
	Stream bool // it is a stream of events
	body   io.ReadCloser
	talk   *Talk
}

// Pass sends a request in the server's own API unchanged, except for the key and the name of the model. It is sent once:
// the client decides whether to retry, as it would without us.
func (t *Talk) Pass(ctx context.Context, route string, from http.Header, body []byte) (*Passed, error) {
	body = strictjson.With(body, "model", strictjson.Quote(t.Model.Model))
	req, err := t.request(ctx, route, body)
	if err != nil {
		return nil, err
	}
	passOn(req.Header, from)
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", "") // otherwise it would be Go's
	}
	resp, err := t.client.Do(req) //nolint:bodyclose // Passed.Close does
	if err != nil {
		return nil, t.unreachable(ctx, err)
	}
	p := &Passed{Status: resp.StatusCode, Header: t.cleaned(resp.Header), body: resp.Body, talk: t}
	if code := resp.StatusCode; code/100 == 3 || code == http.StatusUnauthorized || code == http.StatusForbidden {
		p.Close()
		return nil, t.refused(&reply{status: code})
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	p.Stream = kind == "text/event-stream"
	return p, nil
}

// passOn copies a client's headers, except those about its connection.
func passOn(to, from http.Header) {
	for name, values := range from {
		if (to[name] == nil || name == "Anthropic-Version") && !kept(name) {
			to[name] = values
		}
	}
}

// cleaned returns a server's headers for a client.
func (t *Talk) cleaned(from http.Header) http.Header {
	h := http.Header{}
	passOn(h, from)
	for _, values := range h {
		for i, v := range values {
			values[i] = t.env.Redactor.String(v)
		}
	}
	return h
}

// Close closes the answer.
func (p *Passed) Close() { _ = p.body.Close() }

// kept reports whether a header is about one of the two connections, or only for one of the two servers.
func kept(name string) bool {
	return slices.Contains(envelope.Headers(), name) || slices.ContainsFunc(
		[]string{"Proxy-", "Sec-", "X-Forwarded-", "Access-Control-", "Toolpost-"},
		func(family string) bool { return strings.HasPrefix(name, family) }) || slices.Contains([]string{
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Content-Encoding",
		"Accept-Encoding", "Host", "Authorization", "X-Api-Key", "Cookie", "Set-Cookie", "Origin", "Referer", "Forwarded",
		"Via", "X-Real-Ip", "Alt-Svc", "Date", "Server", "Strict-Transport-Security"}, name)
}

// Document returns the whole answer.
func (p *Passed) Document(ctx context.Context) ([]byte, error) {
	doc, err := io.ReadAll(io.LimitReader(p.body, maxStream+1))
	if err == nil && len(doc) > maxStream {
		err = &process.LimitError{What: "the answer", Max: maxStream}
	}
	if err != nil {
		return nil, p.talk.misread(ctx, err)
	}
	return p.talk.env.Redactor.JSON(doc), nil
}

// Events passes on the events of a stream, each as it came.
func (p *Passed) Events(ctx context.Context, to func(event []byte) error) error {
	lines := process.NewLines(p.body, process.LineLimits{Line: maxAnswer, Total: maxStream})
	out := &cleaner{to: to, redactor: p.talk.env.Redactor, tracks: map[string]*track{}}
	now := new(passing)
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			err = out.take(now, true)
			if err != nil {
				return &goneError{err}
			}
			return nil
		}
		if err != nil {
			return p.talk.misread(ctx, err)
		}
		now.raw = append(append(now.raw, line...), '\n')
		line = bytes.TrimSuffix(line, []byte("\r"))
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			now.data = append(now.data, bytes.TrimPrefix(data, []byte(" "))...)
		}
		if name, ok := bytes.CutPrefix(line, []byte("event:")); ok {
			now.name = string(bytes.TrimPrefix(name, []byte(" ")))
		}
		switch {
		case len(now.raw) > maxAnswer:
			return p.talk.misread(ctx, &process.LimitError{What: "an event", Max: maxAnswer})
		case len(line) == 0:
			if err := out.take(now, false); err != nil {
				return p.talk.misread(ctx, &goneError{err})
			}
			now = new(passing)
		}
	}
}

// A passing is an event that is being passed on.
type passing struct {
	raw, data []byte
	name      string
	waits     int // number of pieces of texts it waits for
}

// A cleaner removes secrets from a stream of events. A secret may be split over several events: an event whose text may
// end in the beginning of a secret waits for the next.
type cleaner struct {
	to       func([]byte) error
	redactor *secret.Redactor
	waiting  []*passing
	tracks   map[string]*track // by the name of the member with their pieces
}

// A track is a text that comes in pieces.
type track struct {
	stream  secret.Stream
	in, out string // of the waiting pieces
	pieces  []piece
}

// A piece is a part of a text, at its place in an event.
type piece struct {
	of   *passing
	at   jsontext.Pointer
	text string
}

// maxWaiting bounds how many events wait. A secret in more pieces than that is not removed.
const maxWaiting = 512

// take takes the next event. A text that it does not continue has ended, except for events between two blocks.
func (c *cleaner) take(e *passing, last bool) error {
	if c.redactor.Idle() {
		return c.to(e.raw)
	}
	if clean := c.redactor.JSON(e.data); !bytes.Equal(clean, e.data) {
		e.rewrite(clean)
	} else if len(e.data) == 0 { // a comment, or a field that no API has
		e.raw = c.redactor.Bytes(e.raw)
	}
	c.waiting = append(c.waiting, e)
	goesOn := map[string]bool{}
	for _, p := range e.pieces() {
		name := p.at.LastToken()
		if c.tracks[name] == nil {
			c.tracks[name] = &track{stream: secret.Stream{Redactor: c.redactor}}
		}
		goesOn[name] = true
		c.tracks[name].add(p)
	}
	between := len(e.data) == 0 || e.name == "ping" || e.name == "content_block_stop"
	for name, t := range c.tracks {
		if last || len(c.waiting) > maxWaiting || !goesOn[name] && !between {
			t.end()
		}
	}
	for len(c.waiting) > 0 && c.waiting[0].waits == 0 {
		if err := c.to(c.waiting[0].raw); err != nil {
			return err
		}
		c.waiting = c.waiting[1:]
	}
	return nil
}

// add adds a piece. If the text contains no secret, its events are passed on unchanged.
func (t *track) add(p piece) {
	p.of.waits++
	t.pieces = append(t.pieces, p)
	t.in += p.text
	t.out += t.stream.Write(p.text)
	switch {
	case t.out == t.in:
		t.release()
	case !strings.HasPrefix(t.in, t.out):
		t.end()
	}
}

// end ends the text. If it contained a secret, the first piece gets the redacted text, and the others become empty.
func (t *track) end() {
	if t.out += t.stream.Pause(); t.out != t.in {
		for _, p := range t.pieces {
			p.of.rewrite(replaceText(p.of.data, p.at, t.out))
			t.out = ""
		}
	}
	t.release()
}

func (t *track) release() {
	for _, p := range t.pieces {
		p.of.waits--
	}
	t.in, t.out, t.pieces = "", "", nil
}

func (e *passing) rewrite(data []byte) {
	e.data, e.raw = data, nil
	if e.name != "" {
		e.raw = append(append(append(e.raw, "event: "...), e.name...), '\n')
	}
	e.raw = append(append(append(e.raw, "data: "...), data...), "\n\n"...)
}

// pieceNames are the members that hold pieces of a text in the APIs.
func pieceNames() []string {
	return []string{"content", "reasoning_content", "reasoning", "refusal", "arguments", "text", "thinking",
		"partial_json", "signature", "delta", "data"}
}

// pieces finds the pieces of texts in an event.
func (e *passing) pieces() (all []piece) {
	_ = eachText(e.data, func(at jsontext.Pointer, value []byte, _ int64) { // without JSON there are none
		all = append(all, piece{e, at, strictjson.Text(value)})
	})
	return all
}

func eachText(doc []byte, each func(at jsontext.Pointer, value []byte, from int64)) error {
	in := jsontext.NewDecoder(bytes.NewReader(doc))
	for {
		kind, before := in.StackIndex(in.StackDepth())
		if in.PeekKind() != '"' || kind == '{' && before%2 == 0 { // the name of a member
			if _, err := in.ReadToken(); err != nil {
				return err
			}
			continue
		}
		value, err := in.ReadValue()
		if err != nil {
			return err
		}
		if at := in.StackPointer(); slices.Contains(pieceNames(), at.LastToken()) {
			each(at, value, in.InputOffset()-int64(len(value)))
		}
	}
}

// replaceText returns an event with one text replaced.
func replaceText(doc []byte, place jsontext.Pointer, text string) []byte {
	var out []byte
	_ = eachText(doc, func(at jsontext.Pointer, value []byte, from int64) {
		if at == place && out == nil {
			out = slices.Concat(doc[:from], strictjson.Quote(text), doc[from+int64(len(value)):])
		}
	})
	return out
}

// KeyRefused is the reason of an error of a server that rejects our key, which no caller can fix.
const KeyRefused = "model_key"

func keyRefused(m *Model, status int) *tool.Error {
	return tool.Errorf(tool.CodeUnavailable, "the server of model %s answered HTTP %d %s; check the key of the model", m.Name,
		status, http.StatusText(status)).Because(KeyRefused)
}
