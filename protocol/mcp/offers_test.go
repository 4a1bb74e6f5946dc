package mcp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/policy"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// newLibrary is a server of the official SDK for Go with all that a server can have beside tools. Two of its tools change
// what it has: touch a note, and grow what is listed.
func newLibrary() *sdk.Server {
	accept := func(context.Context, *sdk.SubscribeRequest) error { return nil }
	s := sdk.NewServer(&sdk.Implementation{Name: "library", Version: "1"}, &sdk.ServerOptions{
		SubscribeHandler:   accept,
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			value := r.Params.Ref.Type + " " + r.Params.Ref.Name + r.Params.Ref.URI + " " + r.Params.Argument.Name + "=" + r.Params.Argument.Value
			if r.Params.Context != nil {
				value += fmt.Sprint(r.Params.Context.Arguments)
			}
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{value, "a\u200bb"}, Total: 7, HasMore: true}}, nil
		},
	})
	read := func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		_ = r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "critical", Logger: "shelf", Data: map[string]any{"read": r.Params.URI}})
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: "text of " + r.Params.URI}}}, nil
	}
	s.AddResource(&sdk.Resource{URI: "mem://note", Name: "note", Title: "A note", Description: "d", MIMEType: "text/plain", Size: 5, Annotations: &sdk.Annotations{Priority: 0.5}}, read)
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "mem://notes/{id}", Name: "notes"}, read)
	write := func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
			{Role: "assistant", Content: &sdk.TextContent{Text: "review " + r.Params.Arguments["language"]}},
			{Role: "user", Content: &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "mem://note", Text: "x"}}},
		}}, nil
	}
	s.AddPrompt(&sdk.Prompt{Name: "review", Title: "Review", Description: "reviews", Arguments: []*sdk.PromptArgument{
		{Name: "language", Description: "which", Required: true}, {Name: "style"},
	}}, write)
	sdk.AddTool(s, &sdk.Tool{Name: "touch"}, func(ctx context.Context, _ *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "ok"}}}, nil, s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: "mem://note"})
	})
	sdk.AddTool(s, &sdk.Tool{Name: "grow"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		s.AddPrompt(&sdk.Prompt{Name: "grown"}, write)
		s.AddResource(&sdk.Resource{URI: "mem://grown", Name: "grown"}, read)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "ok"}}}, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "link"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.ResourceLink{URI: "mem://note", Name: "note"}, &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "mem://notes/1", Text: "one"}},
		}}, nil, nil
	})
	return s
}

// served gives the address of a server over HTTP.
func served(t *testing.T, s *sdk.Server, era string) string {
	t.Helper()
	front := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s },
		&sdk.StreamableHTTPOptions{Stateless: era == "modern"}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	return front.URL
}

// engineOf has MCP servers as sources, under a policy.
func engineOf(t *testing.T, rules string, sources map[string]string) *engine.Engine {
	t.Helper()
	var o policy.Options
	if err := config.DecodeYAML("policy.yaml", []byte(rules), &o); err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(o, policy.Env{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Options{Policy: func() *policy.Policy { return p }})
	var all []engine.Binding
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range sources {
			if !yield(name) {
				return
			}
		}
	}) {
		r, err := mcp.Open(t.Context(), sourceOf(t, t.TempDir(), sources[name], nil), discard())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, engine.Binding{Name: name, Protocol: "mcp", Runner: r, Upstream: true})
	}
	e.Replace(t.Context(), all)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

// clientOf connects the official client of an era with a door in front of an engine.
func clientOf(t *testing.T, over, version string, e *engine.Engine, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	var way sdk.Transport
	if over == "http" {
		way = &sdk.StreamableClientTransport{Endpoint: serveHTTP(t, mcp.Options{}, e, e), HTTPClient: httpClient(t), MaxRetries: -1}
	} else {
		toDoor, in := io.Pipe()
		out, fromDoor := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- (&mcp.Door{In: toDoor, Out: fromDoor, Caller: tool.Principal{ID: "ada", Door: "mcp"}}).Serve(context.Background(), e, e)
			_ = fromDoor.Close()
		}()
		t.Cleanup(func() { _ = in.Close(); <-ended })
		way = &sdk.IOTransport{Reader: out, Writer: in}
	}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), way, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// awaits waits for something that must come.
func awaits[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
	return got
}

const notes = "toolpost://sources/one/mem://"

// An MCP client behind the door has what MCP servers offer beside tools as it would have it from them, whichever the eras
// of the client and the server, and however the client comes.
func TestWhatServersHaveBesideToolsIsOfferedOn(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, upstream := range []string{"modern", "legacy"} {
		for _, version := range []string{"2026-07-28", "2025-11-25"} {
			for _, over := range []string{"http", "stdio"} {
				t.Run(fmt.Sprintf("%s server, %s client over %s", upstream, version, over), func(t *testing.T) {
					useLibrary(t, upstream, version, over)
				})
			}
		}
	}
}

func useLibrary(t *testing.T, era, version, over string) {
	updated, prompts, resources := make(chan string, 10), make(chan bool, 10), make(chan bool, 10)
	logged := make(chan *sdk.LoggingMessageParams, 10)
	e := engineOf(t, "", map[string]string{
		"one": fmt.Sprintf("url: %q, era: %s", served(t, newLibrary(), era), era),
		"two": fmt.Sprintf("url: %q, era: %s", served(t, newLibrary(), era), era),
	})
	s := clientOf(t, over, version, e, &sdk.ClientOptions{
		ResourceUpdatedHandler:     func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
		PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { prompts <- true },
		ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { resources <- true },
		LoggingMessageHandler:      func(_ context.Context, r *sdk.LoggingMessageRequest) { logged <- r.Params },
	})
	t.Run("lists", func(t *testing.T) { listsAll(t, s) })
	t.Run("reads", func(t *testing.T) { readsAll(t, s, logged) })
	t.Run("prompts", func(t *testing.T) { prompted(t, s) })
	t.Run("completes", func(t *testing.T) { completes(t, s) })
	t.Run("subscribes", func(t *testing.T) {
		if err := s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: notes + "note"}); err != nil {
			t.Fatal(err)
		}
		for got := ""; got == ""; { // this client does not wait until its subscription is acknowledged
			for _, name := range []string{"two_touch", "touch"} { // what happens in the other source is not told
				if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name}); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case got = <-updated:
			case <-time.After(100 * time.Millisecond):
			}
			if got != "" && got != notes+"note" {
				t.Errorf("%s has changed", got)
			}
		}
	})
	t.Run("tells of new ones", func(t *testing.T) {
		for len(prompts)+len(resources) > 0 { // those from the beginning
			select {
			case <-prompts:
			case <-resources:
			}
		}
		if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "grow"}); err != nil {
			t.Fatal(err)
		}
		awaits(t, "prompts/list_changed", prompts)
		awaits(t, "resources/list_changed", resources)
		if got, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "grown"}); err != nil || len(got.Messages) != 2 {
			t.Errorf("the new prompt: %+v, %v", got, err)
		}
	})
}

func listsAll(t *testing.T, s *sdk.ClientSession) {
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range tools.Tools {
		if strings.Contains(one.Name, "prompts") || strings.Contains(one.Name, "resources") || strings.Contains(one.Name, "completion") {
			t.Errorf("%s is listed as a tool", one.Name)
		}
	}
	list, err := s.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	one := list.Resources[0]
	if one.URI != notes+"note" || one.Name != "note" || one.Title != "A note" || one.Description != "d" || one.MIMEType != "text/plain" ||
		one.Size != 5 || one.Annotations == nil || one.Annotations.Priority != 0.5 {
		t.Errorf("the resource is %+v", one)
	}
	templates, err := s.ListResourceTemplates(t.Context(), nil)
	if err != nil || !slices.ContainsFunc(templates.ResourceTemplates, func(one *sdk.ResourceTemplate) bool {
		return one.URITemplate == notes+"notes/{id}" && one.Name == "notes"
	}) {
		t.Errorf("%+v, %v", templates, err)
	}
	offered, err := s.ListPrompts(t.Context(), nil)
	if err != nil || len(offered.Prompts) != 2 {
		t.Fatalf("%+v, %v", offered, err)
	}
	p := offered.Prompts[0]
	if p.Name != "review" || offered.Prompts[1].Name != "two.review" || p.Title != "Review" || p.Description != "reviews" ||
		len(p.Arguments) != 2 || p.Arguments[0].Name != "language" || !p.Arguments[0].Required || p.Arguments[1].Required {
		t.Errorf("the prompts are %+v and %+v", p, offered.Prompts[1])
	}
}

func readsAll(t *testing.T, s *sdk.ClientSession, logged <-chan *sdk.LoggingMessageParams) {
	legacy := s.InitializeResult().ProtocolVersion < "2026"
	if legacy {
		if err := s.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "critical"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, uri := range []string{"note", "notes/7"} {
		params := &sdk.ReadResourceParams{URI: notes + uri}
		if !legacy {
			params.Meta = sdk.Meta{"io.modelcontextprotocol/logLevel": "critical"}
		}
		got, err := s.ReadResource(t.Context(), params)
		if err != nil || len(got.Contents) != 1 || got.Contents[0].URI != notes+uri || got.Contents[0].Text != "text of mem://"+uri {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
		said := awaits(t, "the server's message", logged)
		if said.Level != "critical" || said.Logger != "shelf" || fmt.Sprint(said.Data) != "map[read:mem://"+uri+"]" {
			t.Errorf("the server said %+v", said)
		}
	}
	for _, uri := range []string{notes + "none", "toolpost://sources/one/", "toolpost://sources/none/mem://note", "toolpost://sources/one/no uri"} {
		if _, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s can be read", uri)
		}
	}
	linked, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "link"})
	if err != nil || len(linked.Content) != 2 {
		t.Fatalf("%+v, %v", linked, err)
	}
	if got := linked.Content[0].(*sdk.ResourceLink).URI; got != notes+"note" {
		t.Errorf("the link is %s", got)
	}
	if got := linked.Content[1].(*sdk.EmbeddedResource).Resource; got.URI != notes+"notes/1" || got.Text != "one" {
		t.Errorf("the resource in it is %+v", got)
	}
}

func prompted(t *testing.T, s *sdk.ClientSession) {
	for name, prefix := range map[string]string{"review": notes, "two.review": strings.Replace(notes, "one", "two", 1)} {
		got, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: name, Arguments: map[string]string{"language": "go"}})
		if err != nil || len(got.Messages) != 2 || got.Messages[0].Role != "assistant" || got.Messages[0].Content.(*sdk.TextContent).Text != "review go" {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if uri := got.Messages[1].Content.(*sdk.EmbeddedResource).Resource.URI; uri != prefix+"note" {
			t.Errorf("the resource of %s is %s", name, uri)
		}
	}
	if _, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "review"}); err == nil {
		t.Error("a prompt is written without an argument that it needs")
	}
}

func completes(t *testing.T, s *sdk.ClientSession) {
	for want, ref := range map[string]*sdk.CompleteReference{
		"ref/prompt review a=vmap[x:y]":             {Type: "ref/prompt", Name: "two.review"},
		"ref/resource mem://notes/{id} a=vmap[x:y]": {Type: "ref/resource", URI: notes + "notes/{id}"},
	} {
		got, err := s.Complete(t.Context(), &sdk.CompleteParams{
			Ref: ref, Argument: sdk.CompleteParamsArgument{Name: "a", Value: "v"}, Context: &sdk.CompleteContext{Arguments: map[string]string{"x": "y"}},
		})
		if err != nil || !slices.Equal(got.Completion.Values, []string{want}) || got.Completion.Total != 7 || !got.Completion.HasMore {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}
