package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"toolpost/bench/attempt"
	"toolpost/tool"
)

// keysProgram calls an HTTPS API with the key in its environment: greet with a connection of its own for each call, as most
// programs do, and again with one that stays open.
const keysProgram = `import http.client, json, os, ssl, sys, urllib.request
url, host = sys.argv[1], sys.argv[1].split("/")[2]
headers = {"Authorization": "Bearer " + os.environ["API_KEY"]}
kept = None
def greet():
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers)).read().decode()
def again():
    global kept
    if kept is None:
        kept = http.client.HTTPSConnection("127.0.0.1", 3128, context=ssl.create_default_context())
        kept.set_tunnel(host)
    kept.request("GET", "/", headers=headers)
    return kept.getresponse().read().decode()
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "server/discover":
        r = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("greet", "again")]}
    else:
        r = {"content": [{"type": "text", "text": {"greet": greet, "again": again}[m["params"]["name"]]()}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"resultType": "complete", **r}}), flush=True)
`

const keysConfig = `connections: [{name: api, key: pasted, hosts: [%[1]q], env: API_KEY}]
secrets: {API_KEY: {env: BENCH_KEY}}
sources:
  - {name: injected, protocol: mcp, command: [%[2]q, keys.py, "https://%[1]s/"], connections: [api]}
  - {name: given, protocol: mcp, command: [%[2]q, keys.py, "https://%[1]s/"], secrets: [API_KEY], env: {SSL_CERT_FILE: %[3]q}, walls: {network: [%[1]q], read: [%[3]q]}}
`

const benchKey = "a-key-of-the-benchmark"

// keys are the times of calls.
type keys struct{ Injected, Given, InjectedKept, GivenKept time.Duration }

// injectedCall compares a call whose program gets its key from the proxy of its room with one whose program has it. Both go
// through the proxy. Another bench measures it, which trusts the certificate of the API.
func injectedCall(ctx context.Context, l *lab) row {
	need("python3")
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+benchKey {
			_, _ = fmt.Fprint(w, "Hello Ada")
		}
	}))
	l.atEnd(func() error { api.Close(); return nil })
	trusted := filepath.Join(l.dir, "api.pem")
	attempt.Check(os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	cmd := exec.CommandContext(ctx, attempt.Must(os.Executable()), wordKeys, api.Listener.Addr().String())
	cmd.Dir, cmd.Stderr, cmd.Env = l.dir, os.Stderr, append(os.Environ(), "SSL_CERT_FILE="+trusted, "BENCH_KEY="+benchKey)
	var k keys
	attempt.Check(json.Unmarshal(attempt.Must(cmd.Output()), &k))
	one := asLong(k.Injected, k.Given, ms, 1.3)
	one.note = longer(k.InjectedKept, k.GivenKept, ms).ratio + " if the program keeps its connection"
	return one
}

func measureKeys(ctx context.Context, l *lab, address string) (k keys) {
	dir := attempt.Must(os.MkdirTemp("", "keys-*"))
	l.atEnd(func() error { return os.RemoveAll(dir) })
	n := l.open(ctx, dir, map[string]string{
		"keys.py":       keysProgram,
		"toolpost.yaml": fmt.Sprintf(keysConfig, address, realPython(ctx), os.Getenv("SSL_CERT_FILE")),
	})
	caller := tool.Principal{ID: "bench", Door: "bench"}
	call := func(name, args string) func() error {
		return func() error {
			_, err := invoke(ctx, n, &tool.Call{Tool: name, Args: []byte(args), Caller: caller})
			return err
		}
	}
	attempt.Check(call("connections.key", `{"name":"api","secret_key":"`+benchKey+`"}`)())
	greets := func(name string) timed {
		c := &tool.Call{Tool: name, Args: []byte(`{}`), Caller: caller}
		return batch(5, func() error { return wantHello(invoke(ctx, n, c)) })
	}
	k.Injected, k.Given = compare(41, greets("injected.greet"), greets("given.greet"))
	k.InjectedKept, k.GivenKept = compare(41, greets("injected.again"), greets("given.again"))
	return k
}
