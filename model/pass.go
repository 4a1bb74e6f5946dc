package model

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/bounded"
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
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		p.Close() // a key in it would not be found
		return nil, t.misread(ctx, tool.Errorf(tool.CodeProtocol, "is in the encoding %.40q, which was not requested", enc))
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	p.Stream = kind == "text/event-stream"
	return p, nil
}

// passOn copies a client's headers, except those about its connection.
func passOn(to, from http.Header) {
	for name, values := range from {
		if (to[name] == nil || name == "Anthropic-Version" || name == "Content-Type") && !kept(name) {
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
		"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
		"Accept-Encoding", "Host", "Authorization", "X-Api-Key", "Cookie", "Set-Cookie", "Origin", "Referer", "Forwarded",
		"Via", "X-Real-Ip", "Alt-Svc", "Date", "Server", "Strict-Transport-Security"}, name)
}

// Document returns the whole answer.
func (p *Passed) Document(ctx context.Context) ([]byte, error) {
	doc, err := io.ReadAll(io.LimitReader(p.body, maxStream+1))
	if err == nil && len(doc) > maxStream {
		err = &bounded.LimitError{What: "the answer", Max: maxStream}
	}
	if err != nil {
		return nil, p.talk.misread(ctx, err)
	}
	return p.talk.env.Redactor.JSON(doc), nil
}

// Events passes on the events of a stream, each as it came and at once.
func (p *Passed) Events(ctx context.Context, to func(event []byte) error) error {
	lines := bounded.NewLines(p.body, bounded.LineLimits{Line: maxStream, Total: maxStream})
	out := &cleaner{redactor: p.talk.env.Redactor, texts: map[any]*secret.Stream{}, seed: maphash.MakeSeed()}
	now := new(passing)
	for {
		line, err := lines.Next()
		last := errors.Is(err, io.EOF) || line != nil && errors.Is(err, io.ErrUnexpectedEOF) // its last line is not ended
		if err != nil && !last {
			return p.talk.misread(ctx, err)
		}
		now.add(line, out.redactor)
		if err == nil {
			now.raw = append(now.raw, '\n')
		}
		if len(line) > 0 && string(line) != "\r" && !last {
			continue
		}
		if err := to(out.event(now)); err != nil {
			return p.talk.misread(ctx, &goneError{err})
		}
		if now = new(passing); last {
			return nil
		}
	}
}

// A passing is an event that is being passed on.
type passing struct {
	raw    []byte // as it came
	others []byte // its lines without data, without secrets
	data   []byte
}

func (e *passing) add(line []byte, r *secret.Redactor) {
	e.raw = append(e.raw, line...)
	line = bytes.TrimSuffix(line, []byte("\r"))
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if len(e.data) > 0 {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, bytes.TrimPrefix(data, []byte(" "))...)
	} else if len(line) > 0 {
		e.others = append(append(e.others, r.Bytes(line)...), '\n')
	}
}

// A cleaner removes secrets from a stream of events. A secret may be split over several of them: the strings that clients
// join are read as one text. No event waits for the next, so the first bytes of a split secret are passed on, but never
// as many as identify it.
type cleaner struct {
	redactor *secret.Redactor
	texts    map[any]*secret.Stream // those that may end in the beginning of a secret
	seed     maphash.Seed
}

// event returns an event without secrets. One that has none stays as it came.
func (c *cleaner) event(e *passing) []byte {
	if c.redactor.Idle() {
		return e.raw
	}
	data := c.redactor.JSON(c.data(e.data))
	if bytes.Equal(data, e.data) {
		return c.redactor.Bytes(e.raw)
	}
	data = bytes.ReplaceAll(data, []byte("\n"), []byte("\ndata: "))
	return slices.Concat(e.others, []byte("data: "), data, []byte("\n\n"))
}

// data removes the secrets from the strings of an event. Each is part of two texts: of the choice, item or block that it
// belongs to, and of all strings of its member.
func (c *cleaner) data(data []byte) []byte {
	all := &texts{data: data, seed: c.seed, in: jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))}
	if err := all.read("", maxNesting); err != nil {
		return []byte(c.clean("", string(data)))
	}
	var out []byte
	from := 0
	for _, t := range all.list {
		literal := data[t.from:t.to]
		was, _ := jsontext.AppendUnquote(nil, literal) // half of a surrogate pair becomes U+FFFD
		if clean := c.clean(t.member, c.clean(t.place, string(was))); clean != string(was) {
			out = append(append(out, data[from:t.from]...), strictjson.Quote(clean)...)
			from = t.to
		}
	}
	return append(out, data[from:]...)
}

// clean returns the next part of a text without secrets.
func (c *cleaner) clean(name any, part string) string {
	s := c.texts[name]
	if s == nil {
		s = &secret.Stream{Redactor: c.redactor}
	}
	part = s.Write(part) + s.Pause()
	if delete(c.texts, name); s.Open() {
		c.texts[name] = s
	}
	return part
}

// texts are the strings of an event.
type texts struct {
	in   *jsontext.Decoder
	data []byte
	seed maphash.Seed
	list []text
}

// An event that nests deeper, or has more strings, is searched as one text.
const (
	maxNesting = 64
	maxTexts   = 100_000
)

// A text is a string at its place: a digest of the members that lead to it, and of the numbers of the choices, items and
// blocks that it is in.
type text struct {
	from, to int
	member   string
	place    uint64
}

// read reads the next value.
func (t *texts) read(member string, depth int) error {
	kind, from := t.in.PeekKind(), len(t.list)
	switch {
	case depth == 0 || from == maxTexts:
		return errors.New("too large")
	case kind != '{' && kind != '[':
		value, err := t.in.ReadValue()
		if to := int(t.in.InputOffset()); err == nil && kind == '"' {
			t.list = append(t.list, text{from: to - len(value), to: to, member: member})
		}
		return err
	}
	_, err := t.in.ReadToken()
	numbers := uint64(0)
	for next := t.in.PeekKind(); err == nil && next != '}' && next != ']'; next = t.in.PeekKind() {
		if kind == '{' {
			name, err := t.in.ReadToken()
			if err != nil {
				return err
			}
			member = name.String()
		}
		first, begin, digest := len(t.list), t.in.InputOffset(), maphash.String(t.seed, member)
		if err = t.read(member, depth-1); kind == '{' && (strings.HasSuffix(member, "index") || member == "item_id") {
			numbers += digest ^ maphash.Bytes(t.seed, t.data[begin:t.in.InputOffset()])
		}
		t.into(first, digest)
	}
	if t.into(from, numbers); err == nil {
		_, err = t.in.ReadToken()
	}
	return err
}

// into adds a digest to the places of the strings from one on.
func (t *texts) into(from int, digest uint64) {
	for i := range t.list[from:] {
		t.list[from+i].place = bits.RotateLeft64(t.list[from+i].place, 1) ^ digest
	}
}

// KeyRefused is the reason of an error of a server that rejects our key, which no caller can fix.
const KeyRefused = "model_key"
