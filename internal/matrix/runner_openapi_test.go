package matrix

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/wire/strictjson"
)

// openapiRunner has the operations of an HTTP API. A timeout and a tier belong to a source.
func openapiRunner() *runner {
	const reply = "an API has one answer for a request, "
	return &runner{
		name: "OpenAPI", about: "an HTTP API, as its OpenAPI document describes it",
		sources: func(h *house) string {
			if err := os.WriteFile(filepath.Join(h.dir, "api.json"), apiDocument(h.api), 0o600); err != nil {
				panic(err) // the folder is the test's own
			}
			const head = "protocol: openapi, document: api.json, operations"
			return fmt.Sprintf("- {name: api, %[1]s: [echo, fail, wait, large]}\n- {name: api-slow, %[1]s: [hang], timeout: %[2]s}\n"+
				"- {name: api-danger, %[1]s: [danger], tier: 3}\n", head, hangFor)
		},
		where: func(tool string) string {
			switch tool {
			case "hang":
				return "api-slow"
			case "danger":
				return "api-danger"
			}
			return in("api", "echo", "fail", "wait", "large")(tool)
		},
		carries: carries{
			failure:  {asWords, "a failure is a status: what the API says of it comes behind the operation and the status"},
			reason:   {never, "a failure has the name of its status, such as http_500"},
			progress: {never, reply + "and nothing before it"},
			state:    {never, reply + "and knows of no session"},
			asset:    {never, "an answer is the output, texts and short files included; other bytes above 64 KiB are an asset, which has no name"},
			choice:   {never, reply + "and no events by which it offers choices"},
			question: {never, reply + "and nobody to ask"},
		},
	}
}

// apiDocument describes the API at an address. An argument of any type is JSON in the query.
func apiDocument(url string) []byte {
	paths := map[string]any{}
	for _, name := range []string{"echo", "fail", "hang", "wait", "large", "danger"} {
		parameters := []any{}
		switch name {
		case "echo":
			anything := map[string]any{"application/json": map[string]any{"schema": map[string]any{}}}
			parameters = append(parameters,
				map[string]any{"name": "value", "in": "query", "required": true, "content": anything},
				map[string]any{"name": "n", "in": "query", "schema": map[string]any{"type": "number"}})
		case "fail":
			parameters = append(parameters, map[string]any{"name": "message", "in": "query", "schema": map[string]any{"type": "string"}})
		}
		paths["/"+name] = map[string]any{"get": map[string]any{
			"operationId": name, "parameters": parameters, "responses": map[string]any{"200": map[string]any{"description": "done"}},
		}}
	}
	doc, _ := strictjson.Marshal(map[string]any{ // made of JSON
		"openapi": "3.1.0", "info": map[string]any{"title": "matrix", "version": "1"},
		"servers": []any{map[string]any{"url": url}}, "paths": paths,
	})
	return doc
}

// serveAPI starts the API and returns its address.
func serveAPI(t *testing.T) string {
	t.Helper()
	over := make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"done":true}`
		switch strings.TrimPrefix(r.URL.Path, "/") {
		case "echo":
			answer = `{"value":` + r.FormValue("value") + `}`
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
			answer = `{"message":` + quoted(r.FormValue("message")) + `}`
		case "hang", "wait":
			select {
			case <-r.Context().Done():
			case <-over:
			}
		case "large":
			answer = `{"text":"` + strings.Repeat("x", oneMiB) + `"}`
		}
		_, _ = io.WriteString(w, answer) // a client that is gone does not read it
	}))
	t.Cleanup(func() {
		close(over)
		front.Close()
	})
	return front.URL
}
