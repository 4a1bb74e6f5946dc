package door_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/pin"
	"toolpost/engine/policy"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/protocol/mcp/mcptest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// newLibrary returns a server of the official SDK for Go with everything that a server can have besides tools. Two of
// its tools change that: touch changes a note, and grow adds to the lists.
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
		//nolint:staticcheck // what is deprecated is in the field, and asked for
		for _, level := range []sdk.LoggingLevel{"debug", "critical"} {
			_ = r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: level, Logger: "shelf", Data: map[string]any{"read": r.Params.URI}})
		}
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

// served serves a server over HTTP and returns its address.
func served(t *testing.T, s *sdk.Server, era string) string {
	t.Helper()
	front := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s },
		&sdk.StreamableHTTPOptions{Stateless: era == "modern"}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	return front.URL
}

// engineOf returns an engine with MCP servers as sources, under a policy.
func engineOf(t *testing.T, rules string, sources map[string]string) *engine.Engine {
	t.Helper()
	return engineWith(t, engine.Options{}, rules, sources)
}

func engineWith(t *testing.T, with engine.Options, rules string, sources map[string]string) *engine.Engine {
	t.Helper()
	var o policy.Options
	kit.OK(t, config.DecodeYAML("policy.yaml", []byte(rules), &o))
	p := kit.Must(policy.New(o, policy.Env{Dir: t.TempDir()}))(t)
	with.Policy = func() *policy.Policy { return p }
	e := engine.New(with)
	var all []engine.Binding
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		all = append(all, bound(t, name, sources[name]))
	}
	e.Replace(t.Context(), all)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Hang)
		defer cancel()
		kit.Check(t, e.Close(ctx))
	})
	return e
}

func bound(t *testing.T, name, fields string) engine.Binding {
	t.Helper()
	return engine.Binding{Name: name, Protocol: "mcp", Runner: runnerOf(t, fields), Upstream: true}
}

// clientOf connects the official client of an era with a door in front of an engine.
func clientOf(t *testing.T, over, version string, e *engine.Engine, o *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	var way sdk.Transport
	if over == "http" {
		way = &sdk.StreamableClientTransport{Endpoint: serveHTTP(t, door.Options{}, e, e), HTTPClient: httpClient(t), MaxRetries: -1}
	} else {
		toDoor, in := io.Pipe()
		out, fromDoor := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- (&door.Door{In: toDoor, Out: fromDoor, Caller: tool.Principal{ID: "ada", Door: "mcp"}}).Serve(context.Background(), e, e)
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

const notes = "toolpost://sources/one/mem://"

// untilUpdated calls tools that change the note, again and again, until a client is notified.
func untilUpdated(t *testing.T, s *sdk.ClientSession, updated <-chan string, tools ...string) {
	t.Helper()
	kit.Eventually(t, "resources/updated", func() bool {
		for _, name := range tools {
			kit.OK(t, kit.Err(s.CallTool(t.Context(), &sdk.CallToolParams{Name: name})))
		}
		select {
		case got := <-updated:
			kit.Equal(t, got, notes+"note", "the changed resource")
			return true
		case <-time.After(100 * time.Millisecond): // then it is called again
			return false
		}
	})
}

// An MCP client behind the door gets the prompts and resources of MCP servers as it would get them directly, whatever
// the eras of the client and the server and the transport of the client.
func TestPromptsAndResourcesOfServersAreOffered(t *testing.T) {
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

//nolint:staticcheck // what is deprecated is in the field, and asked for
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
		kit.OK(t, s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: notes + "note"}))
		// This client does not wait for the acknowledgement of its subscription. Changes in the other source are not
		// reported.
		untilUpdated(t, s, updated, "two_touch", "touch")
	})
	t.Run("tells of new ones", func(t *testing.T) {
		for len(prompts)+len(resources) > 0 { // those from the beginning
			select {
			case <-prompts:
			case <-resources:
			}
		}
		kit.OK(t, kit.Err(s.CallTool(t.Context(), &sdk.CallToolParams{Name: "grow"})))
		kit.Receive(t, "prompts/list_changed", prompts)
		kit.Receive(t, "resources/list_changed", resources)
		if got, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "grown"}); err != nil || len(got.Messages) != 2 {
			t.Errorf("the new prompt: %+v, %v", got, err)
		}
	})
}

func listsAll(t *testing.T, s *sdk.ClientSession) {
	tools := kit.Must(s.ListTools(t.Context(), nil))(t)
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

//nolint:staticcheck // what is deprecated is in the field, and asked for
func readsAll(t *testing.T, s *sdk.ClientSession, logged <-chan *sdk.LoggingMessageParams) {
	legacy := s.InitializeResult().ProtocolVersion < "2026"
	for _, one := range []struct {
		uri   string
		level sdk.LoggingLevel
		heard []sdk.LoggingLevel
	}{
		{"note", "critical", []sdk.LoggingLevel{"critical"}}, {"notes/7", "debug", []sdk.LoggingLevel{"debug", "critical"}},
		{"notes/8", "info", []sdk.LoggingLevel{"critical"}},
	} {
		uri, params := one.uri, &sdk.ReadResourceParams{URI: notes + one.uri}
		if legacy {
			kit.OK(t, s.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: one.level}))
		} else {
			params.Meta = sdk.Meta{"io.modelcontextprotocol/logLevel": string(one.level)}
		}
		got, err := s.ReadResource(t.Context(), params)
		if err != nil || len(got.Contents) != 1 || got.Contents[0].URI != notes+uri || got.Contents[0].Text != "text of mem://"+uri {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
		for _, level := range one.heard {
			said := kit.Receive(t, "the server's message", logged)
			if said.Level != level || said.Logger != "shelf" || fmt.Sprint(said.Data) != "map[read:mem://"+uri+"]" {
				t.Errorf("a client that wants %s heard %+v", one.level, said)
			}
		}
	}
	for _, uri := range []string{notes + "none", "toolpost://sources/one/", "toolpost://sources/none/mem://note", "toolpost://sources/one/no uri"} {
		kit.Fails(t, kit.Err(s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})), "", "%s can be read", uri)
	}
	linked, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "link"})
	if err != nil || len(linked.Content) != 2 {
		t.Fatalf("%+v, %v", linked, err)
	}
	kit.Equal(t, linked.Content[0].(*sdk.ResourceLink).URI, notes+"note", "the link")
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
		kit.Equal(t, got.Messages[1].Content.(*sdk.EmbeddedResource).Resource.URI,
			prefix+"note", "the resource of %s", name)
	}
	kit.Fails(t, kit.Err(s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "review"})),
		"", "a prompt is written without an argument that it needs")
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

// The official test server offers the same behind our door as in front of it.
func TestPromptsAndResourcesOfTheOfficialServerAreOffered(t *testing.T) {
	tooltest.NoLeaks(t)
	e := engineOf(t, "", map[string]string{"all": mcptest.NPM(t, "@modelcontextprotocol/server-everything/dist/index.js", "", "stdio")})
	for over, version := range map[string]string{"http": "2026-07-28", "stdio": "2025-11-25"} {
		t.Run(version+" over "+over, func(t *testing.T) {
			updated := make(chan string, 100)
			s := clientOf(t, over, version, e, &sdk.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
			})
			list, err := s.ListResources(t.Context(), nil)
			if err != nil || len(list.Resources) < 5 {
				t.Fatalf("%+v, %v", list, err)
			}
			links, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "get-resource-links", Arguments: map[string]any{"count": 2}})
			if err != nil || len(links.Content) != 3 {
				t.Fatalf("%+v, %v", links, err)
			}
			for _, uri := range []string{list.Resources[0].URI, links.Content[1].(*sdk.ResourceLink).URI, links.Content[2].(*sdk.ResourceLink).URI} {
				if got, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err != nil || got.Contents[0].URI != uri {
					t.Errorf("%s: %+v, %v", uri, got, err)
				}
			}
			templates, err := s.ListResourceTemplates(t.Context(), nil)
			if err != nil || len(templates.ResourceTemplates) < 4 { // two of them are ours
				t.Errorf("%+v, %v", templates, err)
			}
			prompt, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "args-prompt", Arguments: map[string]string{"city": "Rome"}})
			if err != nil || !strings.Contains(prompt.Messages[0].Content.(*sdk.TextContent).Text, "Rome") {
				t.Errorf("%+v, %v", prompt, err)
			}
			names, err := s.Complete(t.Context(), &sdk.CompleteParams{
				Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"}, Argument: sdk.CompleteParamsArgument{Name: "name", Value: "A"},
				Context: &sdk.CompleteContext{Arguments: map[string]string{"department": "Engineering"}},
			})
			if err != nil || !slices.Equal(names.Completion.Values, []string{"Alice"}) {
				t.Errorf("%+v, %v", names, err)
			}
			uri := list.Resources[0].URI
			kit.OK(t, s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}))
			if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "toggle-subscriber-updates"}); err != nil { // one every 5 s
				t.Fatal(err)
			}
			kit.Equal(t, kit.Receive(t, "resources/updated", updated), uri, "has changed")
			kit.OK(t, kit.Err(s.CallTool(t.Context(), &sdk.CallToolParams{Name: "toggle-subscriber-updates"})))
			roots, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "get-roots-list"}) // listed only for clients with roots
			if err != nil || !strings.Contains(textOf(roots), "file:///") {
				t.Errorf("%+v, %v", roots, err)
			}
		})
	}
}

// A server with endless lists, hidden characters and arbitrary content harms neither its own tool nor a client.
func TestServersWithHostileOffers(t *testing.T) {
	tooltest.NoLeaks(t)
	path := mcptest.Path(t, "py", "offers.py")
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			e := engineOf(t, "", map[string]string{
				"bad": fmt.Sprintf("command: [%q, -B, %q, %s], dir: %q, max_message: 2000000", tooltest.Python(), path, era, filepath.Dir(path)),
			})
			prompts := 0
			for spec := range e.Offers(t.Context(), tool.Principal{ID: "ada"}) {
				if prompts += strings.Count(spec.Name, "prompts/"); spec.Method == "resources/read" {
					offeredSafely(t, spec.Resources)
				}
			}
			kit.Equal(t, prompts, 1, "prompts offered")
			updated := make(chan string, 100)
			s := clientOf(t, "http", "2026-07-28", e, &sdk.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
			})
			const bad = "toolpost://sources/bad/x://"
			for _, name := range []string{"shape", "empty", "giant"} {
				kit.Fails(t, kit.Err(s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: bad + name})),
					"", "%s can be read", name)
			}
			if got, err := s.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "good"}); err == nil && len(got.Messages) > 0 {
				t.Errorf("%+v", got)
			}
			ref := &sdk.CompleteReference{Type: "ref/prompt", Name: "good"}
			if got, err := s.Complete(t.Context(), &sdk.CompleteParams{Ref: ref}); err != nil || len(got.Completion.Values) != 100 || !got.Completion.HasMore {
				t.Errorf("%+v, %v", got, err)
			}
			kit.OK(t, s.Subscribe(t.Context(), &sdk.SubscribeParams{URI: bad + "followed"}))
			kit.Equal(t, kit.Receive(t, "resources/updated", updated), bad+"followed", "has changed")
			if got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo"}); err != nil || textOf(got) != "ok" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func offeredSafely(t *testing.T, list []tool.Resource) {
	t.Helper()
	fixed := 0
	for _, one := range list {
		if one.URI != "" {
			fixed++
		}
		if text := one.URI + one.Template + one.Name + one.Description + string(one.Annotations); tool.Hides(text) || len(text) > 5000 ||
			one.URI == "no uri" || one.Template == "x://{" {
			t.Fatalf("%+v is offered", one)
		}
	}
	if fixed > 10_000 || len(list)-fixed > 10_000 || !slices.ContainsFunc(list, func(one tool.Resource) bool { return one.Template == "x://{id}" }) {
		t.Errorf("%d resources and %d templates are offered", fixed, len(list)-fixed)
	}
}

// memory keeps pins.
type memory struct {
	mu  sync.Mutex
	all map[string]pin.Pin
}

func (m *memory) Of(context.Context, string) ([]pin.Pin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.all)), nil
}

func (m *memory) Change(_ context.Context, changes []pin.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		m.all[c.Name] = c.Pin
	}
	return nil
}

func (m *memory) Revision(context.Context) (int64, error) { return 0, nil }

// A server's prompts and resources pass the chain as its tools do: rules, rights and pins apply to them, and so do the
// stages that count and record. A source that is down offers nothing.
func TestOffersPassTheChain(t *testing.T) {
	tooltest.NoLeaks(t)
	var mu sync.Mutex
	var seen []string
	note := func(*tool.Spec) tool.Middleware {
		return tool.First(func(_ context.Context, c *tool.Call) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, c.Caller.ID+" "+c.Spec.Name+" "+string(c.Args))
			return nil
		})
	}
	library := newLibrary()
	fields := fmt.Sprintf("url: %q, era: legacy", served(t, library, "legacy"))
	e := engineWith(t, engine.Options{Stages: map[string]engine.Stage{"quota": note}, Pins: &pin.Registry{Pins: &memory{all: map[string]pin.Pin{}}}},
		`rules:
  - {name: not bob, effect: deny, callers: bob, sources: one}
  - {name: secret, effect: deny, tools: one.resources/read, when: 'args.uri.endsWith("/secret")'}
`, map[string]string{"one": fields})
	url, _ := serveTwo(t, door.Options{}, e, e)
	changed := make(chan bool, 100)
	of := func(name string) *sdk.ClientSession {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		s := kit.Must(sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
			PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { changed <- true },
			ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { changed <- true },
		}).Connect(t.Context(), &sdk.StreamableClientTransport{
			Endpoint: url, HTTPClient: &http.Client{Transport: named{transport, name}}, MaxRetries: -1,
		}, nil))(t)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	offered := func(s *sdk.ClientSession) int {
		prompts := kit.Must(s.ListPrompts(t.Context(), nil))(t)
		resources := kit.Must(s.ListResources(t.Context(), nil))(t)
		return len(prompts.Prompts) + len(resources.Resources)
	}
	ada, bob := of("ada"), of("bob")
	if a, b := offered(ada), offered(bob); a != 2 || b != 0 {
		t.Errorf("ada is offered %d, and bob %d", a, b)
	}
	for _, no := range []struct {
		who *sdk.ClientSession
		uri string
	}{{bob, notes + "note"}, {ada, notes + "notes/secret"}} {
		if got, err := no.who.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: no.uri}); err == nil {
			t.Errorf("%s can be read: %+v", no.uri, got)
		}
	}
	if _, err := bob.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "review", Arguments: map[string]string{"language": "go"}}); err == nil {
		t.Error("bob has a prompt")
	}
	kit.Check(t, kit.Err(ada.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: notes + "note"})))
	if _, err := ada.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "review", Arguments: map[string]string{"language": "go"}}); err != nil {
		t.Error(err)
	}
	mu.Lock()
	if want := []string{`ada resources/read {"uri":"mem://note"}`, `ada prompts/review {"language":"go"}`}; !slices.Equal(seen, want) {
		t.Errorf("the chain has seen %q", seen)
	}
	mu.Unlock()
	library.AddPrompt(&sdk.Prompt{Name: "review", Description: "do something else"}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return nil, fmt.Errorf("not asked for")
	}) // its pin differs
	for offered(ada) != 1 {
		kit.Receive(t, "prompts/list_changed", changed)
	}
	e.Replace(t.Context(), []engine.Binding{{Name: "one", Protocol: "mcp", Err: fmt.Errorf("down"), Upstream: true}})
	for offered(ada) != 0 {
		kit.Receive(t, "list_changed of a source that is down", changed)
	}
	e.Replace(t.Context(), []engine.Binding{bound(t, "one", fields)})
	for offered(ada) != 1 {
		kit.Receive(t, "list_changed of a source that is back", changed)
	}
}

// named sends the token of a caller.
type named struct {
	http.RoundTripper
	name string
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer token-"+n.name)
	return n.RoundTripper.RoundTrip(r)
}

// A server gets one subscription for a resource, however many clients follow it, and only they are notified.
func TestUpdatesReachOnlySubscribers(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			e := engineOf(t, "", map[string]string{"one": fmt.Sprintf("url: %q, era: %s", served(t, newLibrary(), era), era)})
			url := serveHTTP(t, door.Options{}, e, e)
			type reader struct {
				*sdk.ClientSession
				updated chan string
			}
			var readers []reader
			for range 3 {
				r := reader{updated: make(chan string, 100)}
				s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
					ResourceUpdatedHandler: func(_ context.Context, u *sdk.ResourceUpdatedNotificationRequest) { r.updated <- u.Params.URI },
				}).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: httpClient(t), MaxRetries: -1},
					&sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				r.ClientSession = s
				readers = append(readers, r)
			}
			for i, uri := range []string{"note", "note", "notes/1"} {
				kit.OK(t, readers[i].Subscribe(t.Context(), &sdk.SubscribeParams{URI: notes + uri}))
			}
			touch := func(r reader) { untilUpdated(t, readers[2].ClientSession, r.updated, "touch") }
			touch(readers[0]) // the client may still be opening its stream
			touch(readers[1])
			kit.OK(t, readers[0].Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: notes + "note"}))
			kit.Eventually(t, "no update for a client that unsubscribed", func() bool {
				for len(readers[0].updated) > 0 {
					<-readers[0].updated // it was sent before, on a stream of its own
				}
				for range 3 {
					touch(readers[1])
				}
				return len(readers[0].updated) == 0
			})
			kit.Equal(t, len(readers[2].updated), 0, "updates for a client that follows another resource")
		})
	}
}

// A keeper has one job, which asks a question and then echoes the answer.
type keeper struct {
	*shop
	shown bool            // it has been looked at, and asks now
	said  json.RawMessage // the answer
	over  string          // the state in which it ended, or ""
}

func (k *keeper) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if !strings.HasSuffix(c.Tool, "Job") {
		return k.shop.Invoke(ctx, c, out)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var args struct {
		Answers json.RawMessage `json:"answers"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return nil, err
	}
	job := `"running"`
	switch {
	case c.Tool == "cancelJob" && k.over != "":
		return nil, tool.Errorf(tool.CodeConflict, "it has ended")
	case c.Tool == "cancelJob":
		k.over = "cancelled"
	case c.Tool == "answerJob":
		k.said = args.Answers
	case k.over == "" && k.said == nil && (c.Tool == "watchJob" || k.shown):
		job = `"asked","result":{"ok":false,"ask":{"id":"q1","message":"Who?","schema":{"type":"string"}}}`
	case c.Tool == "watchJob" && k.over == "":
		k.over = "done"
	}
	k.shown = k.shown || c.Tool == "showJob"
	switch k.over {
	case "done":
		job = `"done","result":{"ok":true,"output":` + string(k.said) + `},"ended":"2026-01-01T00:00:01Z","expires":"2026-01-02T00:00:01Z"`
	case "cancelled":
		job = `"cancelled","error":{"code":"cancelled","message":"the job was cancelled"}`
	}
	return &tool.Result{OK: true, Output: []byte(`{"job":"j1","tool":"slow","made":"2026-01-01T00:00:00Z","state":` + job + `}`)}, nil
}

func newKeeper() *keeper {
	k := &keeper{shop: newShop()}
	k.sell(&tool.Spec{Name: "startJob"}, &tool.Spec{Name: "slow", MCPDefinition: tool.MCPDefinition{TaskSupport: "required"}}, &tool.Spec{Name: "echo", MCPDefinition: tool.MCPDefinition{TaskSupport: "optional"}},
		&tool.Spec{Name: "maybe", MCPDefinition: tool.MCPDefinition{TaskSupport: "optional"}},
		&tool.Spec{Name: "quick", MCPDefinition: tool.MCPDefinition{TaskSupport: "forbidden"}})
	return k
}

// A tool that an MCP server runs as a task is a task for clients that support tasks, and a call that waits for the others.
func TestTasksOfServersStayTasks(t *testing.T) {
	k := newKeeper()
	url := serveHTTP(t, door.Options{Jobs: true}, k, k)
	for capabilities, want := range map[string]bool{`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`: true, `{}`: false} {
		got := post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},`+able(capabilities)+`}}`,
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo")
		if strings.Contains(string(got.Result), `"resultType":"task"`) != want {
			t.Errorf("with %s: %s", capabilities, got.body)
		}
	}
}

// A client of 2025-11-25 asks for a task with its call, and gets the questions of the task while it waits for the result.
func TestLegacyClientsAskForTasks(t *testing.T) {
	const (
		task    = `{"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","pollInterval":1000,"status":"working","taskId":"j1","ttl":null}`
		related = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"j1"}}`
		ended   = `{"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:01Z","pollInterval":1000,"status":"completed","taskId":"j1","ttl":86401000}`
		stopped = `{"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","pollInterval":1000,"status":"cancelled",` +
			`"statusMessage":"the job was cancelled","taskId":"j1","ttl":null}`
		call    = `"tools/call","params":{"name":"%s","arguments":{},"task":{"ttl":60000}}`
		about   = `"tasks/%s","params":{"taskId":"j1"}`
		unknown = `{"code":-32601}`
	)
	for version, steps := range map[string][][2]string{
		"2025-11-25": {
			{fmt.Sprintf(call, "slow"), `{"task":` + task + `}`}, {fmt.Sprintf(call, "echo"), `{"task":` + task + `}`},
			{fmt.Sprintf(call, "quick"), unknown}, {fmt.Sprintf(about, "get"), task},
			{fmt.Sprintf(about, "result"), `{` + related + `,"content":[{"text":"Ada","type":"text"}]}`},
			{fmt.Sprintf(about, "get"), ended}, {fmt.Sprintf(about, "cancel"), `{"code":-32602}`},
			{fmt.Sprintf(about, "list"), unknown}, {fmt.Sprintf(about, "update"), unknown},
		},
		"2025-11-25 ": {{fmt.Sprintf(about, "cancel"), stopped}, {fmt.Sprintf(about, "get"), stopped}},
		"2025-06-18":  {{fmt.Sprintf(about, "get"), unknown}, {fmt.Sprintf(about, "result"), unknown}},
	} {
		k := newKeeper()
		w := stdioDoor(t, door.Options{Jobs: true}, k, k)
		w.say(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+strings.TrimSpace(version)+
			`","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`)
		hello := answeredWith(t, w, 0)
		kit.Equal(t, strings.Contains(hello, `"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`),
			version >= "2025-11-25", "%s: the server offers %s", version, hello)
		for i, step := range steps {
			w.say(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%s}`, i+1, step[0]))
			if got := answeredWith(t, w, i+1); got != step[1] {
				t.Errorf("%s: the answer to %s is\n%s, want\n%s", version, step[0], got, step[1])
			}
		}
	}
}

// The official client for TypeScript knows from the list of tools which run as tasks.
func TestTypeScriptClientRunsTasks(t *testing.T) {
	_, node := mcptest.Node(t)
	for _, name := range []string{"slow", "maybe"} {
		k := newKeeper()
		cmd := exec.CommandContext(t.Context(), node, mcptest.Path(t, "js", "tasks.mjs"), serveHTTP(t, door.Options{Jobs: true}, k, k), token, name)
		out, err := cmd.CombinedOutput()
		const want = "taskCreated working\ntaskStatus working\ntaskStatus input_required\nresult Ada\n"
		if err != nil || string(out) != want {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// answeredWith returns the answer to a request, and answers the questions that come before it.
func answeredWith(t *testing.T, w *wired, id int) string {
	t.Helper()
	for w.out.Scan() {
		var m struct {
			ID     int            `json:"id"`
			Method string         `json:"method"`
			Params map[string]any `json:"params"`
			Result map[string]any `json:"result"`
			Error  map[string]any `json:"error"`
		}
		kit.OK(t, json.Unmarshal(w.out.Bytes(), &m))
		switch {
		case m.Method == "elicitation/create":
			kit.Equal(t, fmt.Sprint(m.Params["_meta"]), "map[io.modelcontextprotocol/related-task:map[taskId:j1]]", "the task of a question")
			w.say(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"action":"accept","content":{"answer":"Ada"}}}`, m.ID))
		case m.Method == "" && m.ID == id && m.Error != nil:
			return fmt.Sprintf(`{"code":%v}`, m.Error["code"])
		case m.Method == "" && m.ID == id:
			return string(kit.Must(json.Marshal(m.Result))(t))
		}
	}
	t.Fatal("no answer")
	return ""
}
