package openapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/openapi"
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

func TestRefusedRequestSaysWhetherItHadAKey(t *testing.T) {
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	api, secure := httptest.NewServer(refuses), httptest.NewTLSServer(refuses)
	defer api.Close()
	defer secure.Close()
	path := filepath.Join(t.TempDir(), "api.json")
	kit.OK(t, os.WriteFile(path, []byte(connectedAPI), 0o600))
	used := 0
	call := func(at *httptest.Server, paths ...string) (*tool.Result, error) {
		s := open(t, "document: %q, server: %q, connections: [key]", path, at.URL)
		return s.Invoke(kit.Context(t), &tool.Call{
			ID: tool.NewID(), Tool: "items", Args: json.RawMessage(`{}`), Spec: s.specs["items"],
			Notes: tool.Notes{Credentials: []*tool.Credential{{
				Connection: "key", Hosts: []string{at.Listener.Addr().String()}, Paths: paths, Again: ": run `x`",
				Value: func(context.Context) (string, error) { return "canary", nil }, Used: func(string) { used++ },
			}}},
		}, tool.Discard)
	}
	kit.Contains(t, kit.Must(call(api))(t).Failure.Message, "refuses the key of the connection key")
	kit.Contains(t, kit.Must(call(api))(t).Failure.Message, "connect it again: run `x`")
	kit.Contains(t, kit.Must(call(api, "/x"))(t).Failure.Message, "was not sent with GET to "+api.Listener.Addr().String())
	used = 0
	_, err := call(secure)
	kit.Refused(t, err, tool.CodeUnavailable, "is not trusted")
	kit.Equal(t, tool.NotRun(err), true)
	kit.Equal(t, used, 0, "uses of a key that was not sent")
}

func TestSourceWhoseKeysGoElsewhereIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.json")
	kit.OK(t, os.WriteFile(path, []byte(connectedAPI), 0o600))
	for host, want := range map[string]string{"api.example": "", "other.example": "send no key to api.example"} {
		file := filepath.Join(t.TempDir(), "toolpost.yaml")
		text := fmt.Sprintf("sources: [{name: api, protocol: openapi, document: %q, server: 'https://api.example', connections: [key]}]\n", path)
		kit.OK(t, os.WriteFile(file, []byte(text), 0o600))
		src := kit.Must(config.Load(file))(t).Sources[0]
		src.Credentials = []*tool.Credential{{Connection: "key", Hosts: []string{host}, Methods: []string{"POST"}}}
		r, err := openapi.Open(t.Context(), src, slog.New(slog.DiscardHandler))
		if want != "" {
			kit.Refused(t, err, tool.CodeInvalidInput, want)
			continue
		}
		kit.OK(t, err)
		kit.OK(t, r.Close(t.Context()))
	}
}
