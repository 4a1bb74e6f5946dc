package stormfleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// A door sends one call to a hub, with the headers of the call, and returns what came back, in the words of its protocol.
type door struct {
	name string
	call func(ctx context.Context, hub *node, tool, args string, headers map[string]string) (string, error)
}

// doors are those of the callers.
func doors(t *testing.T, s *site) []door {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second}}
	t.Cleanup(client.CloseIdleConnections)
	return []door{{"http", overHTTP(client)}, {"mcp", overMCP(client)}, {"nats", overNATS(t, s)}}
}

// post makes a call over HTTP on a connection of its own.
func post(ctx context.Context, hub *node, tool, args string, headers map[string]string) (string, error) {
	return overHTTP(fresh())(ctx, hub, tool, args, headers)
}

func fresh() *http.Client { return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} }

func overHTTP(client *http.Client) func(context.Context, *node, string, string, map[string]string) (string, error) {
	return func(ctx context.Context, hub *node, tool, args string, headers map[string]string) (string, error) {
		return send(ctx, client, hub, "/v1/tools/"+tool+"/call", args, headers)
	}
}

func send(ctx context.Context, client *http.Client, hub *node, path, body string, headers map[string]string) (string, error) {
	how := http.MethodPost
	if body == "" {
		how = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, how, "http://"+hub.machine.Address()+":8700"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+served.Token)
	r.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

const mcpCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"storm","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}`

// overMCP speaks the streamable HTTP of MCP.
func overMCP(client *http.Client) func(context.Context, *node, string, string, map[string]string) (string, error) {
	return func(ctx context.Context, hub *node, tool, args string, headers map[string]string) (string, error) {
		all := map[string]string{
			"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
		}
		for name, value := range headers {
			all[name] = value
		}
		return send(ctx, client, hub, "/mcp", fmt.Sprintf(mcpCall, tool, args), all)
	}
}

// overNATS keeps a connection to the server of each hub.
func overNATS(t *testing.T, s *site) func(context.Context, *node, string, string, map[string]string) (string, error) {
	t.Helper()
	to := map[*node]*nats.Conn{}
	for _, hub := range s.hubs {
		c := kit.Must(nats.Connect("nats://"+hub.machine.Address()+":4222", nats.Token(served.Token), nats.MaxReconnects(-1),
			nats.ReconnectWait(200*time.Millisecond), nats.ReconnectBufSize(-1), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(3),
			nats.Timeout(time.Second), nats.IgnoreAuthErrorAbort()))(t)
		t.Cleanup(c.Close)
		to[hub] = c
	}
	return func(ctx context.Context, hub *node, tool, args string, headers map[string]string) (string, error) {
		m := nats.NewMsg("tools.execute." + strings.ReplaceAll(tool, ".", "%2E"))
		m.Data, m.Header = []byte(`{"arguments":`+args+`}`), nats.Header{"Toolpost-Style": {"native"}}
		for name, value := range headers {
			m.Header.Set(name, value)
		}
		answer, err := to[hub].RequestMsgWithContext(ctx, m)
		if err != nil {
			return "", err
		}
		return string(answer.Data), nil
	}
}

// What became of one attempt of a caller.
const (
	ran     = "ran"     // it got the outcome
	failed  = "failed"  // it got the outcome: the tool itself failed
	refused = "refused" // it was told that nothing was done
	unknown = "unknown" // it was told that whether something was done is not known (yet)
	silent  = "silent"  // it got no answer
)

// An attempt is one request of a caller, and what it was told.
type attempt struct {
	id, call, tool, door, hub string // id: what is to happen once, whatever the number of attempts
	key                       bool   // the attempts of this id have it as their idempotency key
	begun, ended              time.Time
	how, said, why            string // why: the code and the reason
	body                      string
}

var (
	ranOf    = regexp.MustCompile(`ran:([^:"\\]+):([0-9a-f]{16})`)
	codeOf   = regexp.MustCompile(`\\?"code\\?":\s*\\?"(\w+)`)
	reasonOf = regexp.MustCompile(`\\?"reason\\?":\s*\\?"(\w+)`)
	jobOf    = regexp.MustCompile(`\\?"job\\?":\s*\\?"([0-9a-f-]{36})`)
	stateOf  = regexp.MustCompile(`\\?"state\\?":\s*\\?"(\w+)`)
	askOf    = regexp.MustCompile(`apr_[a-z2-7]{20}`)
)

// first returns the first group of a pattern in a text.
func first(of *regexp.Regexp, text string) string {
	if m := of.FindStringSubmatch(text); m != nil {
		return m[len(m)-1]
	}
	return ""
}

// judge reads an answer: what was said is a line of the tool, or the job that was made.
func judge(a *attempt, body string, err error) {
	a.body = body
	code, reason := first(codeOf, body), first(reasonOf, body)
	if strings.Contains(body, "params: requestState") { // in the words of MCP
		code, reason = "invalid_input", "unknown_question"
	}
	a.why = strings.TrimSuffix(code+" "+reason, " ")
	said := ranOf.FindString(body)
	if a.tool == "startJob" {
		said = first(jobOf, body)
	}
	switch {
	case err != nil:
		a.how, a.why = silent, brief(err)
	case said != "" && code == "":
		a.how, a.said = ran, said
	case code == "tool_error" && a.tool != "plan.run":
		a.how, a.said = failed, "failed"
	case code == "" && (strings.Contains(body, `"ok":true`) || strings.Contains(body, `"complete"`)):
		a.how, a.why = ran, ""
	case unclear(code, reason):
		a.how = unknown
	default:
		a.how = refused
	}
}

// unclear reports whether an error leaves open what was done.
func unclear(code, reason string) bool {
	switch reason {
	case "worker_gone", "idempotency_unknown", "store_unclear", "shutdown":
		return true
	}
	return code == "timeout" || code == "crash" || code == "cancelled" || code == "internal" || code == "protocol"
}

// brief says of which sort an error is.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+1:]
}
