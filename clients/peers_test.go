package clients_test

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

// proxyTo passes requests and answers through unchanged, to and from the real server.
func proxyTo(t *testing.T, to string) http.Handler {
	t.Helper()
	target := kit.Must(url.Parse(to))(t)
	return &httputil.ReverseProxy{
		FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
}

// overTLS puts the server behind TLS, and returns the file with its authority.
func overTLS(t *testing.T, to string) (ca, address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(proxyTo(t, to))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = silence()
	s.StartTLS()
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	kit.OK(t, os.WriteFile(ca, block, 0o600))
	return ca, s.URL
}

// overSocket puts the server behind a Unix socket.
func overSocket(t *testing.T, to string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // the names of tests are too long for sockets
	kit.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := httptest.NewUnstartedServer(proxyTo(t, to))
	s.Listener.Close()
	path := filepath.Join(dir, "toolpost.sock")
	if s.Listener, err = new(net.ListenConfig).Listen(t.Context(), "unix", path); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Close)
	return path
}

// overCuts puts the server behind a proxy that breaks the connection after a few hundred bytes of three answers in four.
func overCuts(t *testing.T, to string) string {
	t.Helper()
	next, served := proxyTo(t, to), atomic.Int64{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1)%4 != 0 {
			w = &cutting{ResponseWriter: w, left: 400}
		}
		next.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = silence()
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	if c.left -= n; c.left == 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// The returned address has no listener.
func nobody(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

// A hostile peer sends the answer that the first part of the path names.
type hostile struct {
	url   string
	cases map[string]answer

	mu   sync.Mutex
	seen map[string]int // requests, by method and case
}

// An answer is the answer of a hostile peer, and the codes that a client must return for it: for a call, and for a list.
type answer struct {
	text  string
	stays bool // the connection stays open
	Call  string
	List  string
	// Below marks an error below the level that a client of fetch can see.
	Below bool
	// Tries are the numbers of requests for a call and for a list, with one retry.
	tries [2]int
}

const (
	ok         = "HTTP/1.1 200 OK\r\n"
	asJSON     = "Content-Type: application/json\r\nConnection: close\r\n\r\n"
	asStream   = "Content-Type: text/event-stream\r\nConnection: close\r\n\r\n: started\n\n"
	oneEvent   = "id: 1\nevent: log\ndata: {\"seq\":1,\"time\":\"\",\"kind\":\"log\",\"data\":{}}\n\n"
	notInWords = "<html>502 Bad Gateway</html>"
)

func problem(code, reason string, ms int) string {
	return fmt.Sprintf(`{"ok":false,"error":{"code":%q,"reason":%q,"message":"no","details":{"retry_after_ms":%d}}}`,
		code, reason, ms)
}

func hostileCases() map[string]answer {
	protocol := func(text string) answer {
		return answer{text: text, Call: "protocol", List: "protocol", tries: [2]int{1, 1}}
	}
	below := func(a answer) answer { a.Below = true; return a }
	broken := func(text string, stays bool) answer {
		return answer{text: text, stays: stays, Call: "crash", List: "crash", Below: true, tries: [2]int{1, 2}}
	}
	refused := func(code, reason string, ms, calls, lists int) answer {
		text := "HTTP/1.1 503 Service Unavailable\r\n" + asJSON + problem(code, reason, ms)
		return answer{text: text, Call: code, List: code, tries: [2]int{calls, lists}}
	}
	stream := func(call, message string) answer {
		return answer{text: ok + asStream + message, Call: call, List: "protocol", tries: [2]int{1, 1}}
	}
	again := stream("quota_exceeded", "event: no_outcome\ndata: "+problem("quota_exceeded", "", 10)+"\n\n")
	again.tries[0] = 2
	deep := strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)
	return map[string]answer{
		"other-protocol": below(protocol("SSH-2.0-OpenSSH_9.9\r\n\r\n")),
		"endless-header": below(protocol(ok + "X: " + strings.Repeat("x", 200<<10))),
		"two-lengths":    below(protocol(ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}")),
		"mad-length":     below(protocol(ok + "Content-Length: 99999999999999999999\r\n\r\n{}")),
		"mad-chunk":      below(protocol(ok + "Transfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\nxyz\r\n{}\r\n")),
		"long-chunk":     below(protocol(ok + "Transfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n2\r\n{}{}\r\n0\r\n\r\n")),
		"twice":          below(protocol("HTTP/1.1 400 Bad Request\r\n" + asJSON + `{"error":{"code":"a","code":"b","message":""}}`)),
		"nothing":        broken("", false),
		"half-a-head":    broken(ok+"Content-", false),
		"silence":        broken("", true),
		"redirect":       protocol("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
		"page":           protocol(ok + "Content-Type: text/html\r\n\r\n<html></html>"),
		"gateway":        protocol("HTTP/1.1 502 Bad Gateway\r\n\r\n" + notInWords),
		"no-code":        protocol("HTTP/1.1 400 Bad Request\r\n" + asJSON + `{"error":{"message":"no"}}`),
		"not-utf8":       protocol("HTTP/1.1 400 Bad Request\r\n" + asJSON + "{\"error\":{\"code\":\"\xff\",\"message\":\"\"}}"),
		"odd-code":       protocol("HTTP/1.1 400 Bad Request\r\n" + asJSON + `{"error":{"code":7,"message":"no"}}`),
		"deep":           protocol("HTTP/1.1 400 Bad Request\r\n" + asJSON + deep),
		"tools-are-text": protocol(ok + asJSON + `{"tools":"many"}`),
		"nameless-tool":  protocol(ok + asJSON + `{"tools":[{"tier":0,"available":true}]}`),
		"cut":            stream("crash", ""),
		"half-a-message": stream("crash", oneEvent+"event: result\ndata: {\"ok\":true}\n"),
		"other-kind":     stream("protocol", strings.Replace(oneEvent, "event: log", "event: output", 1)),
		"no-kind":        stream("protocol", "event: log\ndata: {\"seq\":1,\"data\":{}}\n\n"),
		"same-again":     stream("protocol", oneEvent+oneEvent),
		"several-lines":  stream("protocol", "event: result\ndata: {\"ok\":\ndata: true}\n\n"),
		"announcements":  below(protocol(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100))),
		"no-ok":          stream("protocol", "event: result\ndata: {\"output\":1}\n\n"),
		"not-json":       stream("protocol", "event: result\ndata: {\"ok\":tru\n\n"),
		"deep-event":     stream("protocol", "event: log\ndata: "+deep+"\n\n"),
		"busy":           refused("unavailable", "busy", 10, 2, 2),
		"much-later":     refused("unavailable", "busy", 3_600_000, 1, 1),
		"unclear":        refused("unavailable", "store_unclear", 10, 1, 2),
		"denied":         refused("access_denied", "policy", 10, 1, 2),
		"quota":          again,
		"late-quota":     stream("quota_exceeded", oneEvent+"event: no_outcome\ndata: "+problem("quota_exceeded", "", 10)+"\n\n"),
	}
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	l := kit.Must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	h := &hostile{url: "http://" + l.Addr().String(), cases: hostileCases(), seen: map[string]int{}}
	var work sync.WaitGroup
	t.Cleanup(func() { l.Close(); work.Wait() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { h.serve(c) })
		}
	})
	return h
}

func (h *hostile) serve(c net.Conn) {
	defer c.Close()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	h.mu.Lock()
	h.seen[r.Method+" "+name]++
	a := h.cases[name]
	h.mu.Unlock()
	_, _ = io.WriteString(c, a.text)
	if a.stays {
		_, _ = io.Copy(io.Discard, c) // until the client closes
	}
}

// fetches marks a client that knows no more of an answer than fetch reports.
const fetches = true

// check checks that the clients tried calls and lists as often as they may.
func (h *hostile) check(t *testing.T, clients int, fetches bool) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.cases)) {
		got, want := [2]int{h.seen["POST "+name], h.seen["GET "+name]}, h.cases[name].tries
		if fetches && h.cases[name].Below {
			want[1] = got[1] // a list may be requested again after any error
		}
		if want[0] *= clients; got[0] != want[0] {
			t.Errorf("%s: a call made %d requests, want %d", name, got[0], want[0])
		}
		if want[1] *= clients; got[1] != want[1] {
			t.Errorf("%s: a list made %d requests, want %d", name, got[1], want[1])
		}
	}
	clear(h.seen)
}

// A model answers as OpenAI's chat completions do: it calls two tools, one of which does not exist, and then reports the
// results.
type model struct {
	url string

	mu   sync.Mutex
	went []string // errors in requests
	keys []string
}

type message struct {
	Role    string     `json:"role"`
	Content *string    `json:"content"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
	ID      string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	s := httptest.NewServer(http.HandlerFunc(m.complete))
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

func (m *model) complete(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Tools    []struct {
			Type     string `json:"type"`
			Function struct {
				Name       string         `json:"name"`
				Parameters map[string]any `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = strictjson.Unmarshal(body, &asked)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = append(m.keys, r.Header.Get("Authorization"))
	if err != nil || r.URL.Path != "/v1/chat/completions" || asked.Model != "small" || len(asked.Messages) == 0 {
		m.went = append(m.went, fmt.Sprintf("%v %s %s", err, r.URL.Path, body))
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	var names []string
	for _, one := range asked.Tools {
		if names = append(names, one.Function.Name); one.Type != "function" || one.Function.Parameters["type"] != "object" {
			m.went = append(m.went, fmt.Sprintf("the tool %+v", one))
		}
	}
	if !slices.Contains(names, "echo") || slices.Contains(names, "listCalls") || slices.Contains(names, "broken") {
		m.went = append(m.went, fmt.Sprintf("the tools %q", names))
	}
	reply := message{Role: "assistant"}
	switch last := asked.Messages[len(asked.Messages)-1]; last.Role {
	case "user":
		reply.Calls = []toolCall{wanted("c1", "echo", `{"n": 7}`), wanted("c2", "made_up", `{}`), wanted("c3", "echo", `{"n":`)}
	default:
		var said []string
		for _, one := range asked.Messages[2:] {
			said = append(said, one.ID+" "+*one.Content)
		}
		text := strings.Join(said, "\n")
		reply.Content = &text
	}
	answer, err := strictjson.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "message": reply}}})
	if err != nil {
		m.went = append(m.went, err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

func wanted(id, name, arguments string) (c toolCall) {
	c.ID, c.Type, c.Function.Name, c.Function.Arguments = id, "function", name, arguments
	return c
}

// check checks that an agent passed the results of its tools, including errors, to the model, and printed the model's
// answer.
func (m *model) check(t *testing.T, printed string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	if len(lines) != 3 || strings.ReplaceAll(lines[0], " ", "") != `c1{"n":7}` || !strings.Contains(lines[1], "made_up") ||
		!strings.Contains(lines[2], "error") || len(m.went) > 0 {
		t.Errorf("the agent printed %q; the model found %q", printed, m.went)
	}
	kit.EqualSlices(t, m.keys,
		[]string{"Bearer key-of-the-model", "Bearer key-of-the-model"}, "the model was asked with the keys")
	m.keys = nil
}

func silence() *log.Logger { return log.New(io.Discard, "", 0) }
