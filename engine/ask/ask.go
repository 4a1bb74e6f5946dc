// Package ask is the stage that carries questions. A tool that asks has ended its call, and its caller makes the call
// again with the answers. Whatever the door, the answers are checked against the question here before the tool runs
// again.
//
// No state is kept in between. The id of a question, as callers see it, is the question itself, sealed: what the answers
// must look like, and the tool's own id for it. The seal is bound to the caller, the tool, the arguments and the
// session, so that the id is useless for another call, and a changed id does not open. The alternative was to check
// answers at the doors: each would have needed its own seal, or would have had to trust its caller about what was asked.
package ask

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"time"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The reasons of refusals.
const (
	Unknown  = "unknown_question"  // the id was not issued for this call
	Expired  = "question_expired"  // it was not answered in time
	Answered = "question_answered" // it was answered before
	Invalid  = "invalid_answers"   // the answers do not fit the question
)

// Marks remembers which questions were answered.
type Marks interface {
	// Mark records who answered a question, and reports whether this call or an earlier one with the same who did. If
	// several processes try, exactly one succeeds. The record may be dropped after ttl.
	Mark(ctx context.Context, question, who [32]byte, ttl time.Duration) (theirs bool, err error)
}

// Options has useful zero values.
type Options struct {
	TTL time.Duration // how long a question can be answered; 0 means 24 h
	// Marks outlives this process and may be shared by several; nil means in memory.
	Marks Marks
	// Others reports whether an id belongs to a question that another stage answers; nil means that there are none.
	Others func(id string) bool
	// Keys seals questions, with the same key in all processes that share Marks; nil means a key that lasts as long as
	// this process.
	Keys *secret.Keyed
}

// Questions carries the questions of all tools.
type Questions struct {
	ttl    time.Duration
	marks  Marks
	others func(id string) bool
	keys   *secret.Keyed
}

// New makes the stage of one engine.
func New(o Options) *Questions {
	q := &Questions{ttl: o.TTL, marks: o.Marks, others: o.Others, keys: o.Keys}
	if q.others == nil {
		q.others = func(string) bool { return false }
	}
	if q.ttl == 0 {
		q.ttl = 24 * time.Hour
	}
	if q.marks == nil {
		q.marks = NewMemory()
	}
	if q.keys == nil {
		q.keys = secret.NewKeyed(nil)
	}
	return q
}

// Answers is an engine.Stage: it refuses answers that do not fit the question. It runs next to the check of arguments,
// so that a dry run is checked too. It records nothing: a call that is refused later can be made again.
func (q *Questions) Answers(*tool.Spec) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Resume == "" && len(c.Answers) == 0 || q.others(c.Resume) {
				return next.Invoke(ctx, c, out)
			}
			s, err := q.open(c)
			if err != nil {
				return nil, err
			}
			checked := *c
			if checked.Answers, err = s.check(c); err != nil {
				return nil, err
			}
			return next.Invoke(ctx, &checked, out)
		})
	}
}

// Carry is an engine.Stage: it seals the questions of tools, and returns their own ids to them, each question once. It
// runs behind all stages that may refuse a call without looking at the tool, and behind idempotency: a call that is
// repeated with its key is not a second answer.
func (q *Questions) Carry(*tool.Spec) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			inner := c
			if c.Resume != "" {
				own, err := q.use(ctx, c)
				if err != nil {
					return nil, err
				}
				resumed := *c
				resumed.Resume, inner = own, &resumed
			}
			r, err := next.Invoke(ctx, inner, out)
			if err != nil || r.Ask == nil {
				return r, err
			}
			return q.asked(c, r)
		})
	}
}

// use marks a question as answered, and returns the tool's own id for it.
func (q *Questions) use(ctx context.Context, c *tool.Call) (own string, err error) {
	s, err := q.open(c)
	if err != nil {
		return "", err
	}
	question, err := q.keys.Sum("question", []byte(s.Once))
	if err != nil {
		return "", err
	}
	// A job that is restarted after its process ended keeps its answer. Any other call answers once, whatever id its
	// caller gave it.
	by := []byte(rand.Text())
	if c.Background {
		by = []byte(c.ID)
	}
	who, err := q.keys.Sum("answer", []byte(c.Caller.ID), by)
	if err != nil {
		return "", err
	}
	theirs, err := q.marks.Mark(ctx, question, who, q.ttl)
	switch {
	case err != nil:
		return "", tool.BeforeRun(err)
	case !theirs:
		return "", tool.Errorf(tool.CodeConflict, "this question of %s was answered already; call it again without "+
			"answers to be asked again", c.Tool).Because(Answered)
	}
	return s.Ask, nil
}

// A sealed is the content of a question's id.
type sealed struct {
	Ask    string          `json:"a"` // the tool's own id
	Once   string          `json:"o"`
	Until  int64           `json:"u"` // in seconds
	Schema json.RawMessage `json:"s,omitzero"`
	Needs  []tool.Need     `json:"n,omitzero"` // without the parts that are not checked
}

// maxID bounds an id, in bytes: a header has to carry it.
const maxID = 16 << 10

// asked returns a result that asks, with its question sealed.
func (q *Questions) asked(c *tool.Call, r *tool.Result) (*tool.Result, error) {
	if err := sound(r.Ask); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "%s asks a question that cannot be asked: %w", c.Tool, err)
	}
	s := sealed{
		Ask: r.Ask.ID, Once: rand.Text(), Until: time.Now().Add(q.ttl).Unix(), Schema: r.Ask.Schema,
	}
	for _, n := range r.Ask.Needs {
		s.Needs = append(s.Needs, tool.Need{Key: n.Key, Kind: n.Kind, Schema: n.Schema, Optional: n.Optional})
	}
	id, err := q.close(c, s)
	if err != nil {
		return nil, err
	}
	if len(id) > maxID {
		return nil, tool.Errorf(tool.CodeProtocol, "%s asks a question that cannot be asked: "+
			"its id and its schemas are too large; make them smaller", c.Tool)
	}
	ask := *r.Ask
	ask.ID, ask.Kind, ask.Awaits = id, "", nil // tools ask for information, never for approvals
	sealed := *r
	sealed.OK, sealed.Ask = false, &ask
	return &sealed, nil
}

// bound returns the data that an id is bound to.
func (q *Questions) bound(c *tool.Call) ([]byte, error) {
	args, err := strictjson.Decode(c.Args)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %v", c.Tool, err)
	}
	plain, err := strictjson.Marshal(args) // canonical: equal arguments have equal bytes
	if err != nil {
		return nil, err
	}
	which := tool.Ref{Name: c.Tool}
	if c.Spec != nil {
		which = c.Spec.Ref()
	}
	sum, err := q.keys.Sum("call that asks", []byte(c.Caller.ID), []byte(which.Source), []byte(which.Name),
		[]byte(c.Session), append(plain, c.Definition()...))
	return sum[:], err
}

// Definition returns the digest of the definition that asked a question, or "" if its tool has only one. The seal holds it, too.
func Definition(id string) string {
	_, digest, _ := strings.Cut(id, ".")
	return digest
}

func (q *Questions) close(c *tool.Call, s sealed) (id string, err error) {
	aead, err := q.keys.Seal("key that seals questions")
	if err != nil {
		return "", err
	}
	call, err := q.bound(c)
	if err != nil {
		return "", err
	}
	plain, err := strictjson.Marshal(s)
	if err != nil {
		return "", tool.Errorf(tool.CodeProtocol, "the question of %s is not JSON: %w", c.Tool, err)
	}
	var small bytes.Buffer
	w, _ := flate.NewWriter(&small, flate.BestCompression) // the level is valid
	_, _ = w.Write(plain)                                  // a buffer takes all
	_ = w.Close()
	id = base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, small.Bytes(), call)) //nolint:gosec // it makes a nonce
	if d := c.Definition(); d != "" {
		id += "." + d
	}
	return id, nil
}

// open reads the id of the question that a call answers. The error for the id of another caller's question is the same
// as for a made-up id.
func (q *Questions) open(c *tool.Call) (s sealed, err error) {
	if c.Resume == "" {
		return s, tool.Errorf(tool.CodeInvalidInput,
			"answers for %s came without the id of their question; send it along", c.Tool).Because(Unknown)
	}
	aead, err := q.keys.Seal("key that seals questions")
	if err != nil {
		return s, err
	}
	call, err := q.bound(c)
	if err != nil {
		return s, err
	}
	if !q.read(aead, c.Resume, call, &s) {
		return s, tool.Errorf(tool.CodeInvalidInput, "%s has not asked you a question of this id in a call with these "+
			"arguments and this session; repeat them as they were, or call again without answers", c.Tool).Because(Unknown)
	}
	if time.Now().Unix() >= s.Until {
		return s, tool.Errorf(tool.CodeInvalidInput,
			"this question of %s is too old to be answered; call it again without answers to be asked again",
			c.Tool).Because(Expired)
	}
	return s, nil
}

// maxPlain bounds the content of an id, so that a small id cannot unpack to something huge.
const maxPlain = 1 << 20

func (q *Questions) read(aead cipher.AEAD, id string, call []byte, into *sealed) bool {
	if len(id) > maxID {
		return false
	}
	id, _, _ = strings.Cut(id, ".")
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err == nil {
		b, err = aead.Open(nil, nil, b, call)
	}
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), maxPlain))
	}
	return err == nil && strictjson.Unmarshal(b, into) == nil
}
