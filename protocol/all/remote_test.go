package all_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A remoteServer is an MCP server of the legacy era over HTTP, with sessions. It notes whose key each session and call has.
type remoteServer struct {
	*httptest.Server
	mu       sync.Mutex
	sessions map[string]map[string]bool // keys by session
	calls    map[string]string          // keys by argument
	refused  string                     // a key that is not valid any more
	away     string                     // it has moved there
}

func newRemoteServer(t testing.TB) *remoteServer {
	t.Helper()
	s := &remoteServer{sessions: map[string]map[string]bool{}, calls: map[string]string{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *remoteServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if keys := s.sessions[r.Header.Get("Mcp-Session-Id")]; keys != nil {
		keys[key] = true
	}
	switch {
	case s.away != "":
		http.Redirect(w, r, s.away, http.StatusTemporaryRedirect)
		return
	case s.refused != "" && key == s.refused:
		http.Error(w, "expired", http.StatusUnauthorized)
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Arguments struct{ N string } }
	}
	_ = json.Unmarshal(body, &m)
	result := ""
	switch m.Method {
	case "initialize":
		session := fmt.Sprint("session-", len(s.sessions))
		s.sessions[session] = map[string]bool{key: true}
		w.Header().Set("Mcp-Session-Id", session)
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		s.calls[m.Params.Arguments.N] = key
		result = `{"content":[{"type":"text","text":"done"}]}`
	case "server/discover":
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if m.ID == nil || result == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// openRemote opens a source of a server whose connection names some hosts.
func openRemote(t testing.TB, url string, hosts ...string) (tool.Runner, error) {
	t.Helper()
	text := fmt.Sprintf("sources: [{name: up, protocol: mcp, url: %q, connections: [api], headers: {Authorization: own}}]", url)
	cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
	src := cfg.Sources[0]
	src.Credentials = []*tool.Credential{{Connection: "api", Hosts: hosts}}
	return protocol(t, "mcp").OpenSource(t.Context(), src, slog.New(slog.DiscardHandler))
}

func TestRemoteServerGetsTheKeyOfTheCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	s := newRemoteServer(t)
	_, err := openRemote(t, s.URL, "api.example.com")
	kit.Refused(t, err, tool.CodeInvalidInput, "its connections send no key with POST to 127.0.0.1")
	r := kit.Must(openRemote(t, s.URL, s.Listener.Addr().String()))(t)
	kit.Must(r.(tool.Source).Tools(t.Context()))(t)
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for n := range 25 {
				caller := []string{"ada", "bob"}[(w+n)%2]
				_, err := as(t, r, caller, "ask", map[string]string{"n": fmt.Sprintf("%s-%d-%d", caller, w, n)}, tool.Discard)
				kit.Check(t, err)
			}
		})
	}
	work.Wait()
	kit.OK(t, r.Close(kit.Context(t))) // which ends the sessions, while no call runs
	s.mu.Lock()
	defer s.mu.Unlock()
	kit.Equal(t, len(s.calls), 100)
	for call, key := range s.calls {
		caller, _, _ := strings.Cut(call, "-")
		kit.Equal(t, key, keyOf(caller), call)
	}
	kit.Equal(t, len(s.sessions), 3, "one of each caller, and one that lists")
	for session, keys := range s.sessions {
		if keys["own"] {
			kit.Equal(t, len(keys), 1, session, keys)
			continue
		}
		delete(keys, "")
		kit.Equal(t, len(keys), 1, session, keys)
	}
}

func TestKeyThatARemoteServerRefusesIsAskedForOnceMore(t *testing.T) {
	tooltest.NoLeaks(t)
	s := newRemoteServer(t)
	r := kit.Must(openRemote(t, s.URL, s.Listener.Addr().String()))(t)
	defer func() { kit.OK(t, r.Close(kit.Context(t))) }()
	kit.Must(as(t, r, "ada", "ask", map[string]string{"n": "1"}, tool.Discard))(t)
	s.mu.Lock()
	s.refused = keyOf("ada")
	s.mu.Unlock()
	_, err := as(t, r, "ada", "ask", map[string]string{"n": "2"}, tool.Discard)
	kit.Refused(t, err, tool.CodeAccessDenied, "refuses the key of the connection api (401 Unauthorized): connect it again")
	asked := 0
	c := &tool.Call{Tool: "ask", Caller: tool.Principal{ID: "ada"}, Args: json.RawMessage(`{"n":"3"}`)}
	c.Credentials = []*tool.Credential{{Connection: "api", Value: func(context.Context) (string, error) {
		if asked++; asked == 1 {
			return keyOf("ada"), nil
		}
		return "renewed", nil
	}}}
	kit.Must(r.Invoke(kit.Context(t), c, tool.Discard))(t)
	s.mu.Lock()
	kit.Equal(t, s.calls["3"], "renewed")
	other := newRemoteServer(t)
	s.away = other.URL
	s.mu.Unlock()
	_, err = as(t, r, "ada", "ask", map[string]string{"n": "4"}, tool.Discard)
	kit.Fails(t, err, "has moved to")
	kit.Equal(t, len(other.calls), 0)
}
