package fleets

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/leaks"
	"toolpost/internal/netns"
	"toolpost/tool/tooltest"
)

// keysHub adds callers and a connection to a hub, which lends it to two sources of other nodes.
const keysHub = `
callers: {roles: {user: {}}, list: {ada: {roles: [user]}, bob: {roles: [user]}, cyd: {roles: [user]}}}
connections: [{name: api, key: pasted, hosts: [%q], remote: [who, service]}]
`

// keysWorker has the same connection, and three sources that use it: a program behind walls, an API, and the API once more.
const keysWorker = `
fleet: {name: one, drain: 2s}
connections: [{name: api, key: pasted, hosts: [%[1]q], env: API_KEY}]
sources:
- {name: who, protocol: mcp, command: [python3, -B, asker.py], connections: [api]}
- {name: service, protocol: openapi, document: api.json, server: "https://%[1]s", private: true, connections: [api]}
- {name: unlent, protocol: openapi, document: api.json, server: "https://%[1]s", private: true, connections: [api]}
`

const keysDocument = `{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/service/{n}": {"get": {
"operationId": "show", "parameters": [{"name": "n", "in": "path", "required": true, "schema": {"type": "string"}}],
"responses": {"200": {"description": "ok"}}}}}}`

// A guarded is an API that notes which key came with which path, and tells it in its answer.
type guarded struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{keys: map[string]string{}}
	g.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		g.mu.Lock()
		defer g.mu.Unlock()
		g.keys[r.URL.Path] = key
		fmt.Fprintf(w, "for %s you sent %s", r.URL.Path, key)
	}))
	t.Cleanup(g.Close)
	return g
}

// key returns the key that came with a path.
func (g *guarded) key(path string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keys[path]
}

// keyed starts a fleet with a worker that has the sources, in the network of the test: the API is at an address of this machine.
func keyed(t *testing.T, api *guarded) (*site, *worker) {
	t.Helper()
	host := api.Listener.Addr().String()
	s := openWith(t, "sqlite:hub.db", 1, fmt.Sprintf(keysHub, host))
	w := &worker{name: "one", dir: filepath.Join(s.dir, "one"), words: []string{s.bin}}
	kit.Files(t, w.dir, map[string]string{
		"toolpost.yaml": fmt.Sprintf(keysWorker, host), "api.json": keysDocument,
		"asker.py":  kit.Read(t, "../../protocol/all/testdata/asker.py"),
		"roots.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})),
	})
	s.join(w, trusts(w))
	return s, w
}

// untilSaid waits until an answer to a call has a text: a worker offers each source when it is open.
func (s *site) untilSaid(name, args, says string, headers []string) {
	s.t.Helper()
	kit.Until(s.t, func() error {
		body, err := s.hubs[0].Raw(s.t.Context(), name, args, headers...)
		if err == nil && !strings.Contains(body, says) {
			err = fmt.Errorf("%s: %s\n%s", name, body, s.logs())
		}
		return err
	})
}

// trusts is the variable that makes a worker trust the certificate of the API.
func trusts(w *worker) string { return "SSL_CERT_FILE=" + filepath.Join(w.dir, "roots.pem") }

// token issues a token for a caller, and returns the headers of its calls.
func (s *site) token(caller string) []string {
	s.t.Helper()
	made, _ := call(s.t.Context(), s.hubs[0], "toolpost.token.issue", fmt.Sprintf(`{"caller":%q}`, caller)).Output.(map[string]any)
	text, _ := made["token"].(string)
	return []string{"Authorization", "Bearer " + text}
}

// paste gives the key of a caller to a hub, as people do.
func (s *site) paste(headers []string, key string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.bin, "connections", "add", "api", "--key-stdin", "--server", s.hubs[0].URL())
	cmd.Dir, cmd.Stdin = s.t.TempDir(), strings.NewReader(key+"\n")
	cmd.Env = append(os.Environ(), "TOOLPOST_TOKEN="+strings.TrimPrefix(headers[1], "Bearer "))
	out, err := cmd.CombinedOutput()
	kit.OK(s.t, err, string(out))
	kit.Contains(s.t, string(out), "connected")
}

// Callers connect at the hub, and what they call runs on a worker: with the key of its caller, which only the proxy of the worker has.
func TestKeysOfCallersReachTheAPIFromAWorker(t *testing.T) {
	if !netns.Alone(t) {
		return
	}
	tooltest.NoLeaks(t)
	api := newGuarded(t)
	s, w := keyed(t, api)
	hub, seen := s.hubs[0], new(kit.Buffer)
	callers, keys := map[string][]string{}, map[string]string{}
	for _, name := range []string{"ada", "bob", "cyd"} {
		callers[name], keys[name] = s.token(name), "canary-"+strings.Repeat(name+"-5e1c", 4)
	}
	s.untilSaid("ask", fmt.Sprintf(`{"url":%q}`, api.URL+"/x"), "uses your key for api, which you have not given yet: ", callers["cyd"])
	kit.Equal(t, len(api.keys), 0, "requests")

	// Both sources, interleaved.
	for _, name := range []string{"ada", "bob"} {
		s.paste(callers[name], keys[name])
	}
	each := func(calls int, round string) {
		t.Helper()
		var all sync.WaitGroup
		for n := range calls {
			for name, headers := range map[string][]string{"ada": callers["ada"], "bob": callers["bob"]} {
				one := fmt.Sprintf("%s-%s-%d", name, round, n)
				all.Go(func() {
					for tool, args := range map[string]string{
						"ask": fmt.Sprintf(`{"url":%q}`, api.URL+"/who/"+one), "service.show": fmt.Sprintf(`{"n":%q}`, one),
					} {
						body, err := hub.Raw(t.Context(), tool, args, headers...)
						kit.Check(t, err)
						kit.Contains(t, body, "you sent", one)
						fmt.Fprintln(seen, body)
					}
					kit.Equal(t, api.key("/who/"+one), keys[name], one)
					kit.Equal(t, api.key("/service/"+one), keys[name], one)
				})
			}
		}
		all.Wait()
	}
	each(20, "first")
	if n := leaks.Programs(t, tooltest.Descendants(w.Pid()), "API_KEY", keys["ada"], keys["bob"]); n < 3 {
		t.Errorf("only %d programs were searched", n)
	}
	for _, name := range []string{"ada", "bob"} {
		fmt.Fprintln(seen, kit.Must(hub.Raw(t.Context(), "environment", `{}`, callers[name]...))(t))
	}
	kit.Contains(t, seen.String(), "tp-api-")

	// A run of a worker has a key of its own, to which the hub seals; what was sealed for the last one is of no use.
	w.Kill()
	s.start(w, trusts(w))
	s.untilSaid("environment", `{}`, "tp-api-", callers["ada"])
	each(2, "second")

	refused := call(t.Context(), hub, "unlent.show", `{"n":"x"}`, callers["ada"]...)
	kit.Equal(t, refused.Error.Code, "access_denied")
	kit.Contains(t, refused.Error.Message, "`remote: [unlent]`")
	kit.Equal(t, api.key("/service/x"), "", "a request")

	use, record := `"api `+api.Listener.Addr().String()+`"`, s.run("hub-1", "audit", "log", "--json", "--limit", "1000", "--tool", "show")
	kit.Equal(t, strings.Count(record, use), 2*22, "calls of the API whose record has its host")
	record += s.run("hub-1", "audit", "log", "--json", "--limit", "1000", "--tool", "ask")
	kit.Equal(t, strings.Count(record, use) > 2*22, true, "and of the program")
	w.Stop(t)
	hub.Stop(t)
	for what, text := range map[string]string{"what callers saw": seen.String(), "the record": record, "the logs": s.logs()} {
		leaks.Text(t, what, text, keys["ada"], keys["bob"])
	}
	if n := leaks.Files(t, s.dir, keys["ada"], keys["bob"]); n < 10 {
		t.Errorf("only %d files were searched", n)
	}
}
