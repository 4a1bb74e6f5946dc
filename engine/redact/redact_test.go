package redact_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"toolpost/engine/audit"
	"toolpost/engine/redact"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canaries makes secrets of all kinds.
func canaries(t *testing.T, n int) (map[string]string, *secret.Redactor) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	values, from := map[string]string{}, map[string]secret.From{}
	for i := range n {
		letters := []rune([]string{"abcdefghijklmnopqrstuvwxyz", "0123456789", "aB3$%&/\\\"+ _-.", "äöü漢字🔑xyz"}[i%4])
		value := []rune{'x'}
		for range 7 + random.IntN(60) {
			value = append(value, letters[random.IntN(len(letters))])
		}
		if i%10 == 9 {
			value = append(value, []rune("\na second line of it\n"+strings.Repeat(string(value[:3]), 30))...)
		}
		name := fmt.Sprint("CANARY_", i)
		values[name] = string(append(value, 'x'))
		from[name] = secret.From{File: name}
	}
	dir := t.TempDir()
	for name, value := range values {
		kit.OK(t, os.WriteFile(dir+"/"+name, []byte(value), 0o600))
	}
	v := secret.Open(t.Context(), dir, from, nil)
	for name, value := range values {
		if got, err := v.Secret(name); got != value || err != nil {
			t.Fatal(name, err)
		}
	}
	return values, v.Redactor()
}

func encodings(value string) []string {
	b := []byte(value)
	quoted, _ := json.Marshal(value)
	return []string{
		value, base64.StdEncoding.EncodeToString(b), base64.StdEncoding.EncodeToString(append([]byte("u:"), b...)), base64.RawURLEncoding.EncodeToString(append([]byte("a"), b...)),
		hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)), url.QueryEscape(value), url.PathEscape(value), string(quoted[1 : len(quoted)-1]),
	}
}

// leaks returns a canary that a text contains.
func leaks(text string, values map[string]string) string {
	for name, value := range values {
		for _, form := range encodings(value) {
			if strings.Contains(text, form) {
				return name + " is told: " + form + " in " + text
			}
		}
	}
	return ""
}

type log struct{ records []*tool.Record }

func (l *log) Begin(_ context.Context, r *tool.Record) error {
	l.records = append(l.records, r)
	return nil
}

func (l *log) Append(_ context.Context, r *tool.Record, _ bool) error {
	l.records = append(l.records, r)
	return nil
}

func (l *log) Later(r *tool.Record, _ func(*tool.Record, error)) {
	_ = l.Append(context.Background(), r, false)
}

// blabber is a tool that emits a text in every possible way.
func blabber(text string, logger *slog.Logger) tool.Handler {
	raw, _ := json.Marshal(map[string]any{text: []string{text, "-" + text}})
	return tool.HandlerFunc(func(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		for _, ev := range []tool.Event{
			tool.LogEvent("info", "said "+text), {Kind: tool.KindStatePatch, Data: raw}, tool.NewEvent(tool.KindProgress, tool.Progress{Message: text}),
			tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: text, Payload: raw}), tool.NewEvent(tool.KindError, tool.ErrorEvent{Code: text, Message: text, Details: raw}),
			tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: text, Path: "/" + text, Metadata: raw}),
			tool.NewEvent(tool.KindOutput, tool.Output{Stream: "stdout", Text: text + "\n" + text[:len(text)/2]}),
			tool.NewEvent(tool.KindOutput, tool.Output{Stream: "stderr", Text: text}),
			tool.NewEvent(tool.KindOutput, tool.Output{Stream: "stdout", Text: text[len(text)/2:]}),
		} {
			if err := out.Emit(ev); err != nil {
				return nil, err
			}
		}
		logger.Info("the tool said "+text, "text", text, "error", errors.New(text))
		failure := &tool.Error{Code: tool.CodeToolError, Reason: text, Message: "no: " + text, Details: raw, Err: fmt.Errorf("because of %w", errors.New(text))}
		switch c.Tool {
		case "fails":
			return &tool.Result{Failure: failure}, nil
		case "errs":
			return nil, fmt.Errorf("it was %s: %w", text, failure)
		case "asks":
			return &tool.Result{Ask: &tool.Ask{ID: text, Message: text, Schema: raw}}, nil
		}
		return &tool.Result{OK: true, Output: raw, Summary: text, Trace: tool.Trace{Details: map[string]any{
			"text": text, text: 1, "list": []any{text}, "raw": json.RawMessage(raw), "typed": struct{ T string }{text}, "clean": 7,
		}}}, nil
	})
}

func TestNoCanaryLeavesTheEngineInAnyWay(t *testing.T) {
	values, r := canaries(t, 200)
	noCanaryLeaves(t, values, r, r, nil)
}

// What is secret in one call alone leaves it as little, and is an ordinary text in other calls.
func TestNoCanaryOfACallLeavesIt(t *testing.T) {
	values, r := canaries(t, 200)
	noCanaryLeaves(t, values, r, nil, r)
	trail, text := audit.New(audit.Options{Log: &log{}, Values: tool.Patterns{"*"}}), slices.Collect(maps.Values(values))[0]
	h := redact.Door(nil)(trail.Stage(trail.Named()(trail.Begun()(redact.Tool(nil)(blabber(text, slog.New(slog.DiscardHandler)))))))
	c := &tool.Call{Args: []byte(`{}`), Notes: tool.Notes{Memo: &tool.Memo{Secrets: new(secret.Redactor)}}}
	kit.Equal(t, kit.Must(h.Invoke(t.Context(), c, tool.Discard))(t).Summary, text)
}

// noCanaryLeaves lets a tool say values in calls that have secrets of their own, beside those that all calls have.
func noCanaryLeaves(t *testing.T, values map[string]string, r, all, own *secret.Redactor) {
	t.Helper()
	var logged bytes.Buffer
	logger := slog.New(secret.Handler(slog.NewJSONHandler(&logged, nil), r))
	kept := &log{}
	trail := audit.New(audit.Options{Log: kept, Redactor: all, Values: tool.Patterns{"*"}, Logger: logger})
	tools := []string{"works", "fails", "errs", "asks"}
	i := 0
	for name, value := range values {
		for n, text := range encodings(value) {
			if (i+n)%9 != 0 { // each kind in each encoding, and in each of these ways, often enough
				continue
			}
			h := redact.Door(all)(trail.Stage(trail.Named()(trail.Begun()(repeating(redact.Tool(all)(blabber(text, logger)))))))
			args, _ := json.Marshal(map[string]string{"a": text, text: "b"})
			sink := &tooltest.Collect{}
			c := &tool.Call{ID: "1", Tool: tools[(i+n)/9%4], Args: args, Session: text, Key: text, Run: text, Spec: &tool.Spec{Name: "t", Source: text}}
			c.Memo = &tool.Memo{Secrets: own}
			result, err := h.Invoke(t.Context(), c, sink)
			var told strings.Builder
			for _, ev := range sink.Events() {
				if !json.Valid(ev.Data) || ev.Data[0] != '{' {
					t.Errorf("%s: the data of an event is no object: %s", name, ev.Data)
				}
				fmt.Fprintf(&told, "%s %s\n", ev.Kind, ev.Data)
			}
			shown, _ := json.Marshal(result)
			fmt.Fprintf(&told, "%s\n%+v\n%v\n", shown, result, outputs(sink.Events()))
			for e := err; e != nil; e = errors.Unwrap(e) {
				fmt.Fprintf(&told, "%v %+v %s\n", e, e, tool.AsError(e).Details)
			}
			for _, rec := range kept.records {
				line, err := json.Marshal(rec)
				fmt.Fprintln(&told, string(line), err)
			}
			told.Write(logged.Bytes())
			kit.MustEqual(t, leaks(told.String(), map[string]string{name: value}), "")
			if !strings.Contains(told.String(), "[secret "+name+"]") || len(kept.records) != 2 || logged.Len() == 0 {
				t.Fatalf("nothing was redacted, recorded or logged: %s", told.String())
			}
			kept.records = nil
			logged.Reset()
		}
		i++
	}
}

// repeating is a stage that repeats the arguments of a call in its error.
func repeating(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := next.Invoke(ctx, c, out)
		if err != nil {
			err = tool.Errorf(tool.CodeOf(err), "of %s: %w", c.Args, err)
		}
		return r, err
	})
}

// outputs joins the texts of the output events of each stream.
func outputs(events []tool.Event) map[string]string {
	texts := map[string]string{}
	for _, ev := range events {
		var o tool.Output
		if ev.Kind == tool.KindOutput && json.Unmarshal(ev.Data, &o) == nil {
			texts[o.Stream] += o.Text
		}
	}
	return texts
}

func one(t *testing.T) *secret.Redactor {
	t.Helper()
	t.Setenv("REDACT_TEST", "hunter2hunter2")
	return secret.Open(t.Context(), "", map[string]secret.From{"KEY": {Env: "REDACT_TEST"}}, nil).Redactor()
}

func emitting(result *tool.Result, err error, parts ...string) tool.Handler {
	return tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		for _, part := range parts {
			if err := out.Emit(tool.Event{Kind: tool.KindOutput, Data: json.RawMessage(part)}); err != nil {
				return nil, err
			}
		}
		return result, err
	})
}

func TestPossibleSecretIsHeldBackUntilDecided(t *testing.T) {
	r := one(t)
	for name, c := range map[string]struct {
		parts []string
		want  string
	}{
		"whole":          {[]string{`{"text":"a hunter2hunter2 b"}`}, `{"text":"a [secret KEY] b"}`},
		"cut":            {[]string{`{"text":"a hunter2h","x":1}`, `{"text":"unter2 b"}`}, `{"text":"a ","x":1} {"text":"[secret KEY] b"}`},
		"nothing of it":  {[]string{`{"text":"hunter"}`, `{"text":"hunter3\n"}`}, `{"text":"hunterhunter3\n"}`},
		"the end":        {[]string{`{"stream":"s","text":"a hunter"}`}, `{"stream":"s","text":"a "} {"stream":"s","text":"hunter"}`},
		"two streams":    {[]string{`{"stream":"s","text":"hunter2"}`, `{"text":"hunter\n"}`, `{"stream":"s","text":"hunter2"}`}, `{"text":"hunter\n"} {"stream":"s","text":"[secret KEY]"}`},
		"none":           {[]string{`{"text": "ab c\n" }`, `{"text":""}`}, `{"text": "ab c\n" } {"text":""}`},
		"no output":      {[]string{`{"text":["hunter2hunter2"]}`}, `{"text":["[secret KEY]"]}`},
		"too many parts": {[]string{`{"text":"h"}`, `{"text":"unter2hunter"}`, `{"text":"2"}`, `{"text":"\n"}`}, `{"text":"[secret KEY]\n"}`},
	} {
		for _, err := range []error{nil, tool.Errorf(tool.CodeCrash, "it crashed")} {
			sink := &tooltest.Collect{}
			result := &tool.Result{OK: true}
			if err != nil {
				result = nil
			}
			if _, got := redact.Tool(r)(emitting(result, err, c.parts...)).Invoke(t.Context(), &tool.Call{}, sink); got != err {
				t.Errorf("%s: %v", name, got)
			}
			var got []string
			for _, ev := range sink.Events() {
				got = append(got, string(ev.Data))
			}
			kit.Equal(t, strings.Join(got, " "), c.want, name, got)
		}
	}
}

func TestSecretSplitAcrossLogEventsIsRedacted(t *testing.T) {
	sink := &tooltest.Collect{}
	h := redact.Tool(one(t))(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		for _, line := range []string{"a hunter2", "hunter2 b", "c"} {
			_ = out.Emit(tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: line, Fields: json.RawMessage(`{"stream":"stderr"}`)}))
		}
		return &tool.Result{OK: true}, nil
	}))
	kit.Must(h.Invoke(t.Context(), &tool.Call{}, sink))(t)
	if got := strings.Join(sink.Logs(), "|"); got != "a [secret KEY]|[secret KEY] b|c" || !strings.Contains(string(sink.Events()[1].Data), `"fields":{"stream":"stderr"}`) {
		t.Errorf("%s, %s", got, sink.Events()[1].Data)
	}
}

// The runner cuts a tool's texts: into parts, into lines, and at a maximal length. Wherever that is, and with the
// escapes of JSON and HTML, neither the parts nor their concatenation reveal the secret.
func TestASecretIsNotToldAtAnyCut(t *testing.T) {
	const value = `s3cr3t&"<horse>"\battery`
	t.Setenv("REDACT_TEST", value)
	r := secret.Open(t.Context(), "", map[string]secret.From{"KEY": {Env: "REDACT_TEST"}}, nil).Redactor()
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b[1 : len(b)-1]) }
	for kind, text := range map[string]string{
		"plain": value, "JSON": quoted(value), "HTML": html.EscapeString(value), "base64": base64.StdEncoding.EncodeToString([]byte(value)),
		"HTML in JSON": quoted(html.EscapeString(value)),
	} {
		for cut := 1; cut < len(text); cut++ {
			first, second := text[:cut], text[cut:]
			sink := &tooltest.Collect{}
			h := redact.Tool(r)(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
				for _, part := range []string{first, second} {
					_ = out.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: "stdout", Text: part}))
					_ = out.Emit(tool.LogEvent("info", part))
					_ = out.Emit(tool.NewEvent(tool.KindProgress, tool.Progress{Message: part}))
				}
				output, _ := json.Marshal([]string{first, second})
				return &tool.Result{
					Output: output, Summary: first, Trace: tool.Trace{Details: map[string]any{"stderr_tail": second}},
					Failure: tool.Errorf(tool.CodeCrash, "it crashed; stderr ended with: \n%s", second),
				}, nil
			}))
			res := kit.Must(h.Invoke(t.Context(), &tool.Call{}, sink))(t)
			var output []string
			_ = json.Unmarshal(res.Output, &output)
			shown := append(output, outputs(sink.Events())["stdout"], strings.Join(sink.Logs(), ""), res.Summary, res.Failure.Message, fmt.Sprint(res.Trace.Details))
			for _, ev := range sink.Events() {
				var p tool.Progress
				if ev.Kind == tool.KindProgress && json.Unmarshal(ev.Data, &p) == nil {
					shown = append(shown, p.Message)
				}
			}
			for _, got := range shown {
				unquoted := strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(got)
				for _, plain := range []string{got, unquoted, html.UnescapeString(got), html.UnescapeString(unquoted)} {
					if piece := longest(plain, value); piece >= 8 && !(piece == 8 && strings.Contains(unquoted, "&")) { // one more if an escape was cut
						t.Fatalf("%s cut at %d: %q tells %d bytes", kind, cut, got, piece)
					}
				}
				if piece := longest(got, text); kind == "base64" && piece >= 8 {
					t.Fatalf("cut at %d: %q tells %d digits", cut, got, piece)
				}
			}
		}
	}
}

// longest returns the length of the longest piece of a value that a text contains.
func longest(text, value string) (n int) {
	for from := range value {
		for from+n < len(value) && strings.Contains(text, value[from:from+n+1]) {
			n++
		}
	}
	return n
}

func TestSinkErrorEndsTheCall(t *testing.T) {
	gone := errors.New("gone")
	for name, parts := range map[string][]string{"at once": {`{"text":"a\n"}`}, "what was held back": {`{"text":"hunter2"}`}} {
		_, err := redact.Tool(one(t))(emitting(&tool.Result{OK: true}, nil, parts...)).Invoke(t.Context(), &tool.Call{}, tool.SinkFunc(func(tool.Event) error { return gone }))
		if !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sink := &tooltest.Collect{}
	if _, err := redact.Tool(one(t))(emitting(&tool.Result{OK: true}, nil, `{"text":"hunter2"}`)).Invoke(ctx, &tool.Call{}, sink); err != nil || len(sink.Events()) != 0 {
		t.Errorf("a caller that has gone: %v, %v", err, sink.Events())
	}
}

func TestManyGoroutinesMayEmit(t *testing.T) {
	sink := &tooltest.Collect{}
	h := redact.Tool(one(t))(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		var emitters sync.WaitGroup
		for i := range 40 {
			emitters.Go(func() {
				for range 20 {
					_ = out.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: fmt.Sprint(i), Text: "a hunter2hunter2"}))
				}
			})
		}
		emitters.Wait()
		return &tool.Result{OK: true}, nil
	}))
	kit.Must(h.Invoke(t.Context(), &tool.Call{}, sink))(t)
	for stream, text := range outputs(sink.Events()) {
		kit.Equal(t, text, strings.Repeat("a [secret KEY]", 20), stream)
	}
}

func TestWithoutSecretsNothingIsTouched(t *testing.T) {
	result := &tool.Result{OK: true, Trace: tool.Trace{Details: map[string]any{"a": 1}}}
	for name, stage := range map[string]tool.Middleware{"door": redact.Door(nil), "tool": redact.Tool(new(secret.Redactor))} {
		var seen tool.Sink
		h := stage(tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
			seen = out
			return result, nil
		}))
		sink := &tooltest.Collect{}
		if got, err := h.Invoke(t.Context(), &tool.Call{}, sink); got != result || err != nil || seen != tool.Sink(sink) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

type shelf map[*tool.Spec]error

func (s shelf) Lookup(context.Context, tool.Principal, string) (*tool.Spec, error) {
	for spec, err := range s {
		return spec, err
	}
	return nil, nil
}

func (s shelf) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for spec, err := range s {
			if !yield(spec, err) {
				return
			}
		}
	}
}

func TestTheCatalogueHasNoSecrets(t *testing.T) {
	r := one(t)
	clean := &tool.Spec{Name: "a", Input: json.RawMessage(`{"type":"object"}`)}
	dirty := &tool.Spec{Name: "a", Title: "hunter2hunter2", Description: "uses hunter2hunter2", Input: json.RawMessage(`{"default":"hunter2hunter2"}`)}
	for _, was := range []*tool.Spec{clean, dirty} {
		c := redact.Catalog(shelf{was: errors.New("no hunter2hunter2")}, r)
		spec, err := c.Lookup(t.Context(), tool.Principal{}, "a")
		for listed, why := range c.Specs(t.Context(), tool.Principal{}) {
			text := fmt.Sprintf("%+v %v %+v %v %s", *spec, err, *listed, why, listed.Input)
			if strings.Contains(text, "hunter2hunter2") || (spec == was) != (was == clean) {
				t.Error(text)
			}
		}
	}
	kit.Equal(t, dirty.Title, "hunter2hunter2", "the spec itself was changed")
}
