package telemetry_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"toolpost/config"
	"toolpost/engine/telemetry"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is in everything that must not be reported.
const canary = "canary-4711"

// fake answers calls by their names.
func fake(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	trace := tool.Trace{Tool: c.Tool, Source: "src", Protocol: "fake"}
	switch c.Tool {
	case "fails":
		return &tool.Result{Failure: &tool.Error{Code: canary, Reason: canary, Message: canary}, Trace: trace}, nil
	case "refused":
		return nil, tool.Errorf(tool.CodeAccessDenied, "no: %s", canary)
	case "breaks":
		return nil, errors.New(canary)
	case "asks":
		return &tool.Result{Ask: &tool.Ask{ID: canary, Message: canary}, Trace: trace}, nil
	}
	if strings.HasPrefix(c.Tool, "nobody") {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
	}
	trace.Details = map[string]any{canary: canary}
	return &tool.Result{OK: true, Output: json.RawMessage(`"` + canary + `"`), Summary: canary, Trace: trace}, nil
}

func lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	if strings.HasPrefix(name, "nobody") {
		return nil, tool.Errorf(tool.CodeNotFound, "no")
	}
	return &tool.Spec{Name: name, Source: "src", Protocol: "fake"}, nil
}

// open makes a telemetry. Missing fields of env do nothing, and know no secret.
func open(t testing.TB, o telemetry.Options, env telemetry.Env) *telemetry.Telemetry {
	t.Helper()
	kit.OK(t, o.Validate())
	env.Lookup, env.Log = lookup, cmp.Or(env.Log, slog.New(slog.DiscardHandler))
	if env.Secret == nil {
		env.Secret = func(name string) (string, error) { return "", errors.New("there is no secret " + name) }
	}
	if env.Redact == nil {
		env.Redact = strings.Clone
	}
	if env.Node == nil {
		env.Node = func() string { return "" }
	}
	if env.Samples == nil {
		env.Samples = func() []telemetry.Sample { return nil }
	}
	return kit.Must(telemetry.New(o, env))(t)
}

func invoke(t testing.TB, tel *telemetry.Telemetry, names ...string) {
	t.Helper()
	h := tel.For(nil)(tool.HandlerFunc(fake))
	for _, name := range names {
		name, dry := strings.CutPrefix(name, "dry ")
		c := &tool.Call{Tool: name, DryRun: dry, Args: json.RawMessage(`{"a":"` + canary + `"}`), Caller: tool.Principal{ID: "ada", Door: "http"}}
		if r, err := h.Invoke(t.Context(), c, tool.Discard); r == nil && err == nil {
			t.Fatalf("%s: neither a result nor an error", name)
		}
	}
}

// scrape reads the metrics as Prometheus does.
func scrape(t testing.TB, tel *telemetry.Telemetry) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	var b bytes.Buffer
	kit.OK(t, tel.Metrics(&b))
	text = b.String()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&b)
	if err != nil {
		t.Fatalf("Prometheus cannot read it: %v\n%s", err, text)
	}
	return text, families
}

// labelled returns the one series that has the labels, written name=value.
func labelled(f *dto.MetricFamily, want ...string) *dto.Metric {
	for _, m := range f.GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) }) {
			return m
		}
	}
	return nil
}

func TestCallsAreCountedByLabelsAndOutcome(t *testing.T) {
	tel := open(t, telemetry.Options{}, telemetry.Env{Version: "1.2"})
	defer tel.Close(t.Context())
	invoke(t, tel, "reads", "reads", "reads", "fails", "refused", "breaks", "asks", "nobody-1", "nobody-2")
	invoke(t, tel, "dry reads", "dry reads") // as a job is judged before it runs
	_, families := scrape(t, tel)
	for labels, want := range map[string]float64{
		"tool=reads source=src protocol=fake door=http outcome=ok code=": 3,
		"tool=fails outcome=failed code=tool_error":                      1,
		"tool=refused source=src outcome=refused code=access_denied":     1,
		"tool=breaks outcome=error code=internal":                        1,
		"tool=asks outcome=asked code=":                                  1,
		"tool=unknown source= protocol= outcome=error code=not_found":    2,
	} {
		list := strings.Fields(labels)
		if m := labelled(families["toolpost_calls_total"], list...); m.GetCounter().GetValue() != want {
			t.Errorf("%s: %v calls, not %v", labels, m.GetCounter().GetValue(), want)
		}
		h := labelled(families["toolpost_call_duration_seconds"], list...).GetHistogram()
		if h.GetSampleCount() != uint64(want) || h.GetSampleSum() <= 0 || h.GetBucket()[len(h.GetBucket())-1].GetCumulativeCount() != uint64(want) {
			t.Errorf("%s: histogram %v", labels, h)
		}
	}
	const args, output = len(`{"a":"` + canary + `"}`), len(canary) + 2
	reads := func(name string) float64 { return labelled(families[name], "tool=reads").GetCounter().GetValue() }
	if in, out := reads("toolpost_call_in_bytes_total"), reads("toolpost_call_out_bytes_total"); in != float64(3*args) || out != float64(3*output) {
		t.Errorf("%v bytes in, %v out", in, out)
	}
	kit.Equal(t, labelled(families["toolpost_info"], "version=1.2").GetGauge().GetValue(), 1, "the version is missing")
}

func TestCallsThatRunAreCounted(t *testing.T) {
	tel := open(t, telemetry.Options{}, telemetry.Env{})
	defer tel.Close(t.Context())
	running := func() float64 {
		_, families := scrape(t, tel)
		return labelled(families["toolpost_calls_running"], "door=nats").GetGauge().GetValue()
	}
	h := tel.For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		kit.Equal(t, running(), 1, "calls run")
		panic("it breaks")
	}))
	func() {
		defer func() { _ = recover() }()
		_, _ = h.Invoke(t.Context(), &tool.Call{Caller: tool.Principal{Door: "nats"}}, tool.Discard)
	}()
	kit.Equal(t, running(), 0, "calls run after the last")
	_, families := scrape(t, tel) // the stage that turns a panic into an error is outside
	if m := labelled(families["toolpost_calls_total"], "outcome=error", "code=internal"); m.GetCounter().GetValue() != 1 {
		t.Error("a call that panicked was not counted")
	}
}

func TestNamesCannotBreakOutOfTheMetrics(t *testing.T) {
	names := []string{
		`a"b`, "a\nb", `a\b`, `a\`, "a\"} 1\ntoolpost_fake{x=\"", "a\xffb", "ä😀", "", "{}", "a\r\nb", "\x00",
	}
	tel := open(t, telemetry.Options{}, telemetry.Env{Samples: func() (list []telemetry.Sample) {
		for _, name := range names {
			list = append(list, telemetry.Sample{Name: "toolpost_test", Help: "A test.", Labels: map[string]string{"name": name}, Value: 1})
		}
		return list
	}})
	defer tel.Close(t.Context())
	invoke(t, tel, names...)
	text, families := scrape(t, tel)
	if _, ok := families["toolpost_fake"]; ok {
		t.Errorf("a name made a metric:\n%s", text)
	}
	for _, name := range names {
		clean := strings.ToValidUTF8(name, "\uFFFD")
		if labelled(families["toolpost_test"], "name="+clean) == nil {
			t.Errorf("%q is lost:\n%s", name, text)
		}
		if name == "" {
			continue // a tool without a name cannot be called
		}
		if labelled(families["toolpost_calls_total"], "tool="+clean) == nil {
			t.Errorf("the tool %q is lost:\n%s", name, text)
		}
	}
}

func TestTheMetricsTellNothingOfArgumentsOutputsAndErrors(t *testing.T) {
	tel := open(t, telemetry.Options{}, telemetry.Env{Redact: func(s string) string { return strings.ReplaceAll(s, "password", "[secret]") }})
	defer tel.Close(t.Context())
	invoke(t, tel, "reads", "fails", "refused", "breaks", "asks", "nobody-"+canary, "password")
	text, _ := scrape(t, tel)
	for _, bad := range []string{canary, "nobody", "password"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s is in the metrics:\n%s", bad, text)
		}
	}
	kit.Contains(t, text, `tool="[secret]"`, "the redacted name is missing")
}

func TestManyToolsTakeOnlySoMuchMemory(t *testing.T) {
	tel := open(t, telemetry.Options{}, telemetry.Env{})
	defer tel.Close(t.Context())
	var names []string
	for i := range 1100 {
		names = append(names, fmt.Sprint("tool", i))
	}
	invoke(t, tel, names...)
	_, families := scrape(t, tel)
	list := families["toolpost_calls_total"].GetMetric()
	total := 0.0
	for _, m := range list {
		total += m.GetCounter().GetValue()
	}
	rest := labelled(families["toolpost_calls_total"], "tool=other", "source=other", "outcome=ok").GetCounter().GetValue()
	if len(list) != 1001 || total != 1100 || rest != 100 {
		t.Errorf("%d series of %v calls, %v of them together", len(list), total, rest)
	}
}

func TestTheSectionIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"{}": "", "{otlp: 'http://127.0.0.1:4318'}": "", "{otlp: 'http://[::1]:4318/', sample: 0.25, traces: false}": "",
		"{otlp: 'https://c.example/otlp', headers: {Authorization: COLLECTOR}, interval: 5s, service: gate}": "",
		"{otlp: 'http://localhost:4318'}":                                           "",
		"{otlp: 'http://collector.example:4318'}":                                   "not encrypted",
		"{otlp: 'http://127.0.0.1.example:4318'}":                                   "not encrypted",
		"{otlp: 'https://me:pass@c.example'}":                                       "password",
		"{otlp: 'https://c.example?key=1'}":                                         "query",
		"{otlp: '127.0.0.1:4318'}":                                                  "expected a URL",
		"{otlp: 'grpc://127.0.0.1:4318'}":                                           "expected a URL",
		"{sample: 0.5}":                                                             "no collector",
		"{otlp: 'http://127.0.0.1:1', sample: 1.5}":                                 "0 to 1",
		"{otlp: 'http://127.0.0.1:1', interval: 10ms}":                              "too often",
		"{otlp: 'http://127.0.0.1:1', headers: {'a b': X}}":                         "cannot be a header",
		"{otlp: 'http://127.0.0.1:1', headers: {'content-type': X}}":                "cannot be a header",
		"{otlp: 'http://127.0.0.1:1', headers: {'X-Key': ''}}":                      "name a secret",
		"{otpl: 'http://127.0.0.1:1'}":                                              "did you mean \"otlp\"",
		"{otlp: 'http://127.0.0.1:1', service: '" + strings.Repeat("x", 256) + "'}": "longer",
	} {
		cfg, err := config.Parse("toolpost.yaml", []byte("telemetry: "+text+"\n"))
		kit.OK(t, err)
		var o telemetry.Options
		err = cfg.Section(telemetry.Section().Name).Decode(&o)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	kit.Fails(t, (&telemetry.Options{OTLP: "ftp://x"}).Validate(), "", "a collector that is reached by FTP")
}

func BenchmarkStage(b *testing.B) {
	result := &tool.Result{OK: true, Output: json.RawMessage(`{}`), Trace: tool.Trace{Tool: "reads", Source: "src", Protocol: "fake"}}
	inner := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return result, nil })
	c := &tool.Call{ID: tool.NewID(), Trace: tool.NewID(), Tool: "reads", Args: json.RawMessage(`{}`), Caller: tool.Principal{ID: "ada", Door: "http"}}
	never := new(float64)
	for name, o := range map[string]telemetry.Options{
		"metrics": {}, "unsampled": {OTLP: "http://127.0.0.1:1", Sample: never}, "traces": {OTLP: "http://127.0.0.1:1"},
	} {
		b.Run(name, func(b *testing.B) {
			tel := open(b, o, telemetry.Env{})
			defer tel.Close(b.Context())
			h := tel.For(nil)(inner)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = h.Invoke(b.Context(), c, tool.Discard)
				}
			})
		})
	}
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
