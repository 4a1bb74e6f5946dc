package door_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/tool"
	"toolpost/web"
)

// A shop is a bench with two callers, with tools that change, and with a tool that changes its session.
type shop struct {
	*bench
	tool.Changes

	mu    sync.Mutex
	extra []*tool.Spec
}

func newShop() *shop { return &shop{bench: newBench()} }

// sell sets the tools beside the usual ones.
func (s *shop) sell(extra ...*tool.Spec) {
	s.mu.Lock()
	s.extra = extra
	s.mu.Unlock()
	s.Tell()
}

// listed returns the tools of a caller: only bob has those that begin with "bob".
func (s *shop) listed(p tool.Principal) []*tool.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.extra), func(one *tool.Spec) bool {
		return strings.HasPrefix(one.Name, "bob") && p.ID != "bob"
	})
}

func (s *shop) Lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	for _, one := range s.listed(p) {
		if one.Name == name {
			return one, nil
		}
	}
	return s.bench.Lookup(ctx, p, name)
}

func (s *shop) Specs(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for _, one := range s.listed(p) {
			if !yield(one, nil) {
				return
			}
		}
		for one, err := range s.bench.Specs(ctx, p) {
			if !yield(one, err) {
				return
			}
		}
	}
}

func (s *shop) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	switch c.Tool {
	case "patch":
		if err := out.Emit(tool.Event{Kind: tool.KindStatePatch, Data: json.RawMessage(`{"a":1}`)}); err != nil {
			return nil, err
		}
		return &tool.Result{OK: true, Output: json.RawMessage(`{"session":"` + c.Session + `"}`)}, nil
	case "activate_skill":
		return &tool.Result{OK: true, Output: json.RawMessage(`{"instructions":"Do it well."}`)}, nil
	case "region":
		return &tool.Result{OK: true, Output: c.Args}, nil
	}
	return s.bench.Invoke(ctx, c, out)
}

// serveTwo opens the door for two callers, each with the token token-NAME, and returns its URL and a function that
// closes it.
func serveTwo(t *testing.T, o door.Options, h tool.Handler, c tool.Catalog) (url string, closed func()) {
	t.Helper()
	gate := func(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
		name, ok := strings.CutPrefix(shown.Token, "token-")
		if !ok {
			return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "nobody")
		}
		return tool.Principal{ID: name, Door: shown.Door}, nil
	}
	ready, ended := make(chan string, 1), make(chan error, 1)
	front := web.New(web.Options{
		Listen: "127.0.0.1:0", Gate: gate, Ready: func(addr string) { ready <- addr },
		Times: web.Times{Body: time.Second},
	}, door.NewDoor(o))
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- front.Serve(ctx, h, c) }()
	closed = sync.OnceFunc(func() {
		stop()
		kit.Check(t, <-ended)
	})
	t.Cleanup(closed)
	return "http://" + <-ready + door.Path, closed
}

// A streamMessage is a message on a stream.
type streamMessage struct {
	Method string
	ID     any
	Params struct {
		URI           string
		Notifications map[string]any
		Meta          map[string]any `json:"_meta"`
	}
	Result struct {
		Meta map[string]any `json:"_meta"`
	}
}

// follow opens a stream and returns a function for its messages, one after the other.
func follow(t *testing.T, method, url, body string, headers ...string) func() streamMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req := kit.Must(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	resp := kit.Must((&http.Client{Transport: transport}).Do(req))(t)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, b)
	}
	lines := bufio.NewScanner(resp.Body)
	return func() (m streamMessage) {
		t.Helper()
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				kit.OK(t, json.Unmarshal(data, &m), data)
				return m
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return m
	}
}

// listening opens a modern subscription of a caller, and reads the acknowledgement.
func listening(t *testing.T, url, who, filter string) (next func() streamMessage, ack streamMessage) {
	t.Helper()
	next = follow(t, http.MethodPost, url,
		`{"jsonrpc":"2.0","id":"sub-1","method":"subscriptions/listen","params":{"notifications":`+filter+`,`+aboutMe+`}}`,
		"Authorization", "Bearer token-"+who, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
	ack = next()
	if ack.Method != "notifications/subscriptions/acknowledged" || ack.Params.Meta["io.modelcontextprotocol/subscriptionId"] != "sub-1" {
		t.Fatalf("it is acknowledged with %+v", ack)
	}
	return next, ack
}

func TestSubscriptionReportsChangesForItsCaller(t *testing.T) {
	s := newShop()
	url, closed := serveTwo(t, door.Options{}, s, s)
	tools, _ := listening(t, url, "ada", `{"toolsListChanged":true}`)
	prompts, ack := listening(t, url, "ada", `{"promptsListChanged":true,"resourcesListChanged":true}`)
	if ack.Params.Notifications["promptsListChanged"] != true || ack.Params.Notifications["toolsListChanged"] != nil {
		t.Errorf("what is acknowledged is %v", ack.Params.Notifications)
	}
	s.sell(&tool.Spec{Name: "bob-only"}) // she is not notified of it
	s.sell(&tool.Spec{Name: "bob-only"}, &tool.Spec{Name: "new"})
	if m := tools(); m.Method != "notifications/tools/list_changed" || m.Params.Meta["io.modelcontextprotocol/subscriptionId"] != "sub-1" {
		t.Errorf("she hears %+v", m)
	}
	s.sell(&tool.Spec{Name: "new", Skills: []tool.Skill{{Name: "care"}}}) // a new prompt and resource, but no new tools for her
	heard := []string{prompts().Method, prompts().Method}
	slices.Sort(heard) // the order is not defined
	kit.EqualSlices(t, heard,
		[]string{"notifications/prompts/list_changed", "notifications/resources/list_changed"}, "she hears")
	closed()
	if m := tools(); m.ID != "sub-1" || m.Result.Meta["io.modelcontextprotocol/subscriptionId"] != "sub-1" {
		t.Errorf("at the end she hears %+v", m)
	}
}

// handshake introduces a legacy client, and returns its session.
func handshake(t *testing.T, url, who string) string {
	t.Helper()
	got := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		"Authorization", "Bearer token-"+who)
	if got.header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return got.header.Get("Mcp-Session-Id")
}

func TestOnlySubscribersHearOfSessionChanges(t *testing.T) {
	s := newShop()
	s.sell(&tool.Spec{Name: "patch", Output: []byte(`{"type":"object"}`)})
	url, _ := serveTwo(t, door.Options{}, s, s)
	patch := func(who, session string) {
		t.Helper()
		got := post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"patch",`+aboutMe+`}}`, "Toolpost-Session", session,
			"Authorization", "Bearer token-"+who, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "patch")
		if !strings.Contains(got.body, `"session":"`+session+`"`) {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	modern, _ := listening(t, url, "ada", `{"resourceSubscriptions":["toolpost://sessions/my%20tale","nowhere://x"]}`)
	id := handshake(t, url, "ada")
	legacy := []string{"Authorization", "Bearer token-ada", "Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25"}
	if got := post(t, url, `{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"toolpost://sessions/my%20tale"}}`, legacy...); string(got.Result) != "{}" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := post(t, url, `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"nowhere://x"}}`, legacy...); got.Error.Code != -32002 {
		t.Errorf("%d %s", got.status, got.body)
	}
	stream := follow(t, http.MethodGet, url, "", legacy...)
	patch("bob", "my tale")
	patch("ada", "another")
	patch("ada", "my tale")
	for name, next := range map[string]func() streamMessage{"modern": modern, "legacy": stream} {
		if m := next(); m.Method != "notifications/resources/updated" || m.Params.URI != "toolpost://sessions/my%20tale" {
			t.Errorf("the %s client hears %+v", name, m)
		}
	}
	s.sell() // a notification of another caller's session would come before this one
	if m := stream(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("the legacy client hears %+v", m)
	}
}

func TestALegacyClientOnStdioHearsThatTheToolsChanged(t *testing.T) {
	s := newShop()
	in, toDoor := io.Pipe()
	fromDoor, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- (&door.Door{In: in, Out: out, Caller: tool.Principal{ID: "ada"}}).Serve(context.Background(), s, s)
	}()
	lines := bufio.NewScanner(fromDoor)
	next := func() (m streamMessage) {
		t.Helper()
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &m) != nil {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
		return m
	}
	say := func(text string) {
		kit.OK(t, kit.Err(io.WriteString(toDoor, text+"\n")))
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	next()
	say(`{"jsonrpc":"2.0","id":2,"method":"ping"}`) // once it is answered, the door is listening
	next()
	s.sell(&tool.Spec{Name: "new"})
	if m := next(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("it hears %+v", m)
	}
	say(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + aboutMe + `}}`)
	if m := next(); m.Method != "notifications/subscriptions/acknowledged" {
		t.Errorf("it hears %+v", m)
	}
	_ = toDoor.Close()
	if m := next(); m.ID != "s" {
		t.Errorf("at the end it hears %+v", m)
	}
	kit.Check(t, <-ended)
}

func TestSkillsArePromptsAndResources(t *testing.T) {
	s := newShop()
	s.sell(
		&tool.Spec{Name: "activate_skill", Source: "one", Skills: []tool.Skill{{Name: "care", Description: "How to take care."}, {Name: "a b"}}},
		&tool.Spec{Name: "ask", Source: "two", Skills: []tool.Skill{{Name: "care"}}},
	)
	b := door.Options{Page: 2, Offers: door.Offers{Prompts: []door.Prompt{{Tool: "echo"}}}}
	url := serveHTTP(t, b, s, s)
	do := func(method, params, name string) said {
		t.Helper()
		headers := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
		if name != "" {
			headers = append(headers, "Mcp-Name", name)
		}
		return post(t, url, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+aboutMe+`}}`, headers...)
	}
	var names []string
	for cursor := ""; ; {
		var page struct {
			Prompts    []struct{ Name string }
			NextCursor string
		}
		if err := json.Unmarshal(do("prompts/list", `"cursor":"`+cursor+`",`, "").Result, &page); err != nil || len(page.Prompts) > 2 {
			t.Fatalf("%v: %+v", err, page)
		}
		for _, p := range page.Prompts {
			names = append(names, p.Name)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	kit.EqualSlices(t, names, []string{"a b", "care", "echo", "two.care"}, "the prompts")
	if got := do("prompts/get", `"name":"care",`, "care"); !strings.Contains(got.body, `{"type":"text","text":"Do it well."}`) {
		t.Error(got.body)
	}
	if got := do("resources/list", "", ""); !strings.Contains(got.body, `"uri":"skill://a%20b/SKILL.md","name":"a b"`) {
		t.Error(got.body)
	}
	const uri = "skill://a%20b/SKILL.md"
	if got := do("resources/read", `"uri":"`+uri+`",`, uri); !strings.Contains(got.body, `"mimeType":"text/markdown","text":"Do it well."`) {
		t.Error(got.body)
	}
	if got := do("prompts/list", `"cursor":"!",`, ""); got.Error.Code != -32602 {
		t.Error(got.body)
	}
}
