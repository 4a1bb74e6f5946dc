package run

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"toolpost/builtin/define"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// fixed is a catalogue, and an engine that answers every call with its arguments.
type fixed []*tool.Spec

func (f fixed) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	for _, s := range f {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
}

func (f fixed) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for _, s := range f {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (f fixed) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: json.RawMessage("[\n  " + string(c.Args) + "\n]")}, nil
}

// hear lets a program send some lines, and returns the answers.
func hear(says string) (*said, string, error) {
	t := &Tools{Setting: Setting{Engine: fixed{{Name: "who"}}}, o: Options{}.withDefaults()}
	p := &program{t: t, call: &tool.Call{ID: "outer"}, code: "x", stdout: define.NewStream("stdout", tool.Discard, 10)}
	var answers strings.Builder
	last, err := p.talk(context.Background(), &answers, bounded.NewLines(strings.NewReader(says), lineLimits()))
	return last, answers.String(), err
}

func TestAnAnswerIsOneLine(t *testing.T) {
	last, answers, err := hear(`{"id":7,"tool":"who","args":{"a":1}}` + "\n" + `{"return":null}` + "\n")
	if err != nil || last == nil || string(last.result) != "null" {
		t.Fatal(last, err)
	}
	want := `{"code":"x","most":{"calls":64,"bytes":4194304}}` + "\n" + `{"id":7,"output":[{"a":1}]}` + "\n"
	kit.Equal(t, answers, want)
}

func FuzzTalk(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"tool":"who","args":{}}`, `{"return":1}`, `{"raised":{"type":"E","message":"m","frames":[{"line":1,"in":"f"}]}}`,
		`{"cancel":1}`, `{"id":1,"tool":"who","parent":"x"}`, `{"id":1,"tool":"who"}` + "\n" + `{"id":1,"tool":"who"}`, "\x00", `{"id":-1`,
	} {
		f.Add(seed + "\n")
	}
	f.Fuzz(func(t *testing.T, says string) {
		last, answers, err := hear(says)
		if last != nil && err != nil {
			t.Error("it said its last, and was not understood")
		}
		for line := range strings.Lines(answers) {
			if !json.Valid([]byte(line)) || !strings.HasSuffix(line, "\n") {
				t.Errorf("%q", line)
			}
		}
	})
}
