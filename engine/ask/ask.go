// Package ask is the stage that carries questions. A tool that asks has ended its call, and its caller makes the call
// again with the answers: whatever door it comes through, they are held against the question here before the tool runs
// again.
//
// Nobody remembers a question meanwhile. Its id, as callers see it, is the question itself, sealed: what the answers
// must look like, and the tool's own id for it. The seal is bound to the caller, the tool, the arguments and the
// session, so that the id is of no use for another call; and whoever changed it has nothing. To check answers at the
// doors was the other way: each would have needed a seal of its own, or the word of its caller about what was asked.
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
	"sync"
	"time"

	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The reasons of refusals.
const (
	Unknown  = "unknown_question"  // the id is not one that was given out for this call
	Expired  = "question_expired"  // nobody answered in time
	Answered = "question_answered" // somebody did already
	Invalid  = "invalid_answers"   // they are not what was asked for
)

// Marks remembers which questions were answered.
type Marks interface {
	// Mark notes who answered a question, and reports whether it was they: now, or before. Of several who try, in
	// whatever program, one does. It may be forgotten after the time ttl.
	Mark(ctx context.Context, question, who [32]byte, ttl time.Duration) (theirs bool, err error)
}

// Options has useful zero values.
type Options struct {
	TTL time.Duration // how long a question can be answered; 0: 24 h
	// Marks remembers what outlives this program, and where several programs meet; nil: in memory.
	Marks Marks
	// Others tells the ids of questions that are somebody else's to answer; nil: there are none.
	Others func(id string) bool
	// Keys seals questions, with the same key in all programs that share Marks; nil: with one that ends with this program.
	Keys *secret.Keyed
}

// Questions carries the questions of all tools.
type Questions struct {
	ttl    time.Duration
	marks  Marks
	others func(id string) bool
	keys   *secret.Keyed
	seal   func() (cipher.AEAD, error)
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
	q.seal = sync.OnceValues(func() (cipher.AEAD, error) { return q.keys.Seal("key that seals questions") })
	return q
}

// Answers is an engine.Stage: it refuses answers that are not what was asked for. It stands beside the check of
// arguments, so that a dry run is told too, and notes nothing: a call that is refused later can be made again.
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

// Carry is an engine.Stage: it seals what tools ask, and hands them their own ids back, each question once. It stands
// behind all that may refuse a call without a look at the tool, and behind idempotency: a call that is repeated with its
// key is not a second answer.
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

// use takes a question's answer for given, and gives the tool's own id of it.
func (q *Questions) use(ctx context.Context, c *tool.Call) (own string, err error) {
	s, err := q.open(c)
	if err != nil {
		return "", err
	}
	question, err := q.keys.Sum("question", []byte(s.Once))
	if err != nil {
		return "", err
	}
	// A job that is begun again after its program ended still has its answer. Any other call answers once, by whatever id
	// its caller gave it.
	by := []byte(rand.Text())
	if c.Patient {
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

// A sealed question is what its id says.
type sealed struct {
	Ask    string          `json:"a"` // the tool's own id
	Once   string          `json:"o"`
	Until  int64           `json:"u"` // in seconds
	Schema json.RawMessage `json:"s,omitzero"`
	Needs  []tool.Need     `json:"n,omitzero"` // without what nobody checks
}

// maxID bounds an id, in bytes: a header has to carry it.
const maxID = 16 << 10

// asked gives an outcome that asks with the question sealed.
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
	ask.ID, ask.Kind, ask.Awaits = id, "", nil // a tool asks for what it wants to know, and not for approvals
	sealed := *r
	sealed.OK, sealed.Ask = false, &ask
	return &sealed, nil
}

// bound is what an id is good for alone.
func (q *Questions) bound(c *tool.Call) ([]byte, error) {
	args, err := strictjson.Decode(c.Args)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s are not JSON: %v", c.Tool, err)
	}
	plain, err := strictjson.Marshal(args) // two that say the same are the same
	if err != nil {
		return nil, err
	}
	which := tool.Ref{Name: c.Tool}
	if c.Spec != nil {
		which = c.Spec.Ref()
	}
	sum, err := q.keys.Sum("call that asks", []byte(c.Caller.ID), []byte(which.Source), []byte(which.Name),
		[]byte(c.Session), plain)
	return sum[:], err
}

func (q *Questions) close(c *tool.Call, s sealed) (id string, err error) {
	aead, err := q.seal()
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
	w, _ := flate.NewWriter(&small, flate.BestCompression) // it is a level that there is
	_, _ = w.Write(plain)                                  // a buffer takes all
	_ = w.Close()
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, small.Bytes(), call)), nil //nolint:gosec // it makes a nonce
}

// open reads the id of the question that a call answers. It says no more to whoever has the id of another's question
// than to whoever made one up.
func (q *Questions) open(c *tool.Call) (s sealed, err error) {
	if c.Resume == "" {
		return s, tool.Errorf(tool.CodeInvalidInput,
			"answers for %s came without the id of their question; send it along", c.Tool).Because(Unknown)
	}
	aead, err := q.seal()
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

// maxPlain bounds what an id can say, so that a small one cannot be made of something huge.
const maxPlain = 1 << 20

func (q *Questions) read(aead cipher.AEAD, id string, call []byte, into *sealed) bool {
	if len(id) > maxID {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err == nil {
		b, err = aead.Open(nil, nil, b, call)
	}
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), maxPlain))
	}
	return err == nil && strictjson.Unmarshal(b, into) == nil
}
