package matrix

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/protocol/singularity"
	"toolpost/tool"
)

const (
	natsClass  = "the contract has five types of errors: a lease that is missing is AccessDenied"
	natsReason = "an error of the contract is one of five types and a sentence: a tool's failure is SystemError"
	natsAsk    = "a reply of this style has data or an error, and no questions: the error says what the tool asks; " +
		"the native style, between nodes, carries them"
)

func natsPlainDoor() *door {
	return &door{
		name: "NATS, plain", about: "bare arguments at `tools.execute.NAME`, answered with `{data, error}`",
		call: callNATS(plainRequest, plainReply), word: errorType, sessions: true,
		carries: carries{reason: {never, natsReason}, lease: {asClass, natsClass}, question: {asError, natsAsk}},
	}
}

func natsToolCallDoor() *door {
	const text = "the content of a tool response is text: structured output arrives as JSON text"
	return &door{
		name: "NATS, tool_call", about: "an OpenAI tool call at `tools.execute`, answered with `{tool_call_id, role, name, content}`",
		call: callNATS(toolCallRequest, toolCallReply), word: errorType, sessions: true,
		carries: carries{output: {asText, text}, large: {asText, text}, reason: {never, natsReason}, lease: {asClass, natsClass}, question: {asError, natsAsk}},
	}
}

// errorType returns the contract's term.
func errorType(c tool.Code) string {
	switch c {
	case tool.CodeInvalidInput:
		return "InvalidInput"
	case tool.CodeTimeout:
		return "Timeout"
	case tool.CodeLeaseRequired:
		return "AccessDenied"
	}
	return "SystemError"
}

// callNATS makes a request in one of the styles, with the headers that request events and name a session.
func callNATS(write func(t *testing.T, name, args string) (string, []byte), read func(*testing.T, []byte, *outcome)) func(*testing.T, *house, *runner, request) *outcome {
	return func(t *testing.T, h *house, r *runner, req request) *outcome {
		out := &outcome{}
		events, err := h.client.SubscribeSync(nats.NewInbox())
		if err != nil {
			t.Error(err)
			return out
		}
		defer func() { _ = events.Unsubscribe() }()
		id := tool.NewID()
		defer context.AfterFunc(req.ctx, func() { _ = h.client.Publish("toolpost.cancel", []byte(id)) })()
		subject, body := write(t, r.where(req.tool)+"."+req.tool, req.args)
		reply, err := h.client.RequestMsg(&nats.Msg{Subject: subject, Data: body, Header: nats.Header{
			"Toolpost-Call": {id}, "Toolpost-Stream": {events.Subject}, "Toolpost-Session": {strings.ReplaceAll(req.session, " ", "_")},
		}}, time.Minute)
		if err != nil {
			t.Error(err)
			return out
		}
		for waiting, _, _ := events.Pending(); waiting > 0; waiting-- { // every event arrives before the reply
			m, err := events.NextMsg(time.Second)
			if err != nil {
				t.Error(err)
				break
			}
			out.addNative(t, m.Data)
		}
		read(t, reply.Data, out)
		return out
	}
}

func plainRequest(_ *testing.T, name, args string) (string, []byte) {
	return "tools.execute." + singularity.EncodeName(name), []byte(args)
}

func plainReply(t *testing.T, body []byte, out *outcome) {
	reply := read[map[string]json.RawMessage](t, body)
	kit.Equal(t, len(reply), 2, "the reply is not {data, error}: %.300s", body)
	if out.ok = string(reply["error"]) == "null"; out.ok {
		out.output = reply["data"]
		return
	}
	kit.Equal(t, string(reply["data"]), "null", "the reply has data beside its error: %.300s", body)
	words := read[string](t, reply["error"])
	out.class, out.message, _ = strings.Cut(words, ": ")
}

const callID = "call_abc123"

func toolCallRequest(t *testing.T, name, args string) (string, []byte) {
	return "tools.execute", encode(t, map[string]any{
		"tool_call_id": callID, "function": map[string]any{"name": name, "arguments": args},
	})
}

func toolCallReply(t *testing.T, body []byte, out *outcome) {
	reply := read[struct {
		ID      string `json:"tool_call_id"`
		Role    string `json:"role"`
		Name    string `json:"name"`
		Content string `json:"content"`
	}](t, body)
	if reply.ID != callID || reply.Role != "tool" || reply.Name == "" {
		t.Errorf("the reply is not the contract's tool response: %.300s", body)
	}
	words, failed := strings.CutPrefix(reply.Content, "Error: ")
	if out.ok = !failed; out.ok {
		out.output = encode(t, reply.Content)
		return
	}
	out.class, out.message, _ = strings.Cut(words, ": ")
}
