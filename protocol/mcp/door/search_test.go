package door_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"toolpost/codesearch/toolfind"
	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/tool"
)

// A crowd is more tools than are listed, behind a real engine. A caller may not see some of them.
type crowd struct {
	*bench
	specs []*tool.Spec
}

func newCrowd(n int) *crowd {
	c := &crowd{bench: newBench()}
	for i := range n {
		c.specs = append(c.specs, &tool.Spec{Name: fmt.Sprintf("filler%02d", i), Description: "Counts the pages of a book."})
	}
	c.specs = append(c.specs,
		&tool.Spec{Name: "forecast", Description: "Tells the weather of a city. It asks a satellite.", Input: json.RawMessage(
			`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","maximum":7}},"required":["city"]}`)},
		&tool.Spec{Name: "odd.name", Description: "Repeats its name."},
		&tool.Spec{Name: "count", Description: "Counts to three."}, &tool.Spec{Name: "ask", Description: "Asks for a colour."},
		&tool.Spec{Name: "vault", Description: "Opens the vault with the crown jewels."},
		&tool.Spec{Name: "search_tools", Description: "Pretends to be the search."},
	)
	return c
}

func (c *crowd) Tools(context.Context) ([]*tool.Spec, error) { return c.specs, nil }
func (c *crowd) Close(context.Context) error                 { return nil }
func (c *crowd) Invoke(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
	switch call.Tool {
	case "forecast", "search_tools":
		return &tool.Result{OK: true, Output: json.RawMessage(`"` + call.Tool + ` ran"`)}, nil
	}
	return c.bench.Invoke(ctx, call, out)
}

// A ledger is a stage that records the calls that pass it.
type ledger struct {
	mu    sync.Mutex
	calls []string
}

func (l *ledger) stage(spec *tool.Spec) tool.Middleware {
	return tool.First(func(_ context.Context, c *tool.Call) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = append(l.calls, spec.Name+" "+string(c.Args))
		if spec.Name == "count" && c.Lease == "" {
			return tool.Errorf(tool.CodeLeaseRequired, "count needs a lease")
		}
		return nil
	})
}

// among connects the official client with a door in front of a crowd, for a caller that may not see the vault.
func among(t *testing.T, version string, o door.Options, c *crowd, client *sdk.ClientOptions) (*sdk.ClientSession, *ledger) {
	t.Helper()
	l := &ledger{}
	e := engine.New(engine.Options{Stages: map[string]engine.Stage{"lease": l.stage}})
	e.Replace(t.Context(), []engine.Binding{{Name: "crowd", Protocol: "test", Runner: c}})
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	var may tool.Patterns
	for _, s := range c.specs {
		if s.Name != "vault" {
			may = append(may, tool.Pattern("crowd."+s.Name))
		}
	}
	toDoor, in := io.Pipe()
	out, fromDoor := io.Pipe()
	ended := make(chan error, 1)
	door := &door.Door{Options: o, In: toDoor, Out: fromDoor, Caller: tool.Principal{ID: "ada", Door: "mcp", Rights: &tool.Rights{Tools: may}}}
	go func() {
		ended <- door.Serve(context.Background(), e, e)
		_ = fromDoor.Close()
	}()
	s := kit.Must(sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, client).Connect(t.Context(),
		&sdk.IOTransport{Reader: out, Writer: in}, &sdk.ClientSessionOptions{ProtocolVersion: version}))(t)
	t.Cleanup(func() {
		_ = s.Close()
		_ = in.Close()
		kit.Check(t, <-ended)
	})
	return s, l
}

func eras(t *testing.T, run func(t *testing.T, version string)) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) { run(t, version) })
	}
}

func listedNames(t *testing.T, s *sdk.ClientSession) (names []string) {
	t.Helper()
	for one, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, one.Name)
	}
	return names
}

func use(t *testing.T, s *sdk.ClientSession, name string, args any) *sdk.CallToolResult {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: "protocol: " + err.Error()}}}
	}
	return r
}

type object = map[string]any

func TestTooManyToolsAreSearchedInsteadOfListed(t *testing.T) {
	eras(t, func(t *testing.T, version string) {
		s, calls := among(t, version, door.Options{Search: toolfind.Search{Always: []string{"odd.name", "crowd.count", "nobody"}}}, newCrowd(60), nil)
		if got := listedNames(t, s); !slices.Equal(got, []string{"call_tool", "count", "describe_tool", "odd_name", "search_tools"}) {
			t.Fatalf("listed are %v", got)
		}
		r := use(t, s, "search_tools", object{"query": "will it rain: the weather", "limit": 2})
		first, _, _ := strings.Cut(textOf(r), "\n")
		if r.IsError || first != "forecast(city: string, days?: integer): Tells the weather of a city." {
			t.Errorf("%v: %s", r.IsError, textOf(r))
		}
		if r := use(t, s, "describe_tool", object{"name": "forecast"}); r.IsError || !strings.Contains(textOf(r), `"maximum":7`) || !strings.Contains(textOf(r), "satellite") {
			t.Errorf("%s", textOf(r))
		}
		for name, want := range map[string]string{"forecast": "forecast ran", "search_tools": "search_tools ran"} {
			if r := use(t, s, "call_tool", object{"name": name, "arguments": object{"city": "Rome"}}); r.IsError || textOf(r) != want {
				t.Errorf("%s: %s", name, textOf(r))
			}
		}
		if r := use(t, s, "call_tool", object{"name": "odd_name"}); textOf(r) != "odd.name" {
			t.Errorf("%s", textOf(r))
		}
		if r := use(t, s, "forecast", object{"city": "Rome"}); textOf(r) != "forecast ran" {
			t.Errorf("a tool that is not listed: %s", textOf(r))
		}
		if !slices.Contains(calls.calls, `forecast {"city":"Rome"}`) || slices.ContainsFunc(calls.calls, func(c string) bool { return strings.HasPrefix(c, "call_tool") }) {
			t.Errorf("the stages saw %q", calls.calls)
		}
	})
}

func TestCallToolPassesEveryCheck(t *testing.T) {
	eras(t, func(t *testing.T, version string) {
		heard := make(chan float64, 10)
		client := &sdk.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { heard <- r.Params.Progress },
			ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"colour": "red"}}, nil
			},
		}
		s, _ := among(t, version, door.Options{}, newCrowd(60), client)
		for want, args := range map[string]object{
			"the arguments of forecast: /days":   {"name": "forecast", "arguments": object{"city": "Rome", "days": 8}}, // validation
			"count needs a lease":                {"name": "count"},
			"Unknown tool: vault":                {"name": "vault"}, // the caller may not see it
			"Unknown tool: call_tool":            {"name": "call_tool", "arguments": object{"name": "forecast"}},
			"missing property 'name'":            {"arguments": object{}},
			"/arguments: got array, want object": {"name": "forecast", "arguments": []any{}},
			"'lease' is not allowed":             {"name": "forecast", "lease": "x"},
			"the arguments of call_tool":         {"name": 7},
		} {
			if r := use(t, s, "call_tool", args); !r.IsError || !strings.Contains(textOf(r), want) {
				t.Errorf("%v: %s; want %q", args, textOf(r), want)
			}
		}
		p := &sdk.CallToolParams{Name: "call_tool", Arguments: object{"name": "count"}, Meta: sdk.Meta{"toolpost/lease": "l"}}
		p.SetProgressToken("token")
		if r, err := s.CallTool(t.Context(), p); err != nil || textOf(r) != "[1,2,3]" || <-heard != 1 {
			t.Errorf("with a lease: %+v, %v", r, err)
		}
		if r := use(t, s, "call_tool", object{"name": "ask"}); textOf(r) != `{"resume":"q1","answers":{"colour":"red"}}` {
			t.Errorf("a question: %s", textOf(r))
		}
	})
}

func TestACallerNeverFindsAToolThatItMayNotSee(t *testing.T) {
	eras(t, func(t *testing.T, version string) {
		s, _ := among(t, version, door.Options{}, newCrowd(60), nil)
		for _, query := range []string{"vault", "crown jewels", "open the vault with the crown jewels"} {
			if r := use(t, s, "search_tools", object{"query": query, "limit": 50}); strings.Contains(textOf(r), "jewels") || strings.Contains(textOf(r), "vault(") {
				t.Errorf("%q finds %s", query, textOf(r))
			}
		}
		hidden, unknown := use(t, s, "describe_tool", object{"name": "vault"}), use(t, s, "describe_tool", object{"name": "vautl"})
		if !hidden.IsError || strings.ReplaceAll(textOf(hidden), "vault", "vautl") != textOf(unknown) {
			t.Errorf("hidden: %s, unknown: %s", textOf(hidden), textOf(unknown))
		}
		for want, args := range map[string]object{
			"the query is empty": {"query": " "}, "/query: ": {"query": strings.Repeat("x ", 10_000)}, "/limit: ": {"query": "x", "limit": 51},
			"the arguments of search_tools": {"query": []string{"x"}}, "'name' is not allowed": {"query": "x", "name": "y"},
		} {
			if r := use(t, s, "search_tools", args); !r.IsError || !strings.Contains(textOf(r), want) {
				t.Errorf("%.40v: %s; want %q", args, textOf(r), want)
			}
		}
		if r := use(t, s, "search_tools", object{"query": "zzzqqq"}); r.IsError || !strings.Contains(textOf(r), "No tool is like that") {
			t.Errorf("%s", textOf(r))
		}
	})
}

func TestFewToolsAreListedAsTheyAre(t *testing.T) {
	eras(t, func(t *testing.T, version string) {
		s, _ := among(t, version, door.Options{}, newCrowd(10), nil)
		if got := listedNames(t, s); len(got) != 15 || slices.Contains(got, "call_tool") || !slices.Contains(got, "search_tools") {
			t.Errorf("listed are %v", got)
		}
		if r := use(t, s, "search_tools", nil); textOf(r) != "search_tools ran" {
			t.Errorf("somebody's own tool: %s", textOf(r))
		}
		s, _ = among(t, version, door.Options{Search: toolfind.Search{Above: 14}}, newCrowd(10), nil)
		if got := listedNames(t, s); len(got) != 3 {
			t.Errorf("above 14 there are listed %v", got)
		}
		s, _ = among(t, version, door.Options{Search: toolfind.Search{Above: -1}}, newCrowd(90), nil)
		if got := listedNames(t, s); len(got) != 95 {
			t.Errorf("without a search there are listed %d", len(got))
		}
		if r := use(t, s, "call_tool", object{"name": "forecast"}); !strings.Contains(textOf(r), "Unknown tool: call_tool") {
			t.Errorf("without a search: %s", textOf(r))
		}
	})
}

func TestManyIsANumberOrOff(t *testing.T) {
	for text, want := range map[string]toolfind.Many{"off": -1, "0": -1, "7": 7} {
		var got toolfind.Many
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "many", "1.5"} {
		kit.Fails(t, new(toolfind.Many).UnmarshalText([]byte(text)), "", "%q is taken", text)
	}
}
