package matrix

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

// The tools of another Toolpost carry everything, because both sides speak their own format.

func natsNode() *runner {
	return &runner{
		name: "NATS node", about: "another Toolpost, over NATS",
		sources: func(h *house) string {
			return fmt.Sprintf("- {name: far, protocol: singularity, url: %q, token_env: %s}\n", h.remote.nats, tokenEnv)
		},
		where: in("far", "echo", "fail", "hang", "wait", "ask", "report", "patch", "asset", "choose", "large", "danger"),
		patch: `{"torch":{"lit":true}}`,
	}
}

func restNode() *runner {
	return &runner{
		name: "HTTP node", about: "another Toolpost, over HTTP",
		sources: func(h *house) string {
			return fmt.Sprintf("- {name: web, protocol: rest, url: %q, token_env: %s}\n", h.remote.http, tokenEnv)
		},
		where: in("web", "echo", "fail", "hang", "wait", "ask", "report", "patch", "asset", "choose", "large", "danger"),
		patch: `{"torch":{"lit":true}}`,
	}
}

// A server that speaks only the contract is called in one of its two styles.

func natsPlain() *runner {
	return &runner{
		name: "NATS server, plain", about: "a server that speaks the contract, asked with plain arguments",
		sources: contractSource("plain"), where: contractTool("plain"), carries: contractCarries(),
	}
}

func natsToolCall() *runner {
	return &runner{
		name: "NATS server, tool_call", about: "a server that speaks the contract, asked with tool calls",
		sources: contractSource("tool_call"), where: contractTool("tool_call"), carries: contractCarries(),
	}
}

func contractTool(style string) func(string) string {
	return in("contract-"+style, "echo", "fail", "hang", "wait", "large", "danger")
}

func contractCarries() carries {
	const reply = "the contract has one reply for a request, "
	return carries{
		reason:   {never, "an error of the contract is one of five types and a sentence"},
		progress: {never, reply + "and lists progress among its future enhancements"},
		state:    {never, reply + "and no state"},
		asset:    {never, reply + "and no assets"},
		choice:   {never, reply + "and no events by which a tool offers choices"},
		question: {never, reply + "and nobody to ask"},
	}
}

func contractSource(style string) func(*house) string {
	return func(h *house) string {
		tools := []string{
			"{name: echo, subject: contract.echo, input: " + echoInput + "}",
			"{name: fail, subject: contract.fail}", "{name: wait, subject: contract.wait}", "{name: large, subject: contract.large}",
			"{name: hang, subject: contract.hang, timeout: " + hangFor + "}",
			"{name: danger, subject: contract.danger, tier: 3}",
		}
		return fmt.Sprintf("- {name: contract-%s, protocol: singularity, url: %q, token_env: %s, style: %s, tools: [%s]}\n",
			style, h.remote.nats, tokenEnv, style, strings.Join(tools, ", "))
	}
}

// serveContract is a server that knows the contract and nothing of Toolpost. It answers each request in its style.
func serveContract(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Token(token), nats.Timeout(time.Minute))
	kit.OK(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.Subscribe("contract.*", func(m *nats.Msg) {
		if body := contractReply(strings.TrimPrefix(m.Subject, "contract."), m.Data); body != nil {
			_ = m.Respond(body) // a client that is gone does not wait for it
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	kit.OK(t, err)
}

func contractReply(name string, body []byte) []byte {
	var call struct {
		ID       *string `json:"tool_call_id"`
		Function struct {
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	_ = strictjson.Unmarshal(body, &call) // plain arguments may be of any form
	args := json.RawMessage(body)
	if call.ID != nil {
		args = json.RawMessage(call.Function.Arguments)
	}
	data, problem := contractCall(name, args)
	if name == "hang" || name == "wait" {
		return nil
	}
	var reply any = map[string]any{"data": data, "error": nil}
	switch {
	case call.ID != nil && problem != "":
		reply = map[string]any{"tool_call_id": call.ID, "role": "tool", "name": name, "content": "Error: " + problem}
	case call.ID != nil:
		reply = map[string]any{"tool_call_id": call.ID, "role": "tool", "name": name, "content": string(data)}
	case problem != "":
		reply = map[string]any{"data": nil, "error": problem}
	}
	b, _ := strictjson.Marshal(reply) // made of JSON
	return b
}

func contractCall(name string, args json.RawMessage) (data json.RawMessage, problem string) {
	switch name {
	case "echo":
		return args, ""
	case "fail":
		var said struct {
			Message string `json:"message"`
		}
		_ = strictjson.Unmarshal(args, &said) // the tests send valid arguments
		return nil, said.Message
	case "large":
		return json.RawMessage(`{"text":"` + strings.Repeat("x", oneMiB) + `"}`), ""
	}
	return nil, "SystemError: no tool " + name
}
