package node_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

// A collector keeps the spans that it gets.
type collector struct {
	url string

	mu    sync.Mutex
	raw   bytes.Buffer
	spans []collected
}

type collected struct {
	TraceID, SpanID, ParentSpanID, Name string
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue string }
	}
}

func (s collected) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.StringValue
		}
	}
	return ""
}

func collect(t *testing.T) *collector {
	c := &collector{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	c.raw.Write(body)
	var m struct {
		ResourceSpans []struct{ ScopeSpans []struct{ Spans []collected } }
	}
	if err == nil && r.URL.Path == "/v1/traces" {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, rs := range m.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans { // OTLP has its ids in digits of either case
				s.TraceID, s.SpanID, s.ParentSpanID = strings.ToLower(s.TraceID), strings.ToLower(s.SpanID), strings.ToLower(s.ParentSpanID)
				c.spans = append(c.spans, s)
			}
		}
	}
	_, _ = io.WriteString(w, "{}")
}

// find returns the only span with that door and parent.
func (c *collector) find(t *testing.T, door, parent string) collected {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []collected
	for _, s := range c.spans {
		if s.attribute("toolpost.door") == door && s.ParentSpanID == parent {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans of door %s under %s:\n%s", len(found), door, parent, c.raw.String())
	}
	return found[0]
}

// tells is a tool that reports the span in which it runs.
const tells = `sources: [{name: tells, protocol: narratoria, command: [sh, -c, 'echo "{\"version\":\"0\",\"type\":\"done\",\"ok\":true,\"summary\":\"$TRACEPARENT\"}"']}]
`

const (
	w3cTrace = "0af76519-16cd-43dd-8448-eb211c80319c"
	w3cID    = "0af7651916cd43dd8448eb211c80319c"
	w3cToken = "sixteen-letters-or-more"
)

// urlsOf waits until these doors are open, and returns their addresses. Others may be open too, such as MCP beside HTTP.
func urlsOf(ready <-chan node.Listening, names ...string) map[string]string {
	urls := map[string]string{}
	for slices.ContainsFunc(names, func(name string) bool { return urls[name] == "" }) {
		l := <-ready
		urls[l.Door] = l.URL
	}
	return urls
}

// doors opens a node with telemetry and both doors, and returns their addresses and a function that closes everything.
func doors(t *testing.T, c *collector) (urls map[string]string, stop func()) {
	t.Helper()
	ready := make(chan node.Listening, 8)
	n := open(t, parse(t, t.TempDir(), tells+"telemetry: {otlp: '"+c.url+"'}\ndoors: {http: {listen: '127.0.0.1:0'}, nats: {listen: '127.0.0.1:0'}}\n"),
		node.Options{Token: w3cToken, Version: "1", Ready: func(l node.Listening) { ready <- l }})
	end := serve(t, n)
	return urlsOf(ready, "http", "nats"), func() { end(); shut(t, n) }
}

func parentOf(span string) string { return "00-" + w3cID + "-" + span + "-01" }

func TestATraceGoesInThroughEveryDoorAndOnToTheTool(t *testing.T) {
	c := collect(t)
	urls, stop := doors(t, c)
	req := kit.Must(http.NewRequest(http.MethodPost, urls["http"]+"/v1/tools/tells/call", strings.NewReader(`{}`)))(t)
	req.Header.Set("Authorization", "Bearer "+w3cToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", parentOf("00000000000000aa"))
	resp := kit.Must(http.DefaultClient.Do(req))(t)
	overHTTP, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	kit.OK(t, err)
	conn := kit.Must(nats.Connect(urls["nats"], nats.Token(w3cToken), nats.Timeout(time.Minute)))(t)
	msg := &nats.Msg{Subject: "tools.execute.tells", Data: []byte(`{}`), Header: nats.Header{"traceparent": {parentOf("00000000000000bb")}}}
	overNATS, err := conn.RequestMsgWithContext(t.Context(), msg)
	conn.Close()
	kit.OK(t, err)
	stop()
	for door, d := range map[string]struct{ parent, said string }{
		"http": {"00000000000000aa", string(overHTTP)}, "nats": {"00000000000000bb", string(overNATS.Data)},
	} {
		s := c.find(t, door, d.parent)
		if s.TraceID != w3cID || s.Name != "execute_tool tells" {
			t.Errorf("%s: the span is %+v", door, s)
		}
		kit.Contains(t, d.said, parentOf(s.SpanID), "%s: the tool of the span %s said", door, s.SpanID)
	}
}

func TestATraceGoesOutToOtherNodes(t *testing.T) {
	c := collect(t)
	urls, stop := doors(t, c)
	t.Setenv("W3C_TOKEN", w3cToken)
	near := open(t, parse(t, t.TempDir(), `sources:
- {name: http, protocol: rest, url: '`+urls["http"]+`', token_env: W3C_TOKEN}
- {name: nats, protocol: singularity, url: '`+urls["nats"]+`', token_env: W3C_TOKEN}
telemetry: {otlp: '`+c.url+"'}\n"), node.Options{Version: "1"})
	said := map[string]string{}
	for door, span := range map[string]string{"http": "00000000000000cc", "nats": "00000000000000dd"} {
		r := kit.Must(near.Handler().Invoke(t.Context(), &tool.Call{
			Tool: door + ".tells", Args: json.RawMessage(`{}`), Trace: w3cTrace, Span: span, Caller: tool.Principal{ID: "ada", Door: "cli"},
		}, tool.Discard))(t)
		said[door] = string(r.Output) + r.Summary
	}
	shut(t, near)
	stop()
	for door, span := range map[string]string{"http": "00000000000000cc", "nats": "00000000000000dd"} {
		first := c.find(t, "cli", span)
		second := c.find(t, door, first.SpanID)
		if first.TraceID != w3cID || second.TraceID != w3cID || !strings.Contains(said[door], parentOf(second.SpanID)) {
			t.Errorf("%s: %+v, then %+v, and the tool said %s", door, first, second, said[door])
		}
	}
}

func TestNoSecretIsInSpansAndMetrics(t *testing.T) {
	c := collect(t)
	t.Setenv("CANARY", "canary-value-4711")
	n := open(t, parse(t, t.TempDir(), "sources: [{name: tool, protocol: fake}]\nsecrets: {KEY: {env: CANARY}}\ntelemetry: {otlp: '"+c.url+"', headers: {X-Key: KEY}}\n"),
		node.Options{Version: "1", Protocols: newFake().protocol()})
	for _, name := range []string{"tool", "canary-value-4711"} {
		invoke(t, n, tool.Call{
			Tool: name, ID: "canary-value-4711", Args: json.RawMessage(`{"a":"canary-value-4711"}`), Caller: tool.Principal{ID: "canary-value-4711", Door: "cli"},
		})
	}
	var metrics bytes.Buffer
	kit.OK(t, n.Metrics(&metrics))
	shut(t, n)
	if len(c.spans) != 2 || strings.Contains(c.raw.String(), "canary") || strings.Contains(metrics.String(), "canary") {
		t.Errorf("%d spans:\n%s\n%s", len(c.spans), c.raw.String(), metrics.String())
	}
	for _, want := range []string{`protocol="fake",source="tool",tool="tool"`, `tool="unknown"`, `toolpost_sources{state="open"} 1`, `toolpost_info{version="1"} 1`} {
		kit.Contains(t, metrics.String(), want, "the metrics have no")
	}
}

func TestTheSchemaKnowsTelemetryAndTheCache(t *testing.T) {
	b := kit.Must(node.Schema())(t)
	for _, field := range []string{"otlp", "sample", "headers", "invalidate", "ttl", "max_bytes"} {
		if !bytes.Contains(b, []byte(`"`+field+`"`)) {
			t.Errorf("the schema has no %s", field)
		}
	}
}

func TestAMistakeInTheTelemetryStopsTheStart(t *testing.T) {
	for text, want := range map[string]string{
		"telemetry: {otlp: 'http://collector.example'}": "not encrypted", "telemetry: {oltp: x}": `did you mean "otlp"?`,
	} {
		_, err := node.Open(t.Context(), parse(t, t.TempDir(), twoFakes+text+"\n"), node.Options{Protocols: newFake().protocol()})
		kit.Refused(t, err, tool.CodeInvalidInput, want, text)
	}
}

const cachedFiles = `sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}]}]
`

// read reads the file x and reports whether the answer came from memory.
func read(t *testing.T, n *node.Node) (content string, cached bool) {
	t.Helper()
	c := &tool.Call{Tool: "readFile", Args: json.RawMessage(`{"path":"x"}`), Caller: tool.Principal{ID: "ada", Door: "cli"}}
	r := kit.Must(n.Handler().Invoke(t.Context(), c, tool.Discard))(t)
	return string(r.Output), r.Trace.Cached
}

func TestCacheFollowsConfigAndWrites(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "x"), []byte("first"), 0o600))
	var logged kit.Buffer
	n := open(t, parse(t, dir, cachedFiles+"limits: {cache: [{tools: [readFile, 'list*'], ttl: 1h}]}\n"),
		node.Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	defer shut(t, n)
	expect := func(when, want string, hit bool) {
		t.Helper()
		if got, cached := read(t, n); !strings.Contains(got, want) || cached != hit {
			t.Errorf("%s: %s, from memory: %v", when, got, cached)
		}
	}
	expect("first", "first", false)
	expect("again", "first", true)
	if _, code := invoke(t, n, tool.Call{Tool: "writeFile", Args: json.RawMessage(`{"path":"x","content":"second"}`)}); code != "" {
		t.Fatal(code)
	}
	expect("after a write", "second", false)
	expect("after a write, again", "second", true)
	n.Reload(t.Context(), parse(t, dir, cachedFiles))
	expect("without a rule", "second", false)
	expect("without a rule, again", "second", false)
	if strings.Contains(logged.String(), "restart to apply") {
		t.Errorf("a restart is asked for:\n%s", logged.String())
	}
	n.Reload(t.Context(), parse(t, dir, cachedFiles+"limits: {cache: [{tools: [writeFile, readFile], ttl: 1h}]}\n"))
	expect("with a rule", "second", false)
	expect("with a rule, again", "second", true)
	kit.Contains(t, logged.String(), "writeFile cannot be cached", "the log says nothing of a rule that does nothing")
}

func TestAMistakeInTheCacheStopsTheStart(t *testing.T) {
	for text, want := range map[string]string{
		"[{tools: [writeFile], ttl: 1h}]": "writeFile cannot be cached", "[{tools: [readFile]}]": "ttl", "{tools: [readFile], ttl: 1h}": "expected a list",
	} {
		_, err := node.Open(t.Context(), parse(t, t.TempDir(), cachedFiles+"limits: {cache: "+text+"}\n"), node.Options{})
		kit.Refused(t, err, tool.CodeInvalidInput, want, text)
	}
}
