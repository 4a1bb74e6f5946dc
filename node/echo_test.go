package node_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/leaks"
	"toolpost/node"
	"toolpost/tool"
)

const echoDocument = `{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {"/{how}": {"get": {
"operationId": "echo", "parameters": [{"name": "how", "in": "path", "required": true, "schema": {"type": "string"}}],
"responses": {"200": {"description": "ok"}}}}}}`

// echoing answers with the key that it got, in all places that an error may quote.
func echoing(asked *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		raw := map[string]string{
			"/status": "HTTP/1.1 " + key + "\r\n\r\n",
			"/reason": "HTTP/1.1 401 " + key + "\r\nContent-Length: 0\r\n\r\n",
			"/header": "HTTP/1.1 200 OK\r\n" + key + "\r\n\r\n", "/version": key + " 200 OK\r\n\r\n",
			"/length": "HTTP/1.1 200 OK\r\nContent-Length: " + key + "\r\n\r\n",
			"/type":   "HTTP/1.1 200 OK\r\nContent-Type: " + key + "/x\r\nContent-Length: 1\r\n\r\nx",
		}[r.URL.Path]
		if raw != "" {
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = c.Write([]byte(raw))
			_ = c.Close()
			return
		}
		forms := key + " " + base64.StdEncoding.EncodeToString([]byte(key)) + " " + hex.EncodeToString([]byte(key))
		w.Header().Set("Location", "http://127.0.0.1:1/"+key)
		w.Header().Set("WWW-Authenticate", `Bearer error="`+key+`"`)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(map[string]int{"/redirect": http.StatusFound, "/limit": 429, "/broken": 500}[r.URL.Path])
		fmt.Fprintf(w, `{"error": "no such key: %s"`, forms) // and no JSON
	}
}

// The API quotes the key of a caller in all that an error may quote. Neither the caller nor a log or a record sees it.
func TestErrorsOfAnAPIDoNotHaveTheKey(t *testing.T) {
	var asked atomic.Int32
	api := httptest.NewServer(echoing(&asked))
	defer api.Close()
	dir, log := t.TempDir(), new(kit.Buffer)
	kit.Write(t, filepath.Join(dir, "echo.json"), echoDocument)
	cfg := parse(t, dir, fmt.Sprintf(`
connections: [{name: api, key: pasted, hosts: [%q]}]
sources: [{name: svc, protocol: openapi, document: echo.json, server: %q, private: true, connections: [api]}]
`, strings.TrimPrefix(api.URL, "http://"), api.URL))
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	n := open(t, cfg, node.Options{Log: slog.New(slog.NewTextHandler(log, all))})
	ada := tool.Principal{ID: "ada", Door: "http"}
	said := new(bytes.Buffer)
	invoke := func(name, args string) {
		sink := tool.SinkFunc(func(e tool.Event) error { _, err := said.Write(e.Data); return err })
		r, err := n.Handler().Invoke(t.Context(), &tool.Call{Tool: name, Caller: ada, Args: []byte(args)}, sink)
		if r != nil {
			fmt.Fprintf(said, "%s %s %+v %+v", r.Output, r.Summary, r.Failure, r.Trace)
		}
		fmt.Fprintf(said, "%v %+v\n", err, tool.AsError(err))
	}
	invoke("toolpost.connections.key", `{"name":"api","secret_key":"`+canaryKey+`"}`)
	ways := []string{"status", "reason", "header", "version", "length", "type", "redirect", "limit", "broken"}
	for _, how := range ways {
		invoke("echo", `{"how":"`+how+`"}`)
	}
	kit.Equal(t, int(asked.Load()) >= len(ways), true, "requests")
	kit.Contains(t, said.String(), "secret connection api")
	shut(t, n)
	leaks.Text(t, "what the caller saw", said.String(), canaryKey)
	leaks.Text(t, "the log", log.String(), canaryKey)
	leaks.Files(t, dir, canaryKey)
}
