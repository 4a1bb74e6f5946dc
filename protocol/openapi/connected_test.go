package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

const connectedAPI = `{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "security": [{"key": []}],
"components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
"paths": {"/items": {"get": {"operationId": "items", "responses": {"200": {"description": "ok"}}}},
"/away": {"get": {"operationId": "away", "responses": {"200": {"description": "ok"}}}},
"/other": {"get": {"operationId": "other", "responses": {"200": {"description": "ok"}}}}}}`

func TestKeyOfTheCallerGoesToTheHostsOfItsConnectionAlone(t *testing.T) {
	var got []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.Header.Get("X-Key"))
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/other", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"method": %q}`, r.Method)
	}))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "api.json")
	kit.OK(t, os.WriteFile(path, []byte(connectedAPI), 0o600))
	s := open(t, "document: %q, server: %q, connections: [key]", path, api.URL)
	host := strings.TrimPrefix(api.URL, "http://")
	call := func(name string, c tool.Credential) (used []string, err error) {
		got = nil
		c.Connection, c.Header = "key", "X-Key: <{key}>"
		c.Value = func(context.Context) (string, error) { return "canary", nil }
		c.Used = func(host string) { used = append(used, host) }
		_, err = s.Invoke(kit.Context(t), &tool.Call{
			ID: tool.NewID(), Tool: name, Args: json.RawMessage(`{}`), Spec: s.specs[name], Notes: tool.Notes{Credentials: []*tool.Credential{&c}},
		}, tool.Discard)
		return used, err
	}
	for about, x := range map[string]struct {
		tool string
		c    tool.Credential
		want string
	}{
		"its host":          {"items", tool.Credential{Hosts: []string{host}}, "/items <canary>"},
		"its path":          {"items", tool.Credential{Hosts: []string{host}, Paths: []string{"/it*"}}, "/items <canary>"},
		"another path":      {"items", tool.Credential{Hosts: []string{host}, Paths: []string{"/x*"}}, "/items "},
		"another method":    {"items", tool.Credential{Hosts: []string{host}, Methods: []string{"POST"}}, "/items "},
		"another host":      {"items", tool.Credential{Hosts: []string{"api.example"}}, "/items "},
		"without TLS":       {"items", tool.Credential{Hosts: []string{"*.0.0.1"}}, "/items "},
		"the port of HTTPS": {"items", tool.Credential{Hosts: []string{"127.0.0.1"}}, "/items "},
		"a redirect":        {"away", tool.Credential{Hosts: []string{host}, Paths: []string{"/away"}}, "/away <canary>"},
	} {
		used, _ := call(x.tool, x.c)
		kit.Equal(t, strings.Join(got, ", "), x.want, about)
		kit.Equal(t, len(used) == 1 && used[0] == host, strings.Contains(x.want, "canary"), about+": noted")
	}
	_, err := s.Invoke(kit.Context(t), &tool.Call{
		Tool: "items", Args: json.RawMessage(`{}`), Spec: s.specs["items"], Notes: tool.Notes{Credentials: []*tool.Credential{{
			Hosts: []string{host}, Value: func(context.Context) (string, error) { return "", tool.Errorf(tool.CodeAccessDenied, "connect again") },
		}}},
	}, tool.Discard)
	kit.Refused(t, err, tool.CodeAccessDenied, "connect again")
}
