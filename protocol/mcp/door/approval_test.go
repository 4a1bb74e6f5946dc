package door_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/engine/approval"
	"toolpost/engine/ask"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/store"
	"toolpost/tool"
)

// A gated is a door whose calls must be approved.
type gated struct {
	*approval.Approvals
	url string
	ran atomic.Int64
}

func newGated(t *testing.T, rule tool.ConsentRule) *gated {
	g := new(gated)
	g.Approvals = approval.New(approval.Options{Store: new(store.Approvals), Decider: decider{g}})
	b := newBench()
	q := ask.New(ask.Options{Others: approval.IsID})
	rule.Name, rule.Timeout, rule.Remember = "asks", time.Minute, []string{"hour"}
	run := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		g.ran.Add(1)
		return &tool.Result{OK: true, Output: []byte(`{"done":true}`)}, nil
	})
	inner := q.Answers(nil)(policyAsks(rule)(g.For(nil)(q.Carry(nil)(run))))
	g.url = serveHTTP(t, door.Options{}, inner, b)
	return g
}

// A decider lets every caller decide.
type decider struct{ g *gated }

func (decider) May(context.Context, tool.Principal) error { return nil }

func (d decider) Decide(ctx context.Context, c *tool.Call, args json.RawMessage) error {
	var a struct {
		ID     string
		Reason string
		approval.Decision
	}
	err := json.Unmarshal(args, &a)
	if err == nil {
		_, err = d.g.Approvals.Decide(ctx, c.Caller, a.ID, approval.Decision{Approve: a.Approve, Reason: a.Reason})
	}
	return err
}

// policyAsks stands in for policy: it requires consent by a rule.
func policyAsks(rule tool.ConsentRule) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			asks := *c
			asks.Consent = &tool.Consent{Rules: []tool.ConsentRule{rule}}
			return next.Invoke(ctx, &asks, out)
		})
	}
}

func (g *gated) call(t *testing.T, version string, o *sdk.ClientOptions) *sdk.CallToolResult {
	t.Helper()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: g.url, HTTPClient: httpClient(t), MaxRetries: -1,
	}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return kit.Must(s.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x"}}))(t)
}

func says(action string, content map[string]any) *sdk.ClientOptions {
	return &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		if !strings.Contains(r.Params.Message, "has to be approved") {
			return nil, fmt.Errorf("asked %q", r.Params.Message)
		}
		return &sdk.ElicitResult{Action: action, Content: content}, nil
	}}
}

func allText(r *sdk.CallToolResult) (text string) {
	for _, c := range r.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			text += t.Text
		}
	}
	return text
}

func TestCallerWhoMayApproveIsAskedInPlace(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for _, c := range []struct {
			name, action string
			content      map[string]any
			ran          int64
			want         string
		}{
			{"approves", "accept", map[string]any{"approve": true, "reason": "mine"}, 1, `"done":true`},
			{"denies", "accept", map[string]any{"approve": false, "reason": "too risky"}, 0, "too risky"},
			{"declines", "decline", nil, 0, "denied it"},
			{"cancels", "cancel", nil, 0, "not answered"},
		} {
			t.Run(version+"/"+c.name, func(t *testing.T) {
				g := newGated(t, tool.ConsentRule{Approvers: []tool.Glob{"*"}, Self: true})
				r := g.call(t, version, says(c.action, c.content))
				if r.IsError != (c.ran == 0) || g.ran.Load() != c.ran || !strings.Contains(allText(r), c.want) {
					t.Errorf("%v %s; it ran %d times", r.IsError, allText(r), g.ran.Load())
				}
			})
		}
	}
}

func TestClientIsToldToCallAgainAfterApproval(t *testing.T) {
	boss := tool.Principal{ID: "boss"}
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for name, o := range map[string]*sdk.ClientOptions{"a client that can be asked": says("accept", map[string]any{"approve": true}), "one that cannot": nil} {
			t.Run(version+"/"+name, func(t *testing.T) {
				g := newGated(t, tool.ConsentRule{Approvers: []tool.Glob{"boss"}})
				r := g.call(t, version, o)
				if !r.IsError || !strings.Contains(allText(r), "Make the same call again") {
					t.Fatalf("%v %s", r.IsError, allText(r))
				}
				list, err := g.List(t.Context(), boss, approval.Waiting, 9)
				if err != nil || len(list) != 1 {
					t.Fatalf("%+v, %v", list, err)
				}
				kit.OK(t, kit.Err(g.Decide(t.Context(), boss, list[0].ID, approval.Decision{Approve: true})))
				if r := g.call(t, version, o); r.IsError || g.ran.Load() != 1 {
					t.Errorf("%v %s; it ran %d times", r.IsError, allText(r), g.ran.Load())
				}
			})
		}
	}
}
