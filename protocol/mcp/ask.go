package mcp

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// question is the name under which a tool's question goes to a client, and its answer comes back.
const question = "answer"

// An elicitation is what a client says to a question.
type elicitation struct {
	Action  string          `json:"action"`
	Content json.RawMessage `json:"content"`
}

// answers gives what the tool is to get.
func (e elicitation) answers(name string) (json.RawMessage, *tool.Error) {
	switch {
	case e.Action == "accept" && len(e.Content) > 0:
		return e.Content, nil
	case e.Action == "accept":
		return json.RawMessage("{}"), nil
	}
	return nil, tool.Errorf(tool.CodeCancelled, "%s was not run to its end: its question was not answered (%s)", name,
		jsonrpc.Clip(e.Action)).Because("not_answered")
}

func elicitParams(r *request, a *tool.Ask) []byte {
	w := strictjson.NewWriter(100 + len(a.Message) + len(a.Schema))
	if r.modern {
		w.Text("mode", "form")
	}
	w.Text("message", a.Message)
	w.Raw("requestedSchema", objectSchema(a.Schema))
	return w.Done()
}

// elicit asks a legacy client in the middle of its call.
func (s *server) elicit(ctx context.Context, r *request, a *tool.Ask, to peer) (json.RawMessage, *tool.Error) {
	if !r.can("elicitation") {
		return nil, cannotAsk(r.name, a)
	}
	ctx, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	raw, err := to.ask(ctx, "elicitation/create", elicitParams(r, a))
	var said elicitation
	if err == nil {
		err = strictjson.Unmarshal(raw, &said)
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeCancelled, "%s asks %q, and the client did not answer: %w", r.name, a.Message, err).
			Because("not_answered")
	}
	return said.answers(r.name)
}

func cannotAsk(name string, a *tool.Ask) *tool.Error {
	return tool.Errorf(tool.CodeUnsupported, "%s asks %q, and this client cannot be asked: use one that has elicitation",
		name, a.Message).Because("elicitation")
}

// inputRequired ends a modern call with the question. What the answer belongs to goes with it, sealed.
func (s *server) inputRequired(r *request, c *tool.Call, a *tool.Ask) (*strictjson.Writer, *jsonrpc.Error) {
	if !r.can("elicitation") {
		e := jsonrpc.Errorf(codeMissingCapability, "Missing required client capability: elicitation; %s asks %q", r.name, a.Message)
		e.Data = json.RawMessage(`{"requiredCapabilities":{"elicitation":{}}}`)
		return nil, e
	}
	w := strictjson.NewWriter(600 + len(a.Message) + len(a.Schema))
	w.Text("resultType", "input_required")
	ask := strictjson.NewWriter(200)
	ask.Text("method", "elicitation/create")
	ask.Raw("params", elicitParams(r, a))
	all := strictjson.NewWriter(200)
	all.Raw(question, ask.Done())
	w.Raw("inputRequests", all.Done())
	w.Text("requestState", s.seal.close(ticketFor(c, a.ID)))
	return w, nil
}

// resume takes the answers that a modern client brings, if it brings back what it was given for them.
func (s *server) resume(r *request, c *tool.Call) *jsonrpc.Error {
	if r.state == "" {
		return nil // answers to a question that was not asked are ignored
	}
	ask, err := s.seal.open(r.state, ticketFor(c, ""))
	if err != "" {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: requestState %s; call again without it", err)
	}
	var said map[string]elicitation
	if r.responses == nil || strictjson.Unmarshal(r.responses, &said) != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: inputResponses must be an object with an answer for %q", question)
	}
	got, ok := said[question]
	if !ok {
		return nil // the tool asks again
	}
	answers, refused := got.answers(r.name)
	if refused != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: %s", refused.Message)
	}
	c.Answers, c.Resume = answers, ask
	return nil
}

// A ticket binds an answer to its question: who was asked, by which call.
type ticket struct {
	Ask     string    `json:"ask"`
	Caller  string    `json:"caller"`
	Tool    string    `json:"tool"`
	Session string    `json:"session"`
	Args    []byte    `json:"args"` // a digest
	Until   time.Time `json:"until"`
	Once    string    `json:"once"`
}

func ticketFor(c *tool.Call, ask string) ticket {
	sum := sha256.Sum256(c.Args)
	return ticket{Ask: ask, Caller: c.Caller.ID, Tool: c.Tool, Session: c.Session, Args: sum[:]}
}

// Bounds of a seal.
const (
	sealTime = time.Hour // how long somebody may think about a question
	maxOpen  = 100_000   // tickets that are remembered as used
)

// A seal closes tickets so that only this program opens them, and each of them once. Its key ends with the program.
type seal struct {
	aead cipher.AEAD

	mu   sync.Mutex
	used map[string]time.Time // by Once, until when
}

func newSeal() *seal {
	var key [32]byte
	_, _ = rand.Read(key[:])          // it never fails
	block, _ := aes.NewCipher(key[:]) // nor does this with 32 bytes
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return &seal{aead: aead, used: map[string]time.Time{}}
}

func (s *seal) close(t ticket) string {
	t.Until, t.Once = time.Now().Add(sealTime), rand.Text()
	b, _ := strictjson.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, b, nil))
}

// open gives which question a ticket is for, if it is one of ours and for this call; else why it is not.
func (s *seal) open(text string, want ticket) (ask, why string) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		b, err = s.aead.Open(nil, nil, b, nil)
	}
	var t ticket
	if err != nil || strictjson.Unmarshal(b, &t) != nil {
		return "", "is not one that this server gave out since it started"
	}
	switch {
	case t.Caller != want.Caller || t.Tool != want.Tool || t.Session != want.Session || string(t.Args) != string(want.Args):
		return "", "belongs to another call: repeat the tool and the arguments as they were"
	case time.Now().After(t.Until):
		return "", "is too old"
	case !s.use(t):
		return "", "was used already"
	}
	return t.Ask, ""
}

// use reports whether a ticket is used for the first time. When too many are remembered none is taken: to forget one
// would let it be used again.
func (s *seal) use(t ticket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.used[t.Once]; again {
		return false
	}
	if len(s.used) >= maxOpen {
		now := time.Now()
		for once, until := range s.used {
			if now.After(until) {
				delete(s.used, once)
			}
		}
		if len(s.used) >= maxOpen {
			return false
		}
	}
	s.used[t.Once] = t.Until
	return true
}
