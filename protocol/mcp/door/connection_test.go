package door_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/config"
	"toolpost/engine/ask"
	"toolpost/engine/connection"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/store"
	"toolpost/tool"
)

// connected serves a tool that uses a key of its caller. The channel gets the caller of each call.
func connected(t *testing.T) (*connection.Connections, *gated, chan tool.Principal) {
	t.Helper()
	c := connection.New(connection.Env{
		Store: new(store.Connections), Marks: ask.NewMemory(), Redactor: new(secret.Redactor), Log: slog.New(slog.DiscardHandler),
		Console: func() string { return "http://127.0.0.1:8700" },
	})
	path := filepath.Join(t.TempDir(), "toolpost.yaml")
	kit.OK(t, os.WriteFile(path, []byte("connections: [{name: api, key: pasted, hosts: [api.example]}]\n"+
		"sources: [{name: issues, protocol: mcp, command: [x], connections: [api]}]\n"), 0o600))
	kit.Must(c.Read(kit.Must(config.Load(path))(t)))(t)()
	spec := &tool.Spec{Name: "echo", Source: "issues", Connections: []string{"api"}}
	run := c.For(spec)(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		value, err := c.Credentials[0].Value(ctx)
		return &tool.Result{OK: true, Output: []byte(`{"key":"` + value + `"}`)}, err
	}))
	callers, g := make(chan tool.Principal, 100), new(gated)
	q := ask.New(ask.Options{Others: connection.IsID})
	g.url = serveHTTP(t, door.Options{}, tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		own := *c
		own.Spec, own.Memo = spec, &tool.Memo{Secrets: new(secret.Redactor)}
		callers <- c.Caller
		return q.Answers(nil)(run).Invoke(ctx, &own, out)
	}), newBench())
	return c, g, callers
}

func TestCallGoesOnWhenItsUserHasConnected(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for action, want := range map[string]string{"accept": "key-of-the-caller", "decline": "declined"} {
			c, g, callers := connected(t)
			r := g.call(t, version, &sdk.ClientOptions{
				Capabilities: &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{URL: &sdk.URLElicitationCapabilities{}}},
				ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
					if r.Params.Mode != "url" || !strings.HasPrefix(r.Params.URL, "http://127.0.0.1:8700/#/connections?") {
						t.Errorf("%s: asked %+v", version, r.Params)
					}
					if action == "accept" {
						kit.Must(c.Paste(ctx, <-callers, connection.Begin{Name: "api"}, "key-of-the-caller"))(t)
					}
					return &sdk.ElicitResult{Action: action}, nil
				},
			})
			if r.IsError != (action == "decline") || !strings.Contains(allText(r), want) {
				t.Errorf("%s, %s: %s", version, action, allText(r))
			}
		}
	}
}

func TestClientThatShowsNoLinksIsToldHowToConnect(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		c, g, callers := connected(t)
		r := g.call(t, version, nil)
		if text := allText(r); !r.IsError || !strings.Contains(text, "toolpost connections add api --key-stdin") ||
			!strings.Contains(text, "http://127.0.0.1:8700/#/connections?") {
			t.Errorf("%s: %s", version, text)
		}
		kit.Must(c.Paste(t.Context(), <-callers, connection.Begin{Name: "api"}, "key-of-the-caller"))(t)
		if r = g.call(t, version, nil); !strings.Contains(allText(r), "key-of-the-caller") {
			t.Errorf("%s, again: %s", version, allText(r))
		}
	}
}
