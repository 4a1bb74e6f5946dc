package matrix

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

const contentText = "the content of a result is text: structured output arrives as JSON text, and as it is in structuredContent"

const skillNoAsk = "the contract has nothing by which a skill asks: the error says what the tool asks"

func skillOneDoor() *door {
	const line = "the contract has no way from a skill to its host: "
	return &door{
		name: "skill v1", about: "`toolpost as alphahuman`, to a host of the contract",
		call: callSkill(hostOne()), word: code, sessions: true,
		carries: carries{
			output: {asText, contentText}, large: {asText, contentText},
			progress: {asLine, line + "progress goes to stderr"},
			logs:     {asLine, line + "log messages go to stderr"},
			state:    {asLine, line + "a state patch goes to stderr"},
			asset:    {asLine, line + "an asset goes to stderr"},
			choice:   {asLine, line + "choices go to stderr"},
			question: {asError, skillNoAsk},
		},
	}
}

func skillTwoDoor() *door {
	return &door{
		name: "skill v2", about: "`toolpost as alphahuman`, to a host of the second generation",
		call: callSkill(hostTwo()), word: code, sessions: true,
		carries: carries{output: {asText, contentText}, large: {asText, contentText}, question: {asError, skillNoAsk}},
	}
}

// A skillHost holds the differences between the generations.
type skillHost struct {
	introduce, session, shutdown string                                   // methods
	content                      func(*testing.T, json.RawMessage) string // the text of a result
}

func hostOne() skillHost {
	return skillHost{"initialize", "lifecycle/onSessionStart", "shutdown", func(t *testing.T, raw json.RawMessage) string {
		return read[string](t, raw)
	}}
}

func hostTwo() skillHost {
	return skillHost{"tools/list", "skill/sessionStart", "skill/shutdown", func(t *testing.T, raw json.RawMessage) string {
		blocks := read[[]struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}](t, raw)
		if len(blocks) != 1 || blocks[0].Type != "text" {
			t.Errorf("content is not a block of text: %.300s", raw)
			return ""
		}
		return blocks[0].Text
	}}
}

// A rpcMessage is a line in either direction.
type rpcMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
		Data    struct {
			Code string `json:"code"`
		} `json:"data"`
	} `json:"error,omitempty"`
}

// callSkill has one conversation: introduce, open a session, call, shut down.
func callSkill(k skillHost) func(*testing.T, *house, *runner, request) *outcome {
	return func(t *testing.T, h *house, r *runner, req request) *outcome {
		name := regexp.MustCompile(`[^a-zA-Z0-9_-]`).ReplaceAllString(h.published(t, r, req.tool), "_")
		c := openSkill(req.ctx, t, h)
		defer c.close()
		out := &outcome{}
		c.offered(c.ask(k.introduce, `{}`, out), name)
		c.ask(k.session, `{"sessionId":`+quoted(req.session)+`}`, out)
		answer := c.ask("tools/call", `{"name":`+quoted(name)+`,"arguments":`+req.args+`}`, out)
		if req.gone() {
			return out
		}
		c.ask(k.shutdown, `{}`, out)
		c.take(k, answer, out)
		c.ended.Wait()
		out.lines = strings.Split(c.log.String(), "\n")
		return out
	}
}

// offered checks that the tool is among those with which the skill introduces itself.
func (c *skillTalk) offered(m rpcMessage, name string) {
	list := read[struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}](c.t, m.Result)
	for _, offer := range list.Tools {
		if offer.Name == name {
			return
		}
	}
	c.t.Errorf("%s is not offered: %.300s", name, m.Result)
}

// take reads the answer to tools/call.
func (c *skillTalk) take(k skillHost, m rpcMessage, out *outcome) {
	if m.Error != nil {
		out.class, out.message = m.Error.Data.Code, m.Error.Message
		return
	}
	result := read[struct {
		Content    json.RawMessage `json:"content"`
		IsError    bool            `json:"isError"`
		Structured json.RawMessage `json:"structuredContent"`
		Error      struct {
			Reason string `json:"reason"`
		} `json:"error"`
	}](c.t, m.Result)
	words := k.content(c.t, result.Content)
	if out.ok = !result.IsError; !out.ok {
		out.class, out.message, out.reason = string(tool.CodeToolError), words, result.Error.Reason
		return
	}
	if result.Structured != nil && len(words) < oneMiB && !reflect.DeepEqual(decode(c.t, result.Structured), decode(c.t, []byte(words))) {
		c.t.Errorf("structuredContent and content differ: %.300s, %.300s", result.Structured, words)
	}
	out.output = encode(c.t, words)
}

// A skillTalk is a host's end of the pipes.
type skillTalk struct {
	t     *testing.T
	ctx   context.Context
	in    *io.PipeWriter
	lines *bufio.Scanner
	log   bytes.Buffer
	last  int
	ended sync.WaitGroup
}

func openSkill(ctx context.Context, t *testing.T, h *house) *skillTalk {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	c := &skillTalk{t: t, ctx: ctx, in: stdin, lines: bufio.NewScanner(stdout)}
	c.lines.Buffer(nil, 16<<20)
	c.ended.Go(func() {
		h.serveAs(ctx, t, node.Stdio{In: in, Out: out, Log: &c.log}, "alphahuman")
		_ = out.Close() // never fails
	})
	return c
}

func (c *skillTalk) close() {
	_ = c.in.Close() // never fails
	c.ended.Wait()
}

// ask sends a request and reads until its answer arrives. It answers requests of the skill in the meantime.
func (c *skillTalk) ask(method, params string, out *outcome) rpcMessage {
	c.last++
	id := encode(c.t, c.last)
	c.send(rpcMessage{ID: id, Method: method, Params: json.RawMessage(params)})
	for c.lines.Scan() {
		m := read[rpcMessage](c.t, bytes.Clone(c.lines.Bytes()))
		switch {
		case m.Method == "state/get":
			c.send(rpcMessage{ID: m.ID, Result: json.RawMessage(`{"state":{}}`)})
		case m.Method != "":
			c.reverse(m, out)
			c.send(rpcMessage{ID: m.ID, Result: json.RawMessage(`{"ok":true}`)})
		case bytes.Equal(m.ID, id):
			return m
		}
	}
	if c.ctx.Err() == nil {
		c.t.Errorf("no answer to %s: %v", method, c.lines.Err())
	}
	return rpcMessage{}
}

func (c *skillTalk) send(m rpcMessage) {
	m.Version = "2.0"
	kit.Check(c.t, kit.Err(c.in.Write(append(encode(c.t, m), '\n'))), "the skill does not read")
}

// reverse handles a message of a second-generation skill to its host.
func (c *skillTalk) reverse(m rpcMessage, out *outcome) {
	said := read[struct {
		EventType string          `json:"eventType"`
		Data      json.RawMessage `json:"data"`
		Partial   json.RawMessage `json:"partial"`
	}](c.t, m.Params)
	switch m.Method {
	case "state/set":
		out.add(c.t, tool.KindStatePatch, said.Partial)
	case "intelligence/emitEvent":
		if kind := tool.Kind(said.EventType); kind == choosing { // an event with its own name
			out.add(c.t, tool.KindUIEvent, encode(c.t, tool.UIEvent{Event: choosing, Payload: said.Data}))
		} else {
			out.add(c.t, kind, said.Data)
		}
	default:
		c.t.Errorf("a skill asks its host for %s", m.Method)
	}
}
