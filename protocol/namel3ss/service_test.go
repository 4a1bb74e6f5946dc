package namel3ss

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/host/spawn"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// peerService starts the Python service and returns the address of its endpoint.
func peerService(t testing.TB) string {
	t.Helper()
	port := kit.Start(t, exec.Command(systemPython(t), "-u", "testdata/peer_service.py")).Line()
	return "http://127.0.0.1:" + port + "/tools"
}

// remote opens a single tool of the service.
func remote(t testing.TB, url, name string, o Options) *Runner {
	t.Helper()
	o.Tool, o.Runner = name, appfile.RunnerService
	if o.URL == "" {
		o.URL = url
	}
	return open(t, t.TempDir(), o)
}

// contract(namel3ss): "protocol_version": 1,
// contract(namel3ss): "tool_name": "greeter",
// contract(namel3ss): "kind": "python",
// contract(namel3ss): "entry": "tools.sample_tool:greet",
// contract(namel3ss): "payload": { "name": "Ada" },
// contract(namel3ss): "timeout_ms": 10000,
// contract(namel3ss): "trace_id": "uuid",
// contract(namel3ss): "project": { "app_root": "/path/to/app", "flow": "demo" }
// contract(namel3ss): `project.flow` of a request that we send is the session of the call; a call without one sends none.
// contract(namel3ss): { "ok": true, "result": { "message": "Hello Ada" } }
// contract(namel3ss): service runner: `service_url`
func TestServiceGetsExactlyTheFieldsOfTheContract(t *testing.T) {
	tooltest.NoLeaks(t)
	url := peerService(t)
	r := remote(t, url, "greeter", Options{Entry: "tools.sample_tool:greet"})
	trace := tool.NewID()
	res, err := r.Invoke(t.Context(), &tool.Call{Tool: "greeter", Args: []byte(`{"name":"Ada"}`), Trace: trace, Session: "demo"}, tool.Discard)
	if err != nil || !res.OK {
		t.Fatal(res, err)
	}
	var got struct {
		Message string
		Request struct {
			Kind, Entry string
			ToolName    string `json:"tool_name"`
			TimeoutMS   int    `json:"timeout_ms"`
			TraceID     string `json:"trace_id"`
			Project     struct {
				AppRoot string `json:"app_root"`
				Flow    string
			}
		}
	}
	kit.OK(t, json.Unmarshal(res.Output, &got))
	q := got.Request
	if got.Message != "Hello Ada" || q.Kind != "python" || q.Entry != "tools.sample_tool:greet" || q.ToolName != "greeter" || q.TraceID != trace ||
		q.Project.Flow != "demo" || q.Project.AppRoot != r.tools["greeter"].root || q.TimeoutMS < 1 || q.TimeoutMS > 10_000 {
		t.Errorf("got %s", res.Output)
	}
	for field, want := range map[string]any{
		"runner": "service", "service_url": url, "service_handshake": false, "resolved_source": "binding", "status": "ok", "timeout_ms": 10000.0, "protocol_version": 1,
	} {
		kit.Equal(t, res.Trace.Details[field], want, "trace field %s", field)
	}
	if res.Trace.Details["python_path"] != nil {
		t.Error("a service has no Python of ours")
	}
}

func TestServiceRequestEscapesCallerValues(t *testing.T) {
	odd := "a\"b\\c\n\u00e9"
	f := &facts{spec: &tool.Spec{Name: odd}, kind: appfile.KindPython, entry: odd, root: odd}
	form := kit.Must(f.serviceForm(""))(t)
	for _, trace := range []string{"0190c2a0-7b1e-7abc-8def-0123456789ab", odd, "A", " "} {
		args := json.RawMessage(" {\"n\": 1.50} ")
		doc := kit.Must(form.fill(&invocation{call: &tool.Call{Trace: trace, Session: odd}, args: args}, 1500))(t)
		want := map[string]any{
			"protocol_version": 1.0, "tool_name": odd, "kind": "python", "entry": odd, "payload": map[string]any{"n": 1.5}, "timeout_ms": 1500.0,
			"trace_id": trace, "project": map[string]any{"app_root": odd, "flow": odd},
		}
		var got map[string]any
		if err := json.Unmarshal(doc, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %v", doc, err)
		}
	}
	for _, c := range []tool.Call{{Trace: "\xff"}, {Trace: "a", Session: "\xff"}} {
		kit.Fails(t, kit.Err(form.fill(&invocation{call: &c, args: json.RawMessage(`{}`)}, 1)), "", "is not JSON")
	}
}

func TestArgumentsThatAreNoJSONNeverReachAService(t *testing.T) {
	tooltest.NoLeaks(t)
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer srv.Close()
	r := remote(t, srv.URL, "t", Options{})
	for _, args := range []string{`{"a":1,"a":2}`, `{`, `{}}`, `{},"trace_id":"x"`, "{\"a\":\"\xff\"}"} {
		kit.Refused(t, kit.Err(call(r, "t", args, tool.Discard)), tool.CodeInvalidInput, "", args)
	}
	kit.Equal(t, asked.Load(), 0, "requests to the service")
}

// contract(namel3ss): { "ok": false, "error": { "type": "ValueError", "message": "Missing input" } }
func TestErrorOfAServiceToolIsTheToolsOwnFailure(t *testing.T) {
	r := remote(t, peerService(t), "greeter", Options{})
	res, err := call(r, "greeter", `{}`, tool.Discard)
	if err != nil || res.OK || res.Failure.Reason != "ValueError" || res.Failure.Message != "Missing input" || res.Trace.Details["error_type"] != "ValueError" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestServiceThatFailsIsAClearErrorWithinTheTimeout(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Setenv("SERVICE_TOKEN", "s3cret-token-value")
	url := peerService(t)
	for _, c := range []struct {
		name string
		code tool.Code
		want string
	}{
		{"broken", tool.CodeUnavailable, "failed with HTTP 500 Internal Server Error, saying: <h1>the database is down</h1>xxx"},
		{"halfway", tool.CodeProtocol, `broke off after 18 bytes, saying: {"ok": true, "resu`},
		{"never", tool.CodeTimeout, "never ran longer than its 700ms"},
		{"garbage", tool.CodeProtocol, "it answered: it worked!"},
		{"list", tool.CodeProtocol, "broke the protocol"},
		{"moved", tool.CodeUnavailable, "HTTP 307"},
		{"huge", tool.CodeProtocol, "longer than 8 MiB"},
		{"secret", tool.CodeUnavailable, "HTTP 403 Forbidden, saying: not with Bearer [token]"},
	} {
		o := Options{TokenEnv: "SERVICE_TOKEN"}
		if c.name == "never" {
			o.Timeout = config.Duration(700 * time.Millisecond)
		}
		start := time.Now()
		_, err := call(remote(t, url, c.name, o), c.name, `{}`, tool.Discard)
		if tool.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: want %s with %q, got %v", c.name, c.code, c.want, err)
		}
		if time.Since(start) > time.Minute {
			t.Errorf("%s: took %v", c.name, time.Since(start))
		}
	}
	_, err := call(remote(t, "http://127.0.0.1:1/tools", "t", Options{}), "t", `{}`, tool.Discard)
	kit.Refused(t, err, tool.CodeUnavailable, "cannot be reached")
}

// contract(namel3ss): Request (POST `/capabilities/handshake`):
// contract(namel3ss): "runner": "service",
// contract(namel3ss): "required_guarantees": { "no_network": true }
// contract(namel3ss): "enforcement": "enforced",
// contract(namel3ss): "supported_guarantees": { "no_network": true },
// contract(namel3ss): "service_version": "1.0.0"
// contract(namel3ss): service handshake: `service_handshake`, `enforcement_level`
// contract(namel3ss): the trace says `enforced` only of guarantees that the service supports.
func TestHandshakeLetsOnlyEnforcedGuaranteesPass(t *testing.T) {
	tooltest.NoLeaks(t)
	url := peerService(t)
	net := tool.Guarantees{NoNetwork: true}
	secrets := tool.Guarantees{SecretsAllowed: []string{"A", "B"}}
	for _, c := range []struct {
		name       string
		guarantees tool.Guarantees
		level      any
		want       string // empty if it runs
	}{
		{"greeter", net, "enforced", ""},
		{"greeter", tool.Guarantees{SecretsAllowed: []string{}}, "enforced", ""},
		{"declares", net, "declared", `which calls its enforcement "declared"`},
		{"half", net, "none", "no_network is not among the guarantees"},
		{"silent", net, "none", "no_network is not among"},
		{"wordy", net, "none", "no_network is not among"},
		{"tight", secrets, "none", "secrets_allowed is not among"},
		{"refuses", net, nil, "no such tool here"},
		{"old", net, nil, "HTTP 404"},
	} {
		r := remote(t, url, c.name, Options{Options: spawn.Options{Guarantees: c.guarantees}})
		res, err := call(r, c.name, `{"name":"Ada"}`, tool.Discard)
		if c.want == "" {
			if err != nil || res.Trace.Details["service_handshake"] != true || res.Trace.Details["enforcement_level"] != c.level || res.Trace.Details["service_version"] != "1.0.0" {
				t.Errorf("%s: %v, %v", c.name, res, err)
			}
			continue
		}
		e := tool.AsError(err)
		if e == nil || e.Reason != "coverage_missing" || !strings.Contains(e.Message, c.want) || !strings.Contains(e.Message, "was not run") {
			t.Errorf("%s: want %q, got %v", c.name, c.want, err)
			continue
		}
		var d struct{ Trace map[string]any }
		if err := json.Unmarshal(e.Details, &d); err != nil || d.Trace["decision"] != "blocked" || d.Trace["result"] != "blocked" || d.Trace["enforcement_level"] != c.level || d.Trace["service_handshake"] != true {
			t.Errorf("%s: trace %v, %v", c.name, d.Trace, err)
		}
	}
}

func TestRequiredHandshakeIsMade(t *testing.T) {
	url := peerService(t)
	const file = "[python_tools]\nservice_handshake_required = true\nservice_url = %q\n"
	root := write(t, map[string]string{"namel3ss.toml": fmt.Sprintf(file, url)})
	for name, want := range map[string]string{"greeter": "", "old": "HTTP 404"} {
		r := open(t, root, Options{Tool: name, Runner: appfile.RunnerService, AllowUnsafeExecution: true}) // replaces guarantees only
		res, err := call(r, name, `{"name":"Ada"}`, tool.Discard)
		switch {
		case want == "" && (err != nil || res.Trace.Details["service_handshake"] != true):
			t.Errorf("%s: %v, %v", name, res, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnsafeOverrideRunsWithoutServiceGuarantees(t *testing.T) {
	url := peerService(t)
	for _, name := range []string{"declares", "half", "old"} {
		r := remote(t, url, name, Options{Options: spawn.Options{Guarantees: tool.Guarantees{NoNetwork: true}}, AllowUnsafeExecution: true})
		if res := must(t, r, name, `{"name":"Ada"}`); res.Trace.Details["unsafe_override"] != true {
			t.Errorf("%s: trace %v", name, res.Trace.Details)
		}
	}
}

func TestHandshakeHoldsForAWhilePerGuarantees(t *testing.T) {
	url := peerService(t)
	r := remote(t, url, "greeter", Options{Options: spawn.Options{Guarantees: tool.Guarantees{NoNetwork: true}}})
	counter := remote(t, url, "handshakes", Options{})
	for range 3 {
		must(t, r, "greeter", `{"name":"Ada"}`)
	}
	count := func() string { return string(must(t, counter, "handshakes", `{}`).Output) }
	kit.Equal(t, count(), "1", "handshakes for three calls")
	tighter := &tool.Spec{Guarantees: tool.Guarantees{NoSubprocess: true}}
	if _, err := r.Invoke(t.Context(), &tool.Call{Tool: "greeter", Args: []byte(`{"name":"Ada"}`), Spec: tighter}, tool.Discard); err != nil || count() != "2" {
		t.Errorf("other guarantees are another handshake: %s, %v", count(), err)
	}
	r.tools["greeter"].way.(*serviceTool).agreed = agreements{ttl: -time.Second}
	must(t, r, "greeter", `{"name":"Ada"}`)
	must(t, r, "greeter", `{"name":"Ada"}`)
	kit.Equal(t, count(), "4", "an old agreement still holds")
}

// The order is the binding's url, namel3ss.toml, the environment.
func TestServiceURLOrder(t *testing.T) {
	files := map[string]string{".namel3ss/tools.yaml": "tools:\n  t: {runner: service}\n"}
	kit.Fails(t, open(t, write(t, files), Options{}).Unavailable("t"), serviceVariable)
	for _, c := range []struct {
		on   func()
		want string
	}{
		{func() { t.Setenv(serviceVariable, "http://env/tools") }, "http://env/tools"},
		{func() { files["namel3ss.toml"] = "[python_tools]\nservice_url = \"http://toml/tools\"\n" }, "http://toml/tools"},
		{func() { files[".namel3ss/tools.yaml"] = "tools:\n  t: {runner: service, url: 'http://binding/x'}\n" }, "http://binding/x"},
	} {
		c.on()
		if got := open(t, write(t, files), Options{}).tools["t"].way.(*serviceTool); got.url != c.want || !strings.HasSuffix(got.handshake, "/capabilities/handshake") {
			t.Errorf("want %s, got %s and %s", c.want, got.url, got.handshake)
		}
	}
	for _, bad := range []string{"ftp://x/", "127.0.0.1:8787", "http://a:b@c/", "http://", ":"} {
		kit.Refused(t, remote(t, bad, "t", Options{}).Unavailable("t"), tool.CodeInvalidInput, "", bad)
	}
}

func FuzzHandshake(f *testing.F) {
	for _, seed := range []string{
		`{"ok":true,"enforcement":"enforced","supported_guarantees":{"no_network":true},"service_version":"1.0.0"}`,
		`{"ok":true,"enforcement":"enforced","supported_guarantees":{"secrets_allowed":["A"]}}`,
		`{"ok":false,"error":{"type":"x","message":"y"}}`, `{"ok":true}`, `[]`, `{"ok":true,"enforcement":1}`, `{"ok":true,"enforcement":"enforced","supported_guarantees":[]}`,
	} {
		f.Add([]byte(seed))
	}
	walls := tool.Guarantees{NoNetwork: true}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseHandshake(b)
		if err != nil || !r.OK {
			return
		}
		var plain struct {
			Enforcement string                     `json:"enforcement"`
			Supported   map[string]json.RawMessage `json:"supported_guarantees"`
		}
		_ = json.Unmarshal(b, &plain)
		if missing, _ := r.missing(walls); len(missing) == 0 && (plain.Enforcement != "enforced" || string(plain.Supported["no_network"]) != "true") {
			t.Errorf("%s satisfies no_network", b)
		}
	})
}

// BenchmarkServiceCall compares a call of a service tool with a bare HTTP round trip to the same server.
func BenchmarkServiceCall(b *testing.B) {
	ln := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(b)
	reply := []byte(`{"ok":true,"result":{"message":"Hello Ada"}}`)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = bufio.NewReader(r.Body).WriteTo(discard{})
		_, _ = w.Write(reply)
	})}
	go func() { _ = srv.Serve(ln) }()
	b.Cleanup(func() { _ = srv.Close() })
	url := "http://" + ln.Addr().String() + "/tools"
	r := remote(b, url, "greeter", Options{})
	client := &http.Client{Transport: newTransport()}
	form := r.tools["greeter"].way.(*serviceTool).form
	doc, err := form.fill(&invocation{call: &tool.Call{Trace: tool.NewID()}, args: []byte(`{"name":"Ada"}`)}, 10_000)
	kit.OK(b, err)
	var ours, bare time.Duration
	round := func() {
		start := time.Now()
		must(b, r, "greeter", `{"name":"Ada"}`)
		ours += time.Since(start)
		start = time.Now()
		resp := kit.Must(client.Post(url, "application/json", bytes.NewReader(doc)))(b)
		_, _ = bufio.NewReader(resp.Body).WriteTo(discard{})
		_ = resp.Body.Close()
		bare += time.Since(start)
	}
	for range 200 {
		round()
	}
	ours, bare = 0, 0
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(ours)/float64(bare), "x-of-a-bare-round-trip")
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
