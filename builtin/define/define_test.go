package define_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"toolpost/builtin/define"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/typeschema"
)

type greetArgs struct {
	Name  string `json:"name" schema:"required minLength=1" doc:"Whom to greet."`
	Times int    `json:"times" schema:"minimum=1"`
}

type greeting struct {
	Text string `json:"text"`
}

var errTired = errors.New("tired")

// greet repeats its argument as often as asked, in events too.
func greet(_ context.Context, c *define.Call, a greetArgs) (greeting, error) {
	if a.Times > 3 {
		return greeting{}, errTired
	}
	c.Summary, c.Details = "greeted", map[string]any{"times": a.Times}
	return greeting{strings.Repeat("hello "+a.Name+" ", a.Times)}, c.Out.Emit(tool.LogEvent("info", "hello"))
}

func greets(_ *tool.Call, a greetArgs) (tool.Touches, error) {
	return tool.Touches{Reads: []string{"/" + a.Name}}, nil
}

func raw(_ context.Context, c *define.Call, _ struct{}) (json.RawMessage, error) {
	return json.RawMessage(`[1.50]`), nil
}

func tools() define.PathSet {
	return define.PathSet{Set: define.Join(
		define.NewSet(define.Touching(tool.Spec{Name: "greet", Aliases: []string{"say.hello"}}, greet, greets)),
		define.NewSet(define.New(tool.Spec{Name: "raw"}, raw)),
	)}
}

func TestTheTypesOfAToolAreItsSchemas(t *testing.T) {
	specs, err := tools().Tools(t.Context())
	if err != nil || len(specs) != 2 {
		t.Fatal(specs, err)
	}
	want := `{"type":"object","properties":{"name":{"type":"string","minLength":1,"description":"Whom to greet."},"times":{"type":"integer","minimum":1}},` +
		`"required":["name"],"additionalProperties":false}`
	kit.Equal(t, string(specs[0].Input), want)
	kit.Equal(t, string(specs[0].Output), `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
	if specs[1].Output != nil {
		t.Errorf("of what could be anything: %s", specs[1].Output)
	}
	adjusted := define.Input[greetArgs](func(props *typeschema.Object) { props.At("name").Set("maxLength", 5) })
	own := define.New(tool.Spec{Name: "greet", Input: adjusted}, greet)
	kit.Contains(t, string(own.Spec.Input), `"maxLength":5`)
}

func TestACallIsDecodedStrictlyAndAnsweredInFull(t *testing.T) {
	var events int
	out := tool.SinkFunc(func(tool.Event) error { events++; return nil })
	r, err := tools().Invoke(t.Context(), &tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"ada","times":2}`)}, out)
	if err != nil || !r.OK || string(r.Output) != `{"text":"hello ada hello ada "}` || r.Summary != "greeted" || r.Trace.Details["times"] != 2 || events != 1 {
		t.Errorf("%+v, %v, %d events", r, err, events)
	}
	// The name that the engine resolved counts, not what the caller wrote; missing arguments are empty ones; raw output
	// keeps its digits.
	r, err = tools().Invoke(t.Context(), &tool.Call{Tool: "its.alias", Spec: &tool.Spec{Name: "raw"}}, tool.Discard)
	if err != nil || string(r.Output) != `[1.50]` {
		t.Errorf("%+v, %v", r, err)
	}
	for args, want := range map[string]string{
		`{"name":"a","age":1}`: `the arguments of greet: `, `{"name":"a","name":"b"}`: "greet", `{"Name":"a"}`: "greet", `{"name":1}`: "greet", `[]`: "greet", `{`: "greet",
	} {
		call := &tool.Call{Tool: "greet", Args: json.RawMessage(args)}
		kit.Refused(t, kit.Err(tools().Invoke(t.Context(), call, tool.Discard)), tool.CodeInvalidInput, want, args)
		kit.Refused(t, kit.Err(tools().Touches(call)), tool.CodeInvalidInput, "", "touches %s", args)
	}
}

func TestATouchComesFromTheSameArguments(t *testing.T) {
	got, err := tools().Touches(&tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"ada"}`)})
	if err != nil || len(got.Reads) != 1 || got.Reads[0] != "/ada" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := tools().Touches(&tool.Call{Tool: "raw"}); err != nil || !got.None() {
		t.Errorf("%+v, %v", got, err)
	}
	// Policy must see that a plain set does not report what it touches.
	if _, tells := any(tools().Set).(tool.Toucher); tells {
		t.Error("a set tells what its tools touch")
	}
}

func TestFailuresAreToolErrors(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(tool.Errorf(tool.CodeTimeout, "too late"))
	for name, c := range map[string]struct {
		ctx  context.Context
		call tool.Call
		want tool.Code
	}{
		"its own failure": {t.Context(), tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"a","times":9}`)}, tool.CodeInternal},
		"too late":        {ended, tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"a"}`)}, tool.CodeTimeout},
		"unknown":         {t.Context(), tool.Call{Tool: "shout"}, tool.CodeNotFound},
	} {
		_, err := tools().Invoke(c.ctx, &c.call, tool.Discard)
		var e *tool.Error
		if !errors.As(err, &e) || e.Code != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !tools().Has(&tool.Call{Tool: "raw"}) || tools().Has(&tool.Call{Tool: "shout"}) {
		t.Error("a set does not know what it has")
	}
}
