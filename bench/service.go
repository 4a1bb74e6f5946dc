package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"

	"toolpost/bench/attempt"
)

// serviceCall compares a call through the whole engine to a tool behind HTTP with a client that posts the
// same document to the same server and reads the answer.
func serviceCall(ctx context.Context, l *lab) row {
	var last atomic.Pointer[[]byte] // what the server was asked last
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a body fails on the client's side
		last.Store(&body)
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message":"Hello Ada"}}`)
	}))
	defer srv.Close()
	cfg := fmt.Sprintf("sources: [{name: svc, protocol: namel3ss, tool: greeter, runner: service, url: %q}]\n",
		srv.URL+"/tools")
	call := greet(ctx, l.open(ctx, filepath.Join(l.dir, "service"), map[string]string{"toolpost.yaml": cfg}), "greeter")
	attempt.Check(call())
	document := *last.Load()
	m, r := compare(301,
		batch(20, call),
		batch(20, func() error { return wantHello(post(ctx, srv.Client(), srv.URL+"/tools", document)) }))
	return asLong(m, r, us, 1.5)
}

func post(ctx context.Context, client *http.Client, url string, document []byte) ([]byte, error) {
	req := attempt.Must(http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(document)))
	req.Header.Set("Content-Type", "application/json")
	resp := attempt.Must(client.Do(req))
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
