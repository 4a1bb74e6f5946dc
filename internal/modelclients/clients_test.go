package modelclients_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	claude "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"toolpost/internal/kit"
	"toolpost/internal/scripted"
)

// A talk is one way of an official client to call a model. It returns the answer: its text, the names of the calls that
// are left to the caller, and why it stopped.
type talk func(ctx context.Context, h *scripted.House, model string, own ...string) (said, error)

type said struct {
	text   string
	calls  string
	finish string
	tokens int64
}

func openAI(h *scripted.House) openai.Client {
	return openai.NewClient(option.WithBaseURL(h.URL+"/v1"), option.WithAPIKey(scripted.Token), option.WithMaxRetries(0))
}

func chatParams(model string, own []string) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."),
			openai.UserMessage("Go.")},
	}
	for _, name := range own {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: name, Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{}},
		}))
	}
	return p
}

func saidIn(c openai.ChatCompletion) said {
	s := said{text: c.Choices[0].Message.Content, finish: c.Choices[0].FinishReason, tokens: c.Usage.TotalTokens}
	for _, call := range c.Choices[0].Message.ToolCalls {
		s.calls += call.Function.Name + call.Function.Arguments
	}
	return s
}

func goChat(ctx context.Context, h *scripted.House, model string, own ...string) (said, error) {
	client := openAI(h)
	c, err := client.Chat.Completions.New(ctx, chatParams(model, own))
	if err != nil {
		return said{}, err
	}
	return saidIn(*c), nil
}

func goChatStream(ctx context.Context, h *scripted.House, model string, own ...string) (said, error) {
	p := chatParams(model, own)
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	client := openAI(h)
	stream := client.Chat.Completions.NewStreaming(ctx, p)
	defer stream.Close()
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			return said{}, errors.New("a chunk does not fit to those before")
		}
	}
	if stream.Err() != nil {
		return said{}, stream.Err()
	}
	return saidIn(all.ChatCompletion), nil
}

func responseParams(model string, own []string) responses.ResponseNewParams {
	p := responses.ResponseNewParams{
		Model: model, Instructions: openai.String("Be brief."), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Go.")},
	}
	for _, name := range own {
		p.Tools = append(p.Tools, responses.ToolParamOfFunction(name, map[string]any{"type": "object",
			"properties": map[string]any{}}, false))
	}
	return p
}

func saidInResponse(r responses.Response) said {
	s := said{text: r.OutputText(), finish: string(r.Status), tokens: r.Usage.TotalTokens}
	for _, item := range r.Output {
		if call, ok := item.AsAny().(responses.ResponseFunctionToolCall); ok {
			s.calls += call.Name + call.Arguments
		}
	}
	return s
}

func goResponse(ctx context.Context, h *scripted.House, model string, own ...string) (said, error) {
	client := openAI(h)
	r, err := client.Responses.New(ctx, responseParams(model, own))
	if err != nil {
		return said{}, err
	}
	return saidInResponse(*r), nil
}

func goResponseStream(ctx context.Context, h *scripted.House, model string, own ...string) (said, error) {
	client := openAI(h)
	stream := client.Responses.NewStreaming(ctx, responseParams(model, own))
	defer stream.Close()
	text, next := "", int64(0)
	for stream.Next() {
		e := stream.Current()
		if e.SequenceNumber != next {
			return said{}, fmt.Errorf("event %d has the number %d", next, e.SequenceNumber)
		}
		next++
		switch e := e.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += e.Delta
		case responses.ResponseFailedEvent:
			return said{}, errors.New(e.Response.Error.Message)
		case responses.ResponseCompletedEvent:
			return checked(text, saidInResponse(e.Response))
		case responses.ResponseIncompleteEvent:
			return checked(text, saidInResponse(e.Response))
		}
	}
	return said{}, errors.Join(stream.Err(), errors.New("the stream ended without its last event"))
}

// checked compares the pieces with the whole.
func checked(pieces string, s said) (said, error) {
	if pieces != s.text {
		return s, fmt.Errorf("the pieces are %q, the whole is %q", pieces, s.text)
	}
	return s, nil
}

func anthropicClient(h *scripted.House) anthropic.Client {
	return anthropic.NewClient(claude.WithBaseURL(h.URL), claude.WithAPIKey(scripted.Token), claude.WithMaxRetries(0))
}

func messageParams(model string, own []string) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{
		Model: model, MaxTokens: 1000, System: []anthropic.TextBlockParam{{Text: "Be brief."}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Go."))},
	}
	for _, name := range own {
		p.Tools = append(p.Tools, anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: map[string]any{}}, name))
	}
	return p
}

func saidInMessage(m anthropic.Message) said {
	s := said{finish: string(m.StopReason), tokens: m.Usage.InputTokens + m.Usage.CacheReadInputTokens + m.Usage.OutputTokens}
	for _, block := range m.Content {
		switch block.Type {
		case "text":
			s.text += block.Text
		case "tool_use":
			s.calls += block.Name + string(block.Input)
		}
	}
	return s
}

func goMessage(ctx context.Context, h *scripted.House, model string, own ...string) (said, error) {
	client := anthropicClient(h)
	m, err := client.Messages.New(ctx, messageParams(model, own))
	if err != nil {
		return said{}, err
	}
	return saidInMessage(*m), nil
}

func goMessageStream(ctx context.Context, h *scripted.House, model string, own ...string) (said, error) {
	client := anthropicClient(h)
	stream := client.Messages.NewStreaming(ctx, messageParams(model, own))
	defer stream.Close()
	var all anthropic.Message
	for stream.Next() {
		if err := all.Accumulate(stream.Current()); err != nil {
			return said{}, err
		}
	}
	if stream.Err() != nil {
		return said{}, stream.Err()
	}
	return saidInMessage(all), nil
}

// ways returns all of them, with each one's terms for why a model stops.
func ways(peer func() *jsPeer) map[string]struct {
	talk
	stops words
} {
	chat := words{"stop", "tool_calls", "length"}
	response := words{"completed", "completed", "incomplete"}
	message := words{"end_turn", "tool_use", "pause_turn"}
	return map[string]struct {
		talk
		stops words
	}{
		"Go, chat": {goChat, chat}, "Go, chat, streamed": {goChatStream, chat},
		"Go, responses": {goResponse, response}, "Go, responses, streamed": {goResponseStream, response},
		"Go, messages": {goMessage, message}, "Go, messages, streamed": {goMessageStream, message},
		"JavaScript, chat": {js(peer, "chat", false), chat}, "JavaScript, chat, streamed": {js(peer, "chat", true), chat},
		"JavaScript, responses": {js(peer, "responses", false), response}, "JavaScript, responses, streamed": {js(peer,
			"responses", true), response},
		"JavaScript, messages": {js(peer, "messages", false), message}, "JavaScript, messages, streamed": {js(peer,
			"messages", true), message},
	}
}

type words struct{ stopped, called, limited string }

// across runs a test for every official client, on every wire, whole and streamed, in front of a model of each API.
func across(t *testing.T, test func(t *testing.T, model string, ask talk, stops words)) {
	for name, way := range ways(newJS(t, "peer.mjs")) {
		for _, model := range []string{"demo", "claude", "newer"} {
			t.Run(name+", "+model, func(t *testing.T) { test(t, model, way.talk, way.stops) })
		}
	}
}

// each is across with models whose API is that of the client.
func each(t *testing.T, test func(t *testing.T, model string, ask talk, stops words)) {
	across(t, func(t *testing.T, model string, ask talk, stops words) {
		if strings.Contains(t.Name(), "messages") != (model == "claude") || strings.Contains(t.Name(), "responses") != (model == "newer") {
			t.Skip("models of the other API are asked in the test of the whole loop")
		}
		test(t, model, ask, stops)
	})
}

// joined returns a text without the separator between the paragraphs of two answers, which not every wire has.
func joined(text string) string { return strings.ReplaceAll(text, "\n\n", "") }

func TestEveryClientRunsTheWholeLoop(t *testing.T) {
	across(t, func(t *testing.T, model string, ask talk, stops words) {
		m := scripted.New(t, scripted.Step{Text: "I look. ", Calls: []scripted.Call{scripted.ReadFile("call_1"), {
			ID: "call_2", Name: "events", Args: `{"count":3}`,
		}}}, scripted.Says("It is called demo."))
		h := scripted.Serve(t, m, "")
		s, err := ask(t.Context(), h, model)
		if err != nil || joined(s.text) != "I look. It is called demo." || s.calls != "" || s.finish != stops.stopped ||
			s.tokens != 220 {
			t.Fatalf("%+v, %v", s, err)
		}
		if second := m.Asked()[1].Text; !strings.Contains(second, `\"name\": \"demo\"`) || !strings.Contains(second,
			"Be brief.") {
			t.Error(second)
		}
		if log := h.Records(); len(log) != 2 || log[0].Run != log[1].Run || log[0].Run == "" {
			t.Errorf("%+v", log)
		}
	})
}

func TestToolErrorsReachTheModelForEveryClient(t *testing.T) {
	each(t, func(t *testing.T, model string, ask talk, stops words) {
		wrong := `{"path":`
		if model == "claude" {
			wrong = `{"path":7}` // its wire can only carry JSON
		}
		m := scripted.New(t, scripted.Calling(
			scripted.Call{ID: "call_1", Name: "readFile", Args: wrong},
			scripted.Call{ID: "call_2", Name: "launchRocket", Args: `{}`},
			scripted.Call{ID: "call_3", Name: "fail", Args: `{"message":"x"}`},
		), scripted.Step{Text: "Paint.", Calls: []scripted.Call{{ID: "call_4", Name: "paint", Args: `{"colour":"red"}`}}})
		h := scripted.Serve(t, m, "")
		s, err := ask(t.Context(), h, model, "paint", "readFile", "fail")
		if err != nil || joined(s.text) != "Paint." || s.calls != `paint{"colour":"red"}` || s.finish != stops.called {
			t.Fatalf("%+v, %v", s, err)
		}
		if got := m.Asked()[0].Tools(); strings.Join(got, " ") != "paint readFile fail" {
			t.Errorf("%v were offered", got)
		}
		second := m.Asked()[1].Text
		for _, want := range []string{"nobody fails here", "launchRocket", "path"} {
			kit.Contains(t, second, want, "the model is not told of")
		}
		if log := h.Records(); len(log) != 3 {
			t.Errorf("%+v", log)
		}
	})
}

func TestEveryClientIsToldOfAModelThatNeverStops(t *testing.T) {
	each(t, func(t *testing.T, model string, ask talk, stops words) {
		m := scripted.New(t).Always(scripted.Calling(scripted.ReadFile("call")))
		h := scripted.Serve(t, m, ", openai: {rounds: 4}")
		s, err := ask(t.Context(), h, model)
		if err != nil || !strings.Contains(s.text, "asked 4 times and still calls tools") || s.finish != stops.limited ||
			len(m.Asked()) != 4 {
			t.Fatalf("%+v, %v after %d", s, err, len(m.Asked()))
		}
	})
}

func TestEveryClientIsToldOfAStreamThatWasCut(t *testing.T) {
	each(t, func(t *testing.T, model string, ask talk, _ words) {
		if !strings.Contains(t.Name(), "streamed") {
			t.Skip("it is about streams")
		}
		m := scripted.New(t, scripted.Calling(scripted.ReadFile("call_1")), scripted.Step{Text: "This is cut off here.",
			Cut: true})
		h := scripted.Serve(t, m, "")
		if s, err := ask(t.Context(), h, model); err == nil || !strings.Contains(err.Error(), "cut off before its end") {
			t.Fatalf("%+v, %v", s, err)
		}
		kit.Equal(t, len(m.Asked()), 2, "it was asked again")
	})
}

func TestAModelThatIsBusyIsAskedAgainForEveryClient(t *testing.T) {
	each(t, func(t *testing.T, model string, ask talk, stops words) {
		busy := scripted.Step{Status: 429, Header: map[string]string{"Retry-After": "0"},
			Body: `{"error":{"message":"slow down"}}`}
		m := scripted.New(t, busy, scripted.Calling(scripted.ReadFile("call_1")), busy, scripted.Says("Now."))
		h := scripted.Serve(t, m, "")
		if s, err := ask(t.Context(), h, model); err != nil || s.text != "Now." || s.finish != stops.stopped {
			t.Fatalf("%+v, %v", s, err)
		}
		// If the server's Retry-After is longer than the remaining time, the client is told when to retry.
		busy.Header = map[string]string{"Retry-After": "3600"}
		m.Then(busy)
		_, err := ask(t.Context(), h, model)
		if err == nil || !strings.Contains(wording(err), "slow down") || !strings.Contains(wording(err), "429") {
			t.Fatal(err)
		}
	})
}

// wording returns the text of an error, including the part that the client for Go keeps separately.
func wording(err error) string {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return err.Error() + e.Message
	}
	return err.Error()
}

func TestEveryCodeHasItsWords(t *testing.T) {
	m := scripted.New(t)
	h := scripted.Serve(t, m, "")
	client := openAI(h)
	_, err := client.Chat.Completions.New(t.Context(), chatParams("other", nil))
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != 404 || e.Code != "model_not_found" ||
		!strings.Contains(e.Message, `no model "other"`) {
		t.Errorf("%#v", err)
	}
	other := anthropicClient(h)
	_, err = other.Messages.New(t.Context(), messageParams("other", nil))
	var body struct{ Error struct{ Type string } }
	if e, ok := errors.AsType[*anthropic.Error](err); !ok || e.StatusCode != 404 || json.Unmarshal([]byte(e.RawJSON()),
		&body) != nil ||
		body.Error.Type != "not_found_error" {
		t.Errorf("%#v", err)
	}
	models, err := client.Models.List(t.Context())
	if err != nil || len(models.Data) != 6 || models.Data[1].ID != "claude" {
		t.Error(models, err)
	}
	list, err := other.Models.List(t.Context(), anthropic.ModelListParams{})
	if err != nil || len(list.Data) != 6 || list.Data[0].ID != "demo" {
		t.Error(list, err)
	}
}
