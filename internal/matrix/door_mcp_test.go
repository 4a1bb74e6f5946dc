package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

func mcpDoor(era, over string) *door {
	about := "`toolpost as mcp`, to a client of the official SDK in the " + era + " era"
	if over == "HTTP" {
		about = "`/mcp`, to a client of the official SDK in the " + era + " era"
	}
	const text = "the content of a result is text: structured output arrives as JSON text, and as it is in structuredContent if " +
		"the tool has a schema of its output, or is that of an MCP server which gave it so"
	return &door{
		name: "MCP " + era + ", " + over, about: about,
		call: callMCP(era, over), word: code, sessions: true,
		carries: carries{
			output: {asText, text}, large: {asText, text},
			asset: {unnamed, "a short text, a picture and a sound are content of the result, which has no place for a name; " +
				"other files are links, with one"},
			choice: {asWords, "the content of the result says the choices, and the event is a log message with its data, for " +
				"clients that want those"},
		},
	}
}

func versionOf(era string) string {
	if era == "modern" {
		return "2026-07-28"
	}
	return "2025-11-25"
}

// A mcpTalk is a client of the official SDK, shared by all calls through a door.
type mcpTalk struct {
	*sdk.ClientSession
	modern bool

	mu    sync.Mutex
	heard map[string][]event // by the token of the call, or by the name of its tool
}

// talkMCP connects a client of each era, over each transport.
func (h *house) talkMCP(t *testing.T) {
	t.Helper()
	h.talks = map[string]*mcpTalk{}
	for _, era := range []string{"modern", "legacy"} {
		shown := &http.Client{Transport: bearer{h.web.Transport}}
		h.talk(t, era, "HTTP", &sdk.StreamableClientTransport{Endpoint: h.doors.mcp, HTTPClient: shown, MaxRetries: -1})
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		var served sync.WaitGroup
		served.Go(func() {
			h.serveAs(context.Background(), t, node.Stdio{In: in, Out: out, Log: io.Discard}, "mcp")
			_ = out.Close() // never fails
		})
		t.Cleanup(func() {
			_ = stdin.Close() // never fails
			served.Wait()
		})
		h.talk(t, era, "stdio", &sdk.IOTransport{Reader: stdout, Writer: stdin})
	}
}

func (h *house) talk(t *testing.T, era, over string, way sdk.Transport) {
	t.Helper()
	c := &mcpTalk{modern: era == "modern", heard: map[string][]event{}}
	client := sdk.NewClient(&sdk.Implementation{Name: "matrix", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			token, _ := r.Params.ProgressToken.(string)
			c.hear(t, token, tool.KindProgress, tool.Progress{
				Progress: r.Params.Progress, Total: r.Params.Total, Message: r.Params.Message,
			})
		},
		LoggingMessageHandler: func(_ context.Context, r *sdk.LoggingMessageRequest) { //nolint:staticcheck // clients in the field use it
			said, whole := r.Params.Data.(map[string]any)
			if !whole { // it has no fields
				said = map[string]any{"message": r.Params.Data}
			}
			kind := tool.KindLog
			if said["event"] != nil {
				kind = tool.KindUIEvent
			}
			c.hear(t, r.Params.Logger, kind, said)
		},
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			if r.Params.Message != which {
				return nil, errors.New("asked " + r.Params.Message)
			}
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"colour": "blue"}}, nil
		},
	})
	s, err := client.Connect(context.Background(), way, &sdk.ClientSessionOptions{ProtocolVersion: versionOf(era)})
	if err == nil && !c.modern {
		err = s.SetLoggingLevel(t.Context(), &sdk.SetLoggingLevelParams{Level: "debug"}) //nolint:staticcheck // as above
	}
	kit.OK(t, err)
	kit.MustEqual(t, s.InitializeResult().ProtocolVersion, versionOf(era), "the client and the door speak")
	t.Cleanup(func() { _ = s.Close() })
	c.ClientSession = s
	h.talks[era+over] = c
}

// A bearer sends the token with every request.
type bearer struct{ http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.RoundTripper.RoundTrip(r)
}

func (c *mcpTalk) hear(t *testing.T, call string, kind tool.Kind, data any) {
	object, _ := decode(t, encode(t, data)).(map[string]any)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard[call] = append(c.heard[call], event{kind, object})
}

// events returns the events of a call. The client delivers notifications concurrently with the answer, so they may come
// after it.
func (c *mcpTalk) events(t *testing.T, expected bool, keys ...string) (all []event) {
	within(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, key := range keys {
			all = append(all, c.heard[key]...)
			delete(c.heard, key)
		}
		return len(all) > 0 || !expected
	}, func() string { return "nothing was told of the call" })
	return all
}

func callMCP(era, over string) func(*testing.T, *house, *runner, request) *outcome {
	return func(t *testing.T, h *house, r *runner, req request) *outcome {
		c, out := h.talks[era+over], &outcome{}
		name := regexp.MustCompile(`[^a-zA-Z0-9_-]`).ReplaceAllString(h.published(t, r, req.tool), "_")
		token, session := tool.NewID(), strings.NewReplacer(" ", "_", ",", "").Replace(req.session)
		p := &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(req.args), Meta: sdk.Meta{
			"progressToken": token, "toolpost/session": session,
		}}
		if c.modern {
			p.Meta["io.modelcontextprotocol/logLevel"] = "debug"
		}
		res, err := c.CallTool(req.ctx, p)
		if err != nil {
			if !req.gone() {
				t.Errorf("an error of the protocol: %v", err)
			}
			return out
		}
		out.events = c.events(t, req.tool == "report" || req.tool == "choose", token, name)
		out.content(t, c, res)
		if req.tool == "ask" && out.ok {
			out.asked = which // the client has answered nothing else
		}
		if req.tool == "patch" {
			out.state = c.state(t, session)
		}
		return out
	}
}

// state reads the state of a session, which is a resource.
func (c *mcpTalk) state(t *testing.T, session string) map[string]any {
	res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "toolpost://sessions/" + session})
	if err != nil || len(res.Contents) != 1 {
		t.Errorf("the session is not there: %v", err)
		return nil
	}
	doc, _ := decode(t, []byte(res.Contents[0].Text)).(map[string]any)
	patched, _ := doc["state"].(map[string]any)
	return patched
}

func (o *outcome) file(r *sdk.ResourceContents, name string) {
	o.events = append(o.events, event{tool.KindAsset, map[string]any{
		"assetId": name, "mediaType": r.MIMEType, "content": r.Text,
	}})
}

// content adds a result. Structured content is also present as text.
func (o *outcome) content(t *testing.T, c *mcpTalk, res *sdk.CallToolResult) {
	var words string
	for _, piece := range res.Content {
		switch piece := piece.(type) {
		case *sdk.TextContent:
			if strings.HasPrefix(piece.Text, "[choices") {
				o.lines = append(o.lines, piece.Text)
				continue
			}
			words += piece.Text
		case *sdk.EmbeddedResource:
			o.file(piece.Resource, "")
		case *sdk.ResourceLink: // an asset that another node keeps
			res, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: piece.URI})
			if err != nil || len(res.Contents) != 1 {
				t.Errorf("%s cannot be read: %v", piece.URI, err)
				continue
			}
			o.file(res.Contents[0], piece.Name)
		default:
			t.Errorf("content of another kind: %T", piece)
		}
	}
	if o.ok = !res.IsError; !o.ok {
		why, _ := res.Meta["toolpost/error"].(map[string]any)
		o.class, _ = why["code"].(string)
		o.reason, _ = why["reason"].(string)
		o.message = words
		return
	}
	o.output = encode(t, words)
	var same any
	if err := json.Unmarshal([]byte(words), &same); res.StructuredContent != nil && (err != nil || !reflect.DeepEqual(same, res.StructuredContent)) {
		t.Errorf("structuredContent and content differ: %v: %.300s", err, words)
	}
}
