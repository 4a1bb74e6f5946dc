package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/engine/audit"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/sse"
)

// Token is the owner's token.
const Token = "sixteen-letters-or-more"

// Limit only guards against a hang.
const Limit = time.Minute

// A House is a complete node whose models are those of a scripted server.
type House struct {
	T    *testing.T
	cfg  *config.Config
	dir  string
	URL  string
	Stop func()       // stops the node, once
	Hung atomic.Int32 // running calls of hang
}

// tools are the standard tools, one with a name that these wires do not carry, one that asks, and one that offers choices.
type tools struct {
	tooltest.Reference
	of *House
}

func (tools) Close(context.Context) error { return nil }

func (tools) Tools(context.Context) ([]*tool.Spec, error) {
	return append(tooltest.Specs(),
		&tool.Spec{Name: "dotted.name", Input: json.RawMessage(`{"type":"object","properties":{"x":{"type":"integer"}},` +
			`"required":["x"],"additionalProperties":false}`)},
		&tool.Spec{Name: "asker"}, &tool.Spec{Name: "chooser"},
	), nil
}

func (r tools) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	switch c.Spec.Name {
	case "dotted.name":
		return &tool.Result{OK: true, Output: json.RawMessage(`"dotted"`)}, nil
	case "asker":
		return &tool.Result{Ask: &tool.Ask{ID: "q", Message: "Which colour?"}}, nil
	case "chooser":
		payload := json.RawMessage(`{"choices":["Go north",{"id":"s","label":"Go south","hint":"it is cold"}]}`)
		offer := tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: "narrative_choice", Payload: payload})
		return &tool.Result{OK: true, Output: json.RawMessage(`"You stand at a gate."`)}, out.Emit(offer)
	case "hang":
		r.of.Hung.Add(1)
		defer r.of.Hung.Add(-1)
	}
	return r.Reference.Invoke(ctx, c, out)
}

// Serve opens a House in front of a model server. It adds more to the config, in which MODEL is replaced by the server.
func Serve(t *testing.T, m *Server, more string) *House {
	t.Helper()
	h := &House{T: t, dir: t.TempDir()}
	kit.OK(t, os.WriteFile(filepath.Join(h.dir, "package.json"), []byte(`{"name": "demo"}`), 0o600))
	text := strings.ReplaceAll(fmt.Sprintf(`
sources: [{name: files, protocol: builtin, roots: [{path: .}]}, {name: ref, protocol: ref}]
doors: {http: {listen: "127.0.0.1:0"}%s}
models:
  - {name: demo, url: "MODEL/v1", key: KEY, model: m-1, tools: offer, prices: {input: 1000000, output: 1000000}}
  - {name: claude, url: "MODEL/v1", key: KEY, model: m-1, api: anthropic, tools: offer}
  - {name: newer, url: "MODEL/v1", key: KEY, model: m-1, api: responses, tools: offer}
  - {name: bare-openai, url: "MODEL/v1", key: KEY, model: m-1}
  - {name: bare-anthropic, url: "MODEL/v1", key: KEY, model: m-1, api: anthropic}
  - {name: bare-responses, url: "MODEL/v1", key: KEY, model: m-1, api: responses}
secrets: {KEY: {file: key}}
policy: {rules: [{name: no-fail, effect: deny, tools: fail, when: 'args.message == "x"', reason: nobody fails here}]}
store: {}
`, more), "MODEL", m.URL)
	kit.OK(t, os.WriteFile(filepath.Join(h.dir, "key"), []byte("the-key-itself"), 0o600))
	var err error
	if h.cfg, err = config.Parse(filepath.Join(h.dir, "toolpost.yaml"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	h.open()
	return h
}

func (h *House) open() {
	h.T.Helper()
	ready := make(chan node.Listening, 8)
	opened := func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return tools{of: h}, nil }
	n := kit.Must(node.Open(h.T.Context(), h.cfg, node.Options{
		Token: Token, Ready: func(l node.Listening) { ready <- l },
		Protocols: append(node.Protocols(), node.Protocol{Name: "ref", Open: opened}),
	}))(h.T)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Serve(ctx) }()
	for h.URL == "" {
		select {
		case l := <-ready:
			if l.Door == "http" {
				h.URL = l.URL
			}
		case err := <-ended:
			h.T.Fatal(err)
		}
	}
	done := false
	h.Stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		kit.Check(h.T, <-ended)
		late, end := context.WithTimeout(context.Background(), Limit)
		defer end()
		kit.Check(h.T, n.Close(late))
	}
	h.T.Cleanup(h.Stop)
}

// Records stops the House and returns its records of calls.
func (h *House) Records() (all []*tool.Record) {
	h.T.Helper()
	h.Stop()
	db, _, err := storage.Open(h.cfg)
	if err != nil {
		h.T.Fatal(err)
	}
	defer db.Close()
	err = db.Audit().Log(context.Background(), audit.Filter{}, false, func(r *tool.Record) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		h.T.Fatal(err)
	}
	return all
}

// A Reply is a complete response.
type Reply struct {
	Status int
	Header http.Header
	Text   string
	Doc    map[string]any
}

// Do sends a request as the owner, with more headers by name and value.
func (h *House) Do(method, path, body string, header ...string) Reply {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(h.T.Context(), Limit)
	defer cancel()
	resp := h.Send(ctx, method, path, body, header...)
	defer resp.Body.Close()
	b := kit.Must(io.ReadAll(resp.Body))(h.T)
	a := Reply{Status: resp.StatusCode, Header: resp.Header, Text: string(b)}
	_ = json.Unmarshal(b, &a.Doc)
	return a
}

// Send is Do for an answer that arrives in pieces.
func (h *House) Send(ctx context.Context, method, path, body string, header ...string) *http.Response {
	h.T.Helper()
	req := kit.Must(http.NewRequestWithContext(ctx, method, h.URL+path, strings.NewReader(body)))(h.T)
	req.Header.Set("Authorization", "Bearer "+Token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return kit.Must(http.DefaultClient.Do(req))(h.T)
}

// Events reads a stream to its end.
func (h *House) Events(path, body string) (all []sse.Event) {
	h.T.Helper()
	ctx, cancel := context.WithTimeout(h.T.Context(), Limit)
	defer cancel()
	resp := h.Send(ctx, "POST", path, body)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		h.T.Fatalf("%d: %s", resp.StatusCode, b)
	}
	for in := sse.New(resp.Body, 1<<20); ; {
		e, err := in.Next()
		if err != nil {
			return all
		}
		e.Data = bytes.Clone(e.Data)
		all = append(all, e)
	}
}

// Dig returns a value inside a document, by keys and indexes.
func Dig(doc any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := doc.(map[string]any)
			doc = m[step]
		case int:
			l, _ := doc.([]any)
			if step >= len(l) {
				return nil
			}
			doc = l[step]
		}
	}
	return doc
}

// Chat returns a request to the model demo.
func Chat(more string) string {
	return `{"model":"demo","messages":[{"role":"user","content":"Read the file package.json"}]` + more + `}`
}

// Says is a step in which the model says something.
func Says(text string) Step { return Step{Text: text} }

// Calling is a step in which the model calls tools.
func Calling(list ...Call) Step { return Step{Calls: list} }

// ReadFile is a call of the tool readFile.
func ReadFile(id string) Call {
	return Call{ID: id, Name: "readFile", Args: `{"path":"package.json"}`}
}
