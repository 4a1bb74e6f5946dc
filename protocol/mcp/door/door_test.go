package door_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
)

const token = "sixteen-letters-or-more"

// A bench has the standard tools of tooltest, and some for features that only this protocol has.
type bench struct {
	tooltest.Reference
	hanging atomic.Int32 // calls that hang
}

func newBench() *bench { return &bench{} }

func (b *bench) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	switch c.Tool {
	case "count":
		for n := range 3 {
			if err := out.Emit(tool.NewEvent(tool.KindProgress, tool.Progress{Progress: float64(n + 1), Total: 3, Message: "on"})); err != nil {
				return nil, err
			}
		}
		return &tool.Result{OK: true, Output: json.RawMessage(`[1,2,3]`)}, nil
	case "ask":
		if c.Answers == nil {
			return &tool.Result{Ask: &tool.Ask{
				ID: "q1", Message: "Which colour?",
				Schema: json.RawMessage(`{"type":"object","properties":{"colour":{"type":"string"}},"required":["colour"]}`),
			}}, nil
		}
		return &tool.Result{OK: true, Output: json.RawMessage(`{"resume":"` + c.Resume + `","answers":` + string(c.Answers) + `}`)}, nil
	case "hang":
		b.hanging.Add(1)
		defer b.hanging.Add(-1)
	case "odd.name":
		return &tool.Result{OK: true, Output: json.RawMessage(`"` + c.Tool + `"`)}, nil
	}
	return b.Reference.Invoke(ctx, c, out)
}

func more() []*tool.Spec {
	return []*tool.Spec{
		{Name: "ask"}, {Name: "count", Effects: tool.Effects{Reads: true, Idempotent: true}, Output: json.RawMessage(`{"type":"array"}`)},
		{Name: "odd.name", Title: "Odd"},
	}
}

func (b *bench) Lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	for _, s := range more() {
		if s.Name == name {
			return s, nil
		}
	}
	return b.Reference.Lookup(ctx, p, name)
}

func (b *bench) Specs(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for _, s := range more() {
			if !yield(s, nil) {
				return
			}
		}
		for s, err := range b.Reference.Specs(ctx, p) {
			if !yield(s, err) {
				return
			}
		}
	}
}

// serveHTTP opens the door over HTTP and returns its URL.
func serveHTTP(t *testing.T, o door.Options, h tool.Handler, c tool.Catalog) string {
	t.Helper()
	gate := kit.Must(identity.StaticToken(token))(t)
	ready, ended := make(chan string, 1), make(chan error, 1)
	front := web.New(web.Options{Listen: "127.0.0.1:0", Gate: gate, Ready: func(addr string) { ready <- addr }}, door.NewDoor(o))
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- front.Serve(ctx, h, c) }()
	t.Cleanup(func() {
		stop()
		kit.Check(t, <-ended)
	})
	return "http://" + <-ready + door.Path
}

// A bearer adds the token to every request that has none.
type bearer struct{ http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.RoundTripper.RoundTrip(r)
}

func httpClient(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: bearer{transport}}
}

// connect connects the official client of an era with the door, over HTTP or over two pipes.
func connect(t *testing.T, over, version string, b *bench, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	var way sdk.Transport
	if over == "http" {
		way = &sdk.StreamableClientTransport{
			Endpoint: serveHTTP(t, door.Options{}, b, b), HTTPClient: httpClient(t), MaxRetries: -1,
		}
	} else {
		toDoor, in := io.Pipe()
		out, fromDoor := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- (&door.Door{In: toDoor, Out: fromDoor, Caller: tool.Principal{ID: "ada", Door: "mcp"}}).Serve(context.Background(), b, b)
			_ = fromDoor.Close()
		}()
		t.Cleanup(func() {
			_ = in.Close()
			kit.Check(t, <-ended)
		})
		way = &sdk.IOTransport{Reader: out, Writer: in}
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	s := kit.Must(client.Connect(t.Context(), way, &sdk.ClientSessionOptions{ProtocolVersion: version}))(t)
	t.Cleanup(func() { _ = s.Close() })
	kit.MustEqual(t, s.InitializeResult().ProtocolVersion, version, "the client and the door speak")
	return s
}

// each runs a test for every era and every transport.
func each(t *testing.T, o *sdk.ClientOptions, run func(t *testing.T, s *sdk.ClientSession, b *bench, modern bool)) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for _, over := range []string{"http", "stdio"} {
			t.Run(version+" over "+over, func(t *testing.T) {
				b := newBench()
				run(t, connect(t, over, version, b, o), b, version == "2026-07-28")
			})
		}
	}
}

func textOf(r *sdk.CallToolResult) string {
	if r == nil || len(r.Content) == 0 {
		return ""
	}
	text, _ := r.Content[0].(*sdk.TextContent)
	if text == nil {
		return fmt.Sprintf("%T", r.Content[0])
	}
	return text.Text
}

// codeOf returns the code of a failure, which is in _meta for programs.
func codeOf(r *sdk.CallToolResult) any {
	why, _ := r.Meta["toolpost/error"].(map[string]any)
	return why["code"]
}

func TestTheOfficialClientListsAndCalls(t *testing.T) {
	each(t, nil, func(t *testing.T, s *sdk.ClientSession, _ *bench, modern bool) {
		list := kit.Must(s.ListTools(t.Context(), nil))(t)
		found := map[string]*sdk.Tool{}
		for _, one := range list.Tools {
			found[one.Name] = one
		}
		count := found["count"]
		if found["echo"] == nil || found["odd_name"] == nil || count == nil || len(found) != len(more())+len(tooltest.Specs()) {
			t.Fatalf("the tools are %v", found)
		}
		if a := count.Annotations; a == nil || !a.ReadOnlyHint || !a.IdempotentHint || a.DestructiveHint == nil || *a.DestructiveHint {
			t.Errorf("count is annotated %+v", a)
		}
		if (count.OutputSchema != nil) != modern {
			t.Errorf("the schema of an output that is a list is %v", count.OutputSchema)
		}
		r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"a": []any{1.0, "ü"}}})
		if err != nil || r.IsError || fmt.Sprint(r.StructuredContent) != "map[a:[1 ü]]" || textOf(r) != `{"a":[1,"ü"]}` {
			t.Errorf("%+v, %v", r, err)
		}
		r, err = s.CallTool(t.Context(), &sdk.CallToolParams{Name: "odd_name"})
		if err != nil || textOf(r) != "odd.name" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestAFailureIsAResultAndAnUnknownToolIsNot(t *testing.T) {
	each(t, nil, func(t *testing.T, s *sdk.ClientSession, _ *bench, _ bool) {
		r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "fail", Arguments: map[string]any{"message": "no luck"}})
		if err != nil || !r.IsError || textOf(r) != "no luck" || codeOf(r) != "tool_error" {
			t.Errorf("%+v, %v", r, err)
		}
		r, err = s.CallTool(t.Context(), &sdk.CallToolParams{Name: "crash"})
		if err != nil || !r.IsError || !strings.Contains(textOf(r), "died without an answer") || codeOf(r) != "crash" {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err = s.CallTool(t.Context(), &sdk.CallToolParams{Name: "nobody"}); err == nil || !strings.Contains(err.Error(), "Unknown tool: nobody") {
			t.Error(err)
		}
	})
}

func TestProgressIsTold(t *testing.T) {
	heard := make(chan float64, 10)
	o := &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { heard <- r.Params.Progress }}
	each(t, o, func(t *testing.T, s *sdk.ClientSession, _ *bench, _ bool) {
		p := &sdk.CallToolParams{Name: "count"}
		p.SetProgressToken("token")
		if r, err := s.CallTool(t.Context(), p); err != nil || textOf(r) != "[1,2,3]" {
			t.Fatalf("%+v, %v", r, err)
		}
		for n := range 3 {
			if got := <-heard; got != float64(n+1) {
				t.Errorf("%v was told as number %d", got, n+1)
			}
		}
	})
}

func TestAQuestionIsAskedAndTheCallGoesOn(t *testing.T) {
	o := &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		if r.Params.Message != "Which colour?" {
			return nil, fmt.Errorf("asked %q", r.Params.Message)
		}
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"colour": "red"}}, nil
	}}
	each(t, o, func(t *testing.T, s *sdk.ClientSession, _ *bench, _ bool) {
		r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "ask"})
		if err != nil || textOf(r) != `{"resume":"q1","answers":{"colour":"red"}}` {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestACallThatIsCancelledEnds(t *testing.T) {
	each(t, nil, func(t *testing.T, s *sdk.ClientSession, b *bench, _ bool) {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "hang"})
			answered <- err
		}()
		time.AfterFunc(50*time.Millisecond, cancel) // before or after it began: both must work
		kit.Fails(t, <-answered, "", "it was answered")
		if r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{}}); err != nil || r.IsError {
			t.Errorf("the next caller gets %+v, %v", r, err)
		}
		kit.Eventually(t, "the call ends", func() bool { return b.hanging.Load() == 0 })
	})
}
