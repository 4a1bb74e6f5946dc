package all_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/leaks"
	"toolpost/internal/rounds"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// keyOf is the key of a caller, of which a piece is searched for in all places that must not have it.
func keyOf(caller string) string { return "canary-" + strings.Repeat(caller+"7f3e", 8) }

// An api notes which key came with which request.
type api struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]string // keys by path
}

func newAPI(t testing.TB) *api {
	t.Helper()
	a := &api{got: map[string]string{}}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		a.mu.Lock()
		a.got[r.URL.Path] = key
		a.mu.Unlock()
		fmt.Fprintf(w, "you sent %s for %s", key, r.URL.Path)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *api) key(path string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got[path]
}

// asker opens a source of the server that calls an API.
func asker(t testing.TB, a *api, log io.Writer, more string, change func(*tool.Credential)) tool.Runner {
	t.Helper()
	script := kit.Must(filepath.Abs("testdata/asker.py"))(t)
	text := fmt.Sprintf("sources: [{name: up, protocol: mcp, command: [%q, -B, %q], dir: %q, connections: [api]%s}]",
		tooltest.Python(), script, filepath.Dir(script), more)
	cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
	src := cfg.Sources[0]
	cred := &tool.Credential{Connection: "api", Hosts: []string{a.Listener.Addr().String()}, Env: "API_KEY"}
	if change != nil {
		change(cred)
	}
	src.Credentials = []*tool.Credential{cred}
	r := kit.Must(protocol(t, "mcp").OpenSource(t.Context(), src, slog.New(slog.NewTextHandler(log, nil))))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Hang)
		defer cancel()
		kit.Check(t, r.Close(ctx))
	})
	return r
}

func protocol(t testing.TB, name string) all.Protocol {
	t.Helper()
	list := all.Protocols()
	i := slices.IndexFunc(list, func(p all.Protocol) bool { return p.Name == name })
	if i < 0 {
		t.Fatal("there is no protocol", name)
	}
	return list[i]
}

// as makes a call of a caller, and returns the text of its result.
func as(t testing.TB, r tool.Handler, caller, name string, args map[string]string, out tool.Sink) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Hang)
	defer cancel()
	call := &tool.Call{Tool: name, Caller: tool.Principal{ID: caller}}
	if args != nil {
		call.Args = kit.Must(json.Marshal(args))(t)
	}
	call.Credentials = []*tool.Credential{{
		Connection: "api", Value: func(context.Context) (string, error) { return keyOf(caller), nil },
	}}
	res, err := r.Invoke(ctx, call, out)
	if err != nil {
		return "", err
	}
	return string(res.Output) + res.Summary, nil
}

func TestCallsArriveWithTheKeyOfTheirCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t)
	logs := &kit.Buffer{}
	r := asker(t, a, logs, "", nil)
	kit.Must(r.(tool.Source).Tools(t.Context()))(t)
	callers := []string{"ada", "bob"}
	const workers = 8
	var seen kit.Buffer // all that callers see
	out := tool.SinkFunc(func(e tool.Event) error { _, err := seen.Write(e.Data); return err })
	var crossed, made atomic.Int64
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for n := range rounds.Of(300, 10_000) / workers {
				caller := callers[(w+n)%2]
				path := fmt.Sprintf("/%s/%d-%d", caller, w, n)
				text, err := as(t, r, caller, "ask", map[string]string{"url": a.URL + path}, out)
				made.Add(1)
				if err != nil || a.key(path) != keyOf(caller) || !strings.Contains(text, "you sent tp-api-") {
					crossed.Add(1)
					t.Errorf("%s: %q came; it said %s, %v", path, a.key(path), text, err)
					return
				}
				fmt.Fprint(&seen, text)
			}
		})
	}
	work.Wait()
	kit.Equal(t, crossed.Load(), 0)
	t.Log(made.Load(), "calls")
	environments := ""
	for _, caller := range callers {
		environments += kit.Must(as(t, r, caller, "environment", nil, out))(t)
	}
	kit.Contains(t, environments, "tp-api-")
	for _, caller := range callers {
		canary := keyOf(caller)[:20]
		if n := leaks.Programs(t, tooltest.Descendants(os.Getpid()), "API_KEY", canary); n < 3 {
			t.Errorf("only %d programs were searched", n)
		}
		for place, text := range map[string]string{"what callers saw": seen.String(), "the log": logs.String(), "an environment": environments} {
			leaks.Text(t, place, text, canary)
		}
	}
}

func TestFirstInstanceHasNoKey(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t)
	r := asker(t, a, io.Discard, "", nil)
	_, err := as(t, r, "", "ask", map[string]string{"url": a.URL + "/x"}, tool.Discard)
	kit.Refused(t, err, tool.CodeAccessDenied, "this caller has no name")
	call := &tool.Call{Tool: "ask", Caller: tool.Principal{ID: "ada"}, Args: json.RawMessage(`{}`)}
	kit.Refused(t, kit.Err(r.Invoke(t.Context(), call, tool.Discard)), tool.CodeAccessDenied, "toolpost connections add api")
}

func TestExposedKeyIsInTheEnvironmentOfItsCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t)
	r := asker(t, a, io.Discard, "", func(c *tool.Credential) { c.Exposed = true })
	kit.Must(r.(tool.Source).Tools(t.Context()))(t)
	kit.Equal(t, leaks.Programs(t, tooltest.Descendants(os.Getpid()), "API_KEY", "canary-") > 0, true)
	for _, caller := range []string{"ada", "bob"} {
		kit.Contains(t, kit.Must(as(t, r, caller, "environment", nil, tool.Discard))(t), keyOf(caller))
	}
}

func TestExposedKeyIsNotInTheLog(t *testing.T) {
	tooltest.NoLeaks(t)
	logs := &kit.Buffer{}
	r := asker(t, newAPI(t), logs, "", func(c *tool.Credential) { c.Exposed = true })
	kit.Must(as(t, r, "ada", "environment", map[string]string{"say": "it"}, tool.Discard))(t)
	kit.Eventually(t, "the line is in the log", func() bool { return strings.Contains(logs.String(), "the key is") })
	kit.Contains(t, logs.String(), "the key is [secret connection api]")
	kit.Equal(t, strings.Contains(logs.String(), keyOf("ada")[:20]), false, logs.String())
}

// Each caller has programs of its own. A server elsewhere is the same for all.
func TestPlacesOfServersElsewhereAreShared(t *testing.T) {
	for fields, want := range map[string]int{"url: 'https://127.0.0.1:1/'": 3, "command: [cat]": 3 * 64} {
		text := "sources: [{name: up, protocol: mcp, " + fields + ", concurrency: 3, connections: [api]}]"
		src := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t).Sources[0]
		src.Credentials = []*tool.Credential{{Connection: "api", Hosts: []string{"127.0.0.1:1"}}}
		r := kit.Must(protocol(t, "mcp").OpenSource(t.Context(), src, slog.New(slog.DiscardHandler)))(t)
		_, places := r.(interface{ Places(string) (string, int) }).Places("ask")
		kit.Equal(t, places, want, fields)
		kit.Check(t, r.Close(t.Context()))
	}
}

func TestProtocolsWithoutProgramsRefuseConnections(t *testing.T) {
	text := "sources: [{name: up, protocol: rest, url: 'http://127.0.0.1:1', connections: [api]}, " +
		"{name: other, protocol: mcp, url: 'http://127.0.0.1:1', connections: [api]}]"
	cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
	for i, says := range []string{"its protocol rest cannot use", "the section connections does not have"} {
		src := cfg.Sources[i]
		_, err := protocol(t, src.Protocol).OpenSource(t.Context(), src, slog.New(slog.DiscardHandler))
		kit.Refused(t, err, tool.CodeInvalidInput, says)
	}
}

func TestCrashedInstanceStartsAgain(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t)
	r := asker(t, a, io.Discard, "", nil)
	ask := func(path string) {
		t.Helper()
		kit.Eventually(t, "it answers", func() bool {
			_, err := as(t, r, "ada", "ask", map[string]string{"url": a.URL + path}, tool.Discard)
			return err == nil
		})
		kit.Equal(t, a.key(path), keyOf("ada"))
	}
	ask("/1")
	for _, pid := range tooltest.Descendants(os.Getpid()) {
		_ = kit.Must(os.FindProcess(pid))(t).Kill()
	}
	ask("/2")
}
