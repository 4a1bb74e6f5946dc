package matrix

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/node/storage"
	"toolpost/protocol/namel3ss"
	"toolpost/protocol/rest"
	"toolpost/protocol/singularity"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A town is a server with every door that listens, and the tokens of two callers: ada, who may use everything and issue
// leases, and bob, who may use everything but one tool.
type town struct {
	dir       string
	db        *store.DB
	url       map[string]string // by door
	ada, bob  string
	strangers map[string]string // Authorization headers that must be refused, by what is wrong with them
}

const townConfig = `
sources:
- {name: paint, protocol: narratoria, command: [sh, paint.sh], walls: {write: [out]}}
- {name: count, protocol: narratoria, command: [sh, count.sh], walls: {write: [out]}}
- {name: hidden, protocol: narratoria, command: [sh, count.sh], walls: {write: [out]}}
- {name: risky, protocol: narratoria, command: [sh, count.sh], tier: 3, walls: {write: [out]}}
- {name: sleep, protocol: narratoria, command: [sh, sleep.sh]}
limits: {lease_tier: 3}
doors: {http: {listen: "127.0.0.1:0"}, namel3ss: {listen: "127.0.0.1:0"}, nats: {listen: "127.0.0.1:0"}}
callers:
  owner: false
  roles: {issuer: {}, some: {tools: [paint, count, risky, sleep, "toolpost.*"]}}
  list:
    ada: {roles: [issuer], tokens: [%x]}
    bob: {roles: [some], tokens: [%x]}
  jwt: [{issuer: "https://id.example.org", audience: [toolpost], prefix: "id:", jwks: keys.json, roles: {always: [some]}, algorithms: [ES256]}]
`

func newTown(t *testing.T) *town {
	t.Helper()
	tooltest.NoLeaks(t)
	p := &town{dir: t.TempDir(), url: map[string]string{}, ada: "token-of-ada-0123456789", bob: "token-of-bob-0123456789"}
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
	kit.OK(t, err)
	kit.OK(t, os.Mkdir(filepath.Join(p.dir, "out"), 0o755))
	text := fmt.Sprintf(townConfig, sha256.Sum256([]byte(p.ada)), sha256.Sum256([]byte(p.bob)))
	for name, content := range map[string]string{
		"keys.json": string(keys), "toolpost.yaml": text,
		"paint.sh": `read -r _; echo blue > out/blue.txt; echo '{"version":"0","type":"asset","assetId":"a","mediaType":"text/plain","path":"out/blue.txt","kind":"text"}'; echo '{"version":"0","type":"done","ok":true}'`,
		"count.sh": `read -r _; echo x >> out/count; echo '{"version":"0","type":"done","ok":true}'`,
		"sleep.sh": `read -r _; sleep 60; echo '{"version":"0","type":"done","ok":true}'`,
	} {
		kit.OK(t, os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600))
	}
	p.open(t)
	p.findStrangers(t, key)
	return p
}

func (p *town) open(t *testing.T) {
	t.Helper()
	cfg, err := config.Load(filepath.Join(p.dir, "toolpost.yaml"))
	kit.OK(t, err)
	ready := make(chan node.Listening, 8)
	n := kit.Must(node.Open(t.Context(), cfg, node.Options{Ready: func(l node.Listening) { ready <- l }}))(t)
	p.db, _, err = storage.Open(cfg)
	kit.OK(t, err)
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- n.Serve(ctx) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		end()
		bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, err := range []error{<-served, n.Close(bounded), p.db.Close()} {
			kit.Check(t, err)
		}
	})
	for range 5 { // MCP and the door for models are mounted on HTTP
		select {
		case l := <-ready:
			p.url[l.Door] = strings.TrimSuffix(l.URL, "/tools")
		case err := <-served:
			t.Fatal(err)
		}
	}
}

// findStrangers makes the credentials that must be refused.
func (p *town) findStrangers(t *testing.T, key *ecdsa.PrivateKey) {
	t.Helper()
	now := time.Now()
	good := map[string]any{"iss": "https://id.example.org", "aud": "toolpost", "sub": "eve", "exp": now.Add(time.Hour).Unix()}
	with := func(name string, value any) map[string]any {
		claims := maps.Clone(good)
		claims[name] = value
		return claims
	}
	if status, body := p.http(t, "GET", "/v1/tools", "Bearer "+signed(t, key, good), nil, ""); status != http.StatusOK {
		t.Fatalf("a good JWT: %d %s", status, body)
	}
	expired := p.issue(t, identity.Token{Grant: identity.Grant{Caller: "ann", Tools: tool.Patterns{"*"}}}, time.Second)
	revoked := p.issue(t, identity.Token{Grant: identity.Grant{Caller: "ann", Tools: tool.Patterns{"*"}}}, time.Hour)
	kit.OK(t, p.db.Tokens().Revoke(t.Context(), revoked))
	p.strangers = map[string]string{
		"no token": "", "no words": "Bearer", "another scheme": "Digest " + p.ada, "two tokens": "Bearer " + p.ada + " " + p.ada, "a wrong token": "Bearer tp_" + strings.Repeat("A", 43),
		"a token in other letters": "Bearer " + strings.ToUpper(p.ada), "an expired token": "Bearer " + expired, "a revoked token": "Bearer " + revoked,
		"a JWT for others": "Bearer " + signed(t, key, with("aud", "elsewhere")), "an expired JWT": "Bearer " + signed(t, key, with("exp", now.Add(-time.Hour).Unix())),
		"a JWT of somebody else": "Bearer " + signed(t, key, with("iss", "https://evil.example.org")), "a JWT without a signature": "Bearer " + unsigned(t, good),
		"a JWT for ada": "Bearer " + unsigned(t, with("sub", "ada")),
	}
	kit.Eventually(t, "the end of a token", func() bool {
		status, _ := p.http(t, "GET", "/v1/tools", "Bearer "+expired, nil, "")
		return status == http.StatusUnauthorized
	})
}

func (p *town) issue(t *testing.T, who identity.Token, ttl time.Duration) string {
	t.Helper()
	return kit.Must(p.db.Tokens().Issue(t.Context(), who, ttl))(t)
}

func signed(t *testing.T, key *ecdsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "k"))
	kit.OK(t, err)
	body := kit.Must(json.Marshal(claims))(t)
	j := kit.Must(s.Sign(body))(t)
	return kit.Must(j.CompactSerialize())(t)
}

func unsigned(t *testing.T, claims map[string]any) string {
	t.Helper()
	body := kit.Must(json.Marshal(claims))(t)
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + part(body) + "."
}

// http sends a request to the HTTP door, or to the namel3ss door for its paths.
func (p *town) http(t *testing.T, method, path, authorization string, headers map[string]string, body string) (int, string) {
	t.Helper()
	door := "http"
	if slices.Contains(namel3ss.ServicePaths(), path) {
		door = "namel3ss"
	}
	r := kit.Must(http.NewRequestWithContext(t.Context(), method, p.url[door]+path, strings.NewReader(body)))(t)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	answer := kit.Must(http.DefaultClient.Do(r))(t)
	defer answer.Body.Close()
	all := kit.Must(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, string(all)
}

// call makes a call over HTTP and returns the answer.
func (p *town) call(t *testing.T, token, name string, headers map[string]string, args string) (int, string) {
	t.Helper()
	return p.http(t, "POST", "/v1/tools/"+name+"/call", "Bearer "+token, headers, args)
}

func TestEveryRouteRefusesStrangers(t *testing.T) {
	p := newTown(t)
	open := map[string]bool{"GET /healthz": true, "GET /readyz": true} // they only report that the server is alive
	routes := rest.Routes()
	for _, path := range namel3ss.ServicePaths() {
		routes = append(routes, "POST "+path)
	}
	for what, header := range p.strangers {
		t.Run(what, func(t *testing.T) {
			for _, route := range routes {
				method, path, _ := strings.Cut(route, " ")
				path = strings.NewReplacer("{name}", "count", "{id}", tool.NewID(), "{sha256}", strings.Repeat("0", 64)).Replace(path)
				status, body := p.http(t, method, path, header, nil, "{}")
				open := open[route] || route == "GET /openapi.json" && header == "" // without credentials it describes only the routes
				if want := status == http.StatusUnauthorized; want == open {
					t.Errorf("%s: %d %s", route, status, body)
				}
			}
			_, token, _ := strings.Cut(header, " ")
			for way, o := range map[string]nats.Option{"token": nats.Token(token), "password": nats.UserInfo("ada", token), "nothing": nil} {
				options := []nats.Option{nats.Timeout(time.Minute)}
				if o != nil {
					options = append(options, o)
				}
				if what == "another scheme" && o != nil {
					continue // NATS has no schemes
				}
				if c, err := nats.Connect(p.url["nats"], options...); err == nil {
					c.Close()
					t.Errorf("NATS let in with %s", way)
				}
			}
		})
	}
	kit.Fails(t, kit.Err(os.ReadFile(filepath.Join(p.dir, "out", "count"))), "", "a tool ran")
}

// Every route has a row: bob's answer when he requests something of ada's there. It is the same as if it did not exist.
func routesToOthers() map[string]func(*testing.T, *town) {
	return map[string]func(*testing.T, *town){
		"GET /healthz": func(*testing.T, *town) {}, // nothing there belongs to a caller
		"GET /readyz":  func(*testing.T, *town) {},
		"GET /metrics": func(t *testing.T, p *town) { p.expect(t, http.StatusForbidden, "GET", "/metrics", "") },
		"GET /openapi.json": func(t *testing.T, p *town) {
			if _, doc := p.http(t, "GET", "/openapi.json", "Bearer "+p.bob, nil, ""); strings.Contains(doc, "/hidden/call") || !strings.Contains(doc, "/count/call") {
				t.Errorf("bob sees %s", doc)
			}
		},
		"GET /v1/tools": func(t *testing.T, p *town) {
			if _, list := p.http(t, "GET", "/v1/tools", "Bearer "+p.bob, nil, ""); strings.Contains(list, "hidden") || !strings.Contains(list, "count") {
				t.Errorf("bob sees %s", list)
			}
		},
		"GET /v1/tools/{name}":       func(t *testing.T, p *town) { p.expect(t, http.StatusNotFound, "GET", "/v1/tools/hidden", "") },
		"POST /v1/tools/{name}/call": callsWithOthersThings,
		"DELETE /v1/calls/{id}":      cancelsOthersCall,
		"GET /v1/assets/{sha256}": func(t *testing.T, p *town) {
			status, body := p.call(t, p.ada, "paint", map[string]string{"Accept": "text/event-stream"}, `{}`)
			digest := fmt.Sprintf("%x", sha256.Sum256([]byte("blue\n")))
			if status != http.StatusOK || !strings.Contains(body, digest) {
				t.Fatalf("paint: %d %s", status, body)
			}
			if status, body := p.http(t, "GET", "/v1/assets/"+digest, "Bearer "+p.ada, nil, ""); status != http.StatusOK || body != "blue\n" {
				t.Errorf("ada: %d %q", status, body)
			}
			p.expect(t, http.StatusNotFound, "GET", "/v1/assets/"+digest, "")
		},
		"GET /v1/jobs": func(t *testing.T, p *town) {
			id := p.job(t)
			if _, list := p.http(t, "GET", "/v1/jobs", "Bearer "+p.ada, nil, ""); !strings.Contains(list, id) {
				t.Errorf("ada sees %s", list)
			}
			if _, list := p.http(t, "GET", "/v1/jobs", "Bearer "+p.bob, nil, ""); strings.Contains(list, id) {
				t.Errorf("bob sees %s", list)
			}
		},
		"GET /v1/jobs/{id}":    func(t *testing.T, p *town) { p.expect(t, http.StatusNotFound, "GET", "/v1/jobs/"+p.job(t), "") },
		"DELETE /v1/jobs/{id}": func(t *testing.T, p *town) { p.expect(t, http.StatusNotFound, "DELETE", "/v1/jobs/"+p.job(t), "") },
		"GET /v1/jobs/{id}/events": func(t *testing.T, p *town) {
			id := p.job(t)
			_, body := p.http(t, "GET", "/v1/jobs/"+id+"/events", "Bearer "+p.bob, nil, "")
			_, none := p.http(t, "GET", "/v1/jobs/"+tool.NewID()+"/events", "Bearer "+p.bob, nil, "")
			if !strings.Contains(body, "not_found") || !strings.Contains(none, "not_found") {
				t.Errorf("%s\n%s", body, none)
			}
		},
		"POST /tools": func(t *testing.T, p *town) {
			_, body := p.http(t, "POST", "/tools", "Bearer "+p.bob, nil, `{"protocol_version":1,"tool_name":"hidden","payload":{}}`)
			if !strings.Contains(body, `"ok":false`) || !strings.Contains(body, "no tool named") {
				t.Error(body)
			}
		},
		"POST /capabilities/handshake": func(t *testing.T, p *town) {
			ask := `{"protocol_version":1,"tool":"%s","required_guarantees":{"no_network":true}}`
			_, hidden := p.http(t, "POST", "/capabilities/handshake", "Bearer "+p.bob, nil, fmt.Sprintf(ask, "hidden"))
			_, none := p.http(t, "POST", "/capabilities/handshake", "Bearer "+p.bob, nil, fmt.Sprintf(ask, "nosuch"))
			kit.Equal(t, strings.ReplaceAll(hidden, "hidden", "nosuch"), none, hidden)
		},
	}
}

// expect sends a request as bob.
func (p *town) expect(t *testing.T, want int, method, path, body string) {
	t.Helper()
	if status, answer := p.http(t, method, path, "Bearer "+p.bob, nil, body); status != want {
		t.Errorf("bob, %s %s: %d %s", method, path, status, answer)
	}
}

// job starts a job as ada.
func (p *town) job(t *testing.T) (id string) {
	t.Helper()
	status, body := p.call(t, p.ada, "count", map[string]string{"Prefer": "respond-async"}, `{}`)
	var answer struct {
		Output struct {
			Job string `json:"job"`
		} `json:"output"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusAccepted || answer.Output.Job == "" {
		t.Fatalf("%d %s %v", status, body, err)
	}
	return answer.Output.Job
}

// counted returns how often the tool count has run.
func (p *town) counted(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "out", "count"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("x"))
}

func callsWithOthersThings(t *testing.T, p *town) {
	p.expect(t, http.StatusNotFound, "POST", "/v1/tools/hidden/call", "{}")

	// A session.
	session := map[string]string{"Toolpost-Session": "work"}
	if status, body := p.call(t, p.ada, "state.patch", session, `{"patch":{"mine":"secret plans"}}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if _, body := p.call(t, p.ada, "state.get", session, `{}`); !strings.Contains(body, "secret plans") {
		t.Errorf("ada: %s", body)
	}
	for _, args := range []string{`{}`, `{"caller":"ada"}`} {
		if _, body := p.call(t, p.bob, "state.get", session, args); strings.Contains(body, "secret plans") {
			t.Errorf("bob: %s", body)
		}
	}
	if status, _ := p.call(t, p.bob, "state.patch", session, `{"caller":"ada","patch":{"mine":null}}`); status == http.StatusOK {
		t.Error("bob changed ada's session")
	}

	// A lease.
	_, body := p.call(t, p.ada, "lease.issue", nil, `{"tool":"risky"}`)
	var lease struct {
		Output struct {
			Token string `json:"token"`
		} `json:"output"`
	}
	kit.OK(t, json.Unmarshal([]byte(body), &lease))
	with := map[string]string{"Toolpost-Lease": lease.Output.Token}
	if status, body := p.call(t, p.bob, "risky", with, `{}`); status == http.StatusOK || !strings.Contains(body, "lease_rejected") {
		t.Errorf("bob used ada's lease: %d %s", status, body)
	}
	if status, body := p.call(t, p.ada, "risky", with, `{}`); status != http.StatusOK {
		t.Errorf("ada could not use her lease: %d %s", status, body)
	}
	if status, body := p.call(t, p.bob, "lease.issue", nil, `{"tool":"risky"}`); status == http.StatusOK {
		t.Errorf("bob issued a lease: %s", body)
	}

	// A key.
	key := map[string]string{"Idempotency-Key": "same"}
	before := p.counted(t)
	for _, token := range []string{p.ada, p.bob, p.ada, p.bob} {
		if status, body := p.call(t, token, "count", key, `{}`); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
	}
	kit.Equal(t, p.counted(t)-before, 2, "runs with the same key of two callers")
}

func cancelsOthersCall(t *testing.T, p *town) {
	id := tool.NewID()
	done := make(chan string, 1)
	go func() {
		_, body := p.call(t, p.ada, "sleep", map[string]string{"Toolpost-Call": id}, `{}`)
		done <- body
	}()
	kit.Eventually(t, "ada's call", func() bool {
		p.expect(t, http.StatusNotFound, "DELETE", "/v1/calls/"+id, "")
		status, _ := p.http(t, "DELETE", "/v1/calls/"+id, "Bearer "+p.ada, nil, "")
		return status == http.StatusNoContent
	})
	kit.Contains(t, <-done, "cancelled")
}

func TestNoRouteReachesAnotherCallersData(t *testing.T) {
	p := newTown(t)
	rows := routesToOthers()
	for _, route := range append(rest.Routes(), "POST /tools", "POST /capabilities/handshake") {
		row := rows[route]
		if row == nil {
			t.Errorf("%s has no row: say here what somebody gets who asks there for what is somebody else's", route)
			continue
		}
		t.Run(route, func(t *testing.T) { row(t, p) })
	}
	kit.Equal(t, len(namel3ss.ServicePaths()), 2, "the namel3ss door has %v; each needs a row", namel3ss.ServicePaths())
}

// Every subject has a row: the result of bob's message there.
func subjectsToOthers() map[string]func(*testing.T, *nats.Conn) {
	asks := func(subject, body, want string) func(*testing.T, *nats.Conn) {
		return func(t *testing.T, bob *nats.Conn) {
			m, err := bob.Request(subject, []byte(body), time.Minute)
			if err != nil || !strings.Contains(string(m.Data), want) {
				t.Errorf("%s: %v %s", subject, err, m.Data)
			}
		}
	}
	return map[string]func(*testing.T, *nats.Conn){
		"tools.file.>":    asks("tools.file.read", `{"path":"x"}`, "NotFound"),
		"tools.shell.>":   asks("tools.shell.exec", `{"command":"id"}`, "NotFound"),
		"tools.code.>":    asks("tools.code.search", `{"query":"x"}`, "NotFound"),
		"tools.execute":   asks("tools.execute", `{"tool_name":"hidden","arguments":{}}`, "NotFound"),
		"tools.execute.>": asks("tools.execute.hidden", `{}`, "NotFound"),
		"toolpost.catalog": func(t *testing.T, bob *nats.Conn) {
			m, err := bob.Request("toolpost.catalog", []byte(`{}`), time.Minute)
			if err != nil || !strings.Contains(string(m.Data), `"count"`) || strings.Contains(string(m.Data), "hidden") {
				t.Errorf("%v %s", err, m.Data)
			}
		},
		"toolpost.cancel": func(*testing.T, *nats.Conn) {}, // TestACallerCancelsNoCallButItsOwn, beside the door
		"$SRV.>":          asks("$SRV.PING", "", "toolpost"),
	}
}

func TestNoSubjectReachesAnotherCallersData(t *testing.T) {
	p := newTown(t)
	bob, err := nats.Connect(p.url["nats"], nats.Token(p.bob), nats.Timeout(time.Minute))
	kit.OK(t, err)
	defer bob.Close()
	rows := subjectsToOthers()
	for _, subject := range singularity.Subjects() {
		row := rows[subject]
		if row == nil {
			t.Errorf("%s has no row: say here what somebody gets who asks there for what is somebody else's", subject)
			continue
		}
		t.Run(subject, func(t *testing.T) { row(t, bob) })
	}
	heard := make(chan *nats.Msg, 100)
	_, err = bob.ChanSubscribe(">", heard)
	kit.OK(t, err)
	kit.OK(t, bob.Flush())
	ada := kit.Must(nats.Connect(p.url["nats"], nats.UserInfo("ada", p.ada), nats.Timeout(time.Minute)))(t)
	defer ada.Close()
	if m, err := ada.Request("tools.execute.count", []byte(`{}`), time.Minute); err != nil || !strings.Contains(string(m.Data), `"error":null`) {
		t.Fatalf("%v %s", err, m.Data)
	}
	kit.OK(t, bob.Flush())
	if len(heard) > 0 {
		t.Errorf("bob heard %q", (<-heard).Data)
	}
}
