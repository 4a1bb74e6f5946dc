package node_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/config"
	"toolpost/engine/cassette"
	"toolpost/host/process"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// canaries returns how many there are: secrets of the config, from the environment, from files and from commands; lease
// tokens; and bearer tokens. They are a hundred together, and twice as many with TOOLPOST_LONG.
func canaries() (secrets, leases, bearers int) {
	return rounds.Of(60, 120), rounds.Of(20, 40), rounds.Of(20, 40)
}

// spill is a tool that reveals everything it knows, in every way that a tool has, and in the encodings of the web.
const spill = `
import base64, json, os, sys, urllib.parse
known = [v for k, v in os.environ.items() if k.startswith("CANARY_")]
ways = [lambda v: v, lambda v: base64.b64encode(v.encode()).decode(), lambda v: base64.urlsafe_b64encode(("k=" + v).encode()).decode(),
        urllib.parse.quote_plus, lambda v: v.encode().hex(), lambda v: json.dumps(v)]
all = ["a %s b" % way(v) for v in known for way in ways]
text = "\n".join(all)
def emit(event, **f): print(json.dumps({"version": "0", "type": event, **f}), flush=True)
args = json.load(sys.stdin)
mode = args.get("input", args).get("mode", "")
if mode == "log":
    for line in all: emit("log", level="info", message=line, fields={"f": line})
if mode == "stderr": print(text, file=sys.stderr)
if mode == "patch": emit("state_patch", patch={"all": all, "deep": {v: v for v in known}})
if mode == "ui": emit("ui_event", event="shown", payload={"all": all})
if mode == "asset":
    open("made.txt", "w").write("harmless")
    emit("asset", assetId=known[0], kind="text", mediaType="text/plain", path=os.path.abspath("made.txt"), metadata={"all": all, known[1]: 1})
if mode == "error": emit("error", errorCode="E", errorMessage=text, details={"all": all})
if mode == "raise": raise ValueError(text)
if mode == "abort": print(text, file=sys.stderr, flush=True); os.abort()
if mode == "exit": print(text, file=sys.stderr, flush=True); sys.exit(3)
if mode == "garbage": print(text); sys.exit(0)
emit("done", ok=mode != "fail", summary=all[0], output={"all": all, "state": text})
`

// spillModes are the modes of spill.
func spillModes() []string {
	return []string{"log", "stderr", "patch", "ui", "asset", "error", "raise", "abort", "exit", "garbage", "fail", "output"}
}

// A panicker is an in-process source that reveals its secrets when it opens, and panics with them when it is called.
type panicker struct {
	name string
	tier int
	env  []string
}

func openPanicker(_ context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	var o struct {
		Secrets []string `yaml:"secrets"`
		Fails   bool     `yaml:"fails"`
		Tier    int      `yaml:"tier"`
	}
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	var cmd process.Command
	if _, err := (secret.Grant{Secrets: o.Secrets, Vault: src.Secrets}).Give(&cmd, nil); err != nil {
		return nil, err
	}
	env := cmd.Env
	log.Debug("opened", "with", env, "first", env[0])
	if o.Fails {
		return nil, errors.New("cannot start with " + strings.Join(env, " "))
	}
	return &panicker{src.Name, o.Tier, env}, nil
}

func (p *panicker) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: p.name, Description: "uses " + strings.Join(p.env, " "), Tier: p.tier, Effects: tool.Effects{Writes: true}}}, nil
}

func (p *panicker) Invoke(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
	panic(fmt.Sprintf("panicked with %q", p.env))
}

func (p *panicker) Close(context.Context) error { return nil }

// An aviary has the canaries, and everything that callers of a node saw.
type aviary struct {
	secrets, leases, bearers []string
	names                    []string // of the secrets
	config                   strings.Builder
	seen                     strings.Builder
}

// newAviary makes the secrets, outside the node's folder.
func newAviary(t *testing.T) *aviary {
	t.Helper()
	a := &aviary{}
	dir := t.TempDir()
	a.config.WriteString("secrets:\n")
	secrets, _, bearers := canaries()
	for i := range secrets {
		name, value := fmt.Sprintf("CANARY_%03d", i), "c/"+rand.Text()+[]string{"+", `"q"`, "%&?", `\n <>`, "ä=="}[i%5]+rand.Text()
		file := filepath.Join(dir, name)
		kit.OK(t, os.WriteFile(file, []byte(value), 0o600))
		switch i % 6 {
		case 0, 1:
			t.Setenv("NODE_TEST_"+name, value)
			fmt.Fprintf(&a.config, "  %s: {env: NODE_TEST_%s}\n", name, name)
		case 2, 3, 4:
			fmt.Fprintf(&a.config, "  %s: {file: '%s'}\n", name, file)
		default:
			fmt.Fprintf(&a.config, "  %s: {command: [cat, '%s']}\n", name, file)
		}
		a.names, a.secrets = append(a.names, name), append(a.secrets, value)
	}
	for range bearers {
		a.bearers = append(a.bearers, "bearer-"+rand.Text())
	}
	return a
}

// note keeps what a caller saw.
func (a *aviary) note(things ...any) {
	for _, x := range things {
		b, _ := json.Marshal(x)
		a.seen.Write(b)
		if err, ok := x.(error); ok && err != nil {
			fmt.Fprintf(&a.seen, "%v %+v", err, err)
		}
	}
}

// call makes a call and keeps its outcome.
func (a *aviary) call(t *testing.T, h tool.Handler, c tool.Call) {
	t.Helper()
	sink := &tooltest.Collect{}
	r, err := h.Invoke(t.Context(), &c, sink)
	a.note(r, err, sink.Events())
}

// forms are the texts that reveal a value.
func forms(value string) []string {
	quoted, _ := json.Marshal(value)
	all := []string{value, string(quoted[1 : len(quoted)-1]), url.QueryEscape(value), url.PathEscape(value), hex.EncodeToString([]byte(value))}
	for shift := range 3 {
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			digits := alphabet.EncodeToString([]byte("\x00\x00"[:shift] + value))
			all = append(all, digits[4:len(digits)-4])
		}
	}
	return all
}

// search fails the test for each place in which a text contains a canary. It searches for all at once, by their first bytes.
func (a *aviary) search(t *testing.T, where, text string) {
	t.Helper()
	const start = 8
	table := map[string][]string{}
	for _, value := range slices.Concat(a.secrets, a.leases, a.bearers) {
		for _, form := range forms(value) {
			table[form[:start]] = append(table[form[:start]], form)
		}
	}
	found := 0
	for at := 0; at+start <= len(text); at++ {
		for _, form := range table[text[at:at+start]] {
			if found < 5 && strings.HasPrefix(text[at:], form) {
				found++
				t.Errorf("%s has %q: %.300q", where, form, text[max(at-120, 0):])
			}
		}
	}
}

func TestNoneOfTheCanariesIsFoundAnywhere(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	a, dir, logged, spans := newAviary(t), t.TempDir(), &kit.Buffer{}, collect(t)
	kit.OK(t, os.WriteFile(filepath.Join(dir, "spill.py"), []byte(spill), 0o600))
	a.config.WriteString(`
sources:
  - {name: spill, protocol: narratoria, command: [python3, spill.py], secrets: [` + strings.Join(a.names, ", ") + `], walls: {write: [.]},
     input: {type: object, properties: {mode: {type: string, maxLength: 20}}}}
  - {name: danger, protocol: panicker, secrets: [` + strings.Join(a.names[:3], ", ") + `], tier: 3}
  - {name: panics, protocol: panicker, secrets: [` + strings.Join(a.names, ", ") + `]}
  - {name: dead, protocol: panicker, secrets: [` + strings.Join(a.names, ", ") + `], fails: true}
doors: {http: {listen: "127.0.0.1:0"}, nats: {listen: "127.0.0.1:0"}}
limits: {lease_tier: 3}
policy: {record: record.jsonl}
telemetry: {otlp: '` + spans.url + `', headers: {X-Key: ` + a.names[0] + `}}
store: {audit: {values: ["*"]}, idempotency: {durable: true}}
`)
	tape := kit.Must(cassette.Create(filepath.Join(dir, "run.jsonl"), "test"))(t) // it is searched with the folder
	text, ready := a.config.String(), make(chan node.Listening, 8)
	n := open(t, parse(t, dir, text), node.Options{
		Protocols: append(node.Protocols(), node.Protocol{Name: "panicker", Open: openPanicker}), Token: a.bearers[0],
		Log:   slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Ready: func(l node.Listening) { ready <- l }, Tape: tape,
	})
	stop := serve(t, n)
	urls := urlsOf(ready, "http", "nats")
	a.overHTTP(t, n, urls["http"])
	a.overNATS(t, urls["nats"])
	a.leased(t, n, urls["http"])
	a.looked(t, n)
	kept := contents(t, dir) // with the write-ahead log
	stop()
	shut(t, n)
	if calls, err := tape.Close(); err != nil || calls < len(a.secrets)/3 {
		t.Errorf("the cassette has %d calls: %v", calls, err)
	}
	a.search(t, "what callers see", a.seen.String())
	a.search(t, "the log", logged.String())
	spans.mu.Lock()
	defer spans.mu.Unlock()
	if len(spans.spans) == 0 {
		t.Error("no spans were sent")
	}
	a.search(t, "what the collector of spans and metrics got", spans.raw.String())
	a.search(t, "the folder while it serves", kept)
	a.search(t, "the folder", contents(t, dir))
	rows, _ := json.Marshal(records(t, dir, text))
	a.search(t, "the audit log", string(rows))
	if shown := strings.Count(a.seen.String()+logged.String()+string(rows), "[secret CANARY_"); shown < 1000 {
		t.Errorf("only %d secrets were redacted: the test does not test", shown)
	}
	http.DefaultClient.CloseIdleConnections()
}

// overHTTP makes the tools reveal everything, and itself sends canaries: in arguments, their names, names of tools, and in
// tokens.
func (a *aviary) overHTTP(t *testing.T, n *node.Node, at string) {
	t.Helper()
	remote := kit.Must(node.Dial(at, a.bearers[0], ""))(t)
	for _, mode := range spillModes() {
		a.call(t, remote, tool.Call{Tool: "spill", Session: "s", Args: json.RawMessage(`{"mode":"` + mode + `"}`), Key: "k-" + mode})
	}
	a.call(t, remote, tool.Call{Tool: "spill", Session: "s", Args: json.RawMessage(`{"mode":"patch"}`), Key: "k-patch"}) // a replay
	a.call(t, remote, tool.Call{Tool: "panics"})
	a.call(t, remote, tool.Call{Tool: "dead"})
	for i, value := range a.secrets {
		b, _ := json.Marshal(map[string]any{"mode": "", "note": value, "list": []string{"x " + value}, value: base64.StdEncoding.EncodeToString([]byte(value))})
		switch i % 6 {
		case 0:
			a.call(t, remote, tool.Call{Tool: "panics", Args: b})
		case 1: // too long for its schema
			b, _ := json.Marshal(map[string]any{"mode": value})
			a.call(t, remote, tool.Call{Tool: "spill", Args: b})
		case 2:
			patch, _ := json.Marshal(map[string]any{"session": "s", "patch": map[string]any{"v": value, value: url.QueryEscape(value)}})
			a.call(t, remote, tool.Call{Tool: "state.patch", Args: patch})
		case 3:
			a.call(t, remote, tool.Call{Tool: "nosuch " + value, Args: b})
		case 4:
			a.call(t, remote, tool.Call{Tool: "state.get", Args: b, DryRun: true})
		default:
			a.call(t, n.Handler(), tool.Call{Tool: "panics", Args: b, Run: value, Trace: value, Caller: tool.Principal{ID: "local", Door: "cli", Operates: true}})
		}
	}
	a.call(t, remote, tool.Call{Tool: "state.get", Args: json.RawMessage(`{"session":"s"}`)})
	for _, token := range a.bearers[1:] {
		a.get(t, at+"/v1/tools", token)
	}
	a.get(t, at+"/v1/tools", a.bearers[0])
	a.get(t, at+"/metrics", a.bearers[0])
}

func (a *aviary) get(t *testing.T, at, token string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil))(t)
	req.Header.Set("Authorization", "Bearer "+token)
	resp := kit.Must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	body := kit.Must(io.ReadAll(resp.Body))(t)
	a.seen.Write(body)
	a.note(resp.Header)
}

func (a *aviary) overNATS(t *testing.T, at string) {
	t.Helper()
	for _, token := range a.bearers[1:9] {
		if c, err := nats.Connect(at, nats.Token(token), nats.MaxReconnects(0), nats.Timeout(time.Minute)); err == nil {
			c.Close()
			t.Error("connected with a wrong token")
		} else {
			a.note(err)
		}
	}
	c := kit.Must(nats.Connect(at, nats.Token(a.bearers[0]), nats.Timeout(time.Minute)))(t)
	defer c.Close()
	for _, m := range []nats.Msg{
		{Subject: "tools.execute.spill", Data: []byte(`{"mode":"output"}`)},
		{Subject: "tools.execute.spill", Data: []byte(`{"mode":"raise"}`)},
		{Subject: "tools.execute.panics", Data: []byte(`{}`)},
		{Subject: "tools.execute.dead", Data: []byte(`{}`)},
	} {
		reply, err := c.RequestMsgWithContext(t.Context(), &m)
		kit.OK(t, err, m.Subject)
		a.seen.Write(reply.Data)
		a.note(reply.Header)
	}
}

// leased issues leases and uses them up: each once, some twice, and some for the wrong tool.
func (a *aviary) leased(t *testing.T, n *node.Node, at string) {
	t.Helper()
	remote := kit.Must(node.Dial(at, a.bearers[0], ""))(t)
	local := tool.Principal{ID: "local", Door: "cli", Operates: true}
	_, leases, _ := canaries()
	for i := range leases {
		out, code := invoke(t, n, tool.Call{Tool: "lease.issue", Args: json.RawMessage(`{"tool":"danger"}`), Caller: local})
		var lease struct {
			Token string `json:"token"`
		}
		if err := json.Unmarshal([]byte(out), &lease); err != nil || code != "" || len(lease.Token) < 20 {
			t.Fatalf("%s, %q, %v", out, code, err)
		}
		a.leases = append(a.leases, lease.Token)
		switch i % 4 {
		case 0:
			a.call(t, remote, tool.Call{Tool: "nosuch", Lease: lease.Token})
		case 1:
			args, _ := json.Marshal(map[string]string{"token": lease.Token})
			a.call(t, n.Handler(), tool.Call{Tool: "lease.revoke", Args: args, Caller: local})
			a.call(t, remote, tool.Call{Tool: "danger", Lease: lease.Token})
		case 2:
			if out, code := invoke(t, n, tool.Call{Tool: "lease.issue", Args: json.RawMessage(`{"tool":"danger"}`), Key: lease.Token[:12], Caller: local}); code == "" {
				t.Errorf("what a key remembers has a token: %s", out)
			}
		default:
			if i%8 == 7 {
				a.call(t, remote, tool.Call{Tool: "danger", Lease: lease.Token, Key: lease.Token[:8]})
			}
			a.call(t, remote, tool.Call{Tool: "danger", Lease: lease.Token})
		}
	}
}

// looked collects what a node reports about itself.
func (a *aviary) looked(t *testing.T, n *node.Node) {
	t.Helper()
	for spec, err := range n.Catalog().Specs(t.Context(), tool.Principal{ID: "ada", Door: "cli"}) {
		a.note(spec, err)
	}
	for _, s := range n.Sources() {
		a.note(s, s.Err)
	}
	for _, s := range n.Secrets() {
		a.note(s, s.Err)
	}
	kit.Check(t, n.Metrics(&a.seen))
}
