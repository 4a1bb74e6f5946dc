package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"toolpost/engine/telemetry"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// The messages of OTLP, written from its specification: JSON in the mapping of proto3, with ids in hexadecimal digits.
// Metrics come as protobuf, and are turned into the same.
type (
	value struct {
		String *string      `json:"stringValue"`
		Int    *json.Number `json:"intValue"`
		Bool   *bool        `json:"boolValue"`
		Double *float64     `json:"doubleValue"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	attributes []attribute
	scope      struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	resource struct {
		Attributes attributes `json:"attributes"`
	}
	gotSpan struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		Parent     string     `json:"parentSpanId"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Flags      int        `json:"flags"`
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes attributes `json:"attributes"`
		Status     struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"status"`
	}
	traces struct {
		ResourceSpans []struct {
			Resource   resource `json:"resource"`
			ScopeSpans []struct {
				Scope scope     `json:"scope"`
				Spans []gotSpan `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	dataPoint struct {
		Attributes attributes `json:"attributes"`
		Start      string     `json:"startTimeUnixNano"`
		Time       string     `json:"timeUnixNano"`
		Double     *float64   `json:"asDouble"`
		Count      string     `json:"count"`
		Sum        *float64   `json:"sum"`
		Buckets    []string   `json:"bucketCounts"`
		Bounds     []float64  `json:"explicitBounds"`
	}
	data struct {
		Points      []dataPoint `json:"dataPoints"`
		Temporality int         `json:"aggregationTemporality"`
		Monotonic   bool        `json:"isMonotonic"`
	}
	gotMetric struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Unit        string `json:"unit"`
		Sum         *data  `json:"sum"`
		Gauge       *data  `json:"gauge"`
		Histogram   *data  `json:"histogram"`
	}
	metrics struct {
		ResourceMetrics []struct {
			Resource     resource `json:"resource"`
			ScopeMetrics []struct {
				Scope   scope       `json:"scope"`
				Metrics []gotMetric `json:"metrics"`
			} `json:"scopeMetrics"`
		} `json:"resourceMetrics"`
	}
)

func (list attributes) text(t testing.TB, key string) string {
	t.Helper()
	for _, a := range list {
		if a.Key == key && a.Value.String != nil {
			return *a.Value.String
		}
		if a.Key == key && a.Value.Int != nil {
			return a.Value.Int.String()
		}
	}
	return ""
}

// A collector accepts what OTLP allows and nothing else.
type collector struct {
	t      testing.TB
	url    string
	answer func(path string, n int) (status int, body string) // nil means that everything is accepted

	mu       sync.Mutex
	requests map[string]int
	headers  []http.Header
	spans    []gotSpan
	metrics  map[string]gotMetric // the last of each name
	raw      bytes.Buffer
}

func collect(t testing.TB, answer func(string, int) (int, string)) *collector {
	c := &collector{t: t, answer: answer, requests: map[string]int{}, metrics: map[string]gotMetric{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender gave up
	}
	wants := map[string]string{"/v1/traces": "application/json", "/v1/metrics": "application/x-protobuf"}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != wants[r.URL.Path] {
		c.t.Errorf("%s %s of %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	c.requests[r.URL.Path]++
	c.headers = append(c.headers, r.Header.Clone())
	status, reply := 200, "{}"
	if c.answer != nil {
		status, reply = c.answer(r.URL.Path, c.requests[r.URL.Path])
	}
	if status == 200 {
		c.raw.Write(body)
		c.keep(r.URL.Path, body)
	}
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTemporaryRedirect {
		w.Header().Set("Location", reply)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, reply)
}

func (c *collector) keep(path string, body []byte) {
	strict := func(into any) {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			c.t.Errorf("%s is not OTLP: %v\n%s", path, err, body)
		}
	}
	switch path {
	case "/v1/traces":
		var m traces
		strict(&m)
		for _, rs := range m.ResourceSpans {
			c.service(rs.Resource)
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					c.span(s)
				}
			}
		}
	case "/v1/metrics":
		var sent metricspb.MetricsData
		kit.Check(c.t, proto.Unmarshal(body, &sent), "%s is not OTLP", path)
		body, _ = protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&sent)
		var m metrics
		strict(&m)
		for _, rm := range m.ResourceMetrics {
			c.service(rm.Resource)
			for _, sm := range rm.ScopeMetrics {
				for _, one := range sm.Metrics {
					c.metric(one)
				}
			}
		}
	default:
		c.t.Errorf("there is no %s in OTLP", path)
	}
}

func (c *collector) service(r resource) {
	for _, key := range []string{"service.name", "service.version", "service.instance.id"} {
		if r.Attributes.text(c.t, key) == "" {
			c.t.Errorf("the resource has no %s", key)
		}
	}
}

func (c *collector) span(s gotSpan) {
	s.TraceID, s.SpanID, s.Parent = strings.ToLower(s.TraceID), strings.ToLower(s.SpanID), strings.ToLower(s.Parent) // OTLP allows both
	start, end := number(c.t, s.Start), number(c.t, s.End)
	zero := regexp.MustCompile(`^0+$`)
	for id, n := range map[string]int{s.TraceID: 32, s.SpanID: 16, s.Parent: 16} {
		if id == s.Parent && id == "" {
			continue
		}
		if !regexp.MustCompile(fmt.Sprintf(`^[0-9a-f]{%d}$`, n)).MatchString(id) || zero.MatchString(id) {
			c.t.Errorf("%q is no id of %d digits", id, n)
		}
	}
	if end < start || start == 0 || s.Name == "" || s.Kind != 2 || s.Status.Code < 0 || s.Status.Code > 2 || s.Status.Message != "" {
		c.t.Errorf("a span is wrong: %+v", s)
	}
	c.attributes(s.Attributes)
	c.spans = append(c.spans, s)
}

// attributes checks that keys are unique and that each has exactly one value.
func (c *collector) attributes(list attributes) {
	seen := map[string]bool{}
	for _, a := range list {
		n := 0
		for _, is := range []bool{a.Value.String != nil, a.Value.Int != nil, a.Value.Bool != nil, a.Value.Double != nil} {
			if is {
				n++
			}
		}
		if seen[a.Key] || a.Key == "" || n != 1 {
			c.t.Errorf("the attribute %q is there twice, or has %d values", a.Key, n)
		}
		seen[a.Key] = true
	}
}

func (c *collector) metric(m gotMetric) {
	for kind, d := range map[string]*data{"sum": m.Sum, "gauge": m.Gauge, "histogram": m.Histogram} {
		if d == nil {
			continue
		}
		if wrong := (d.Temporality != 2) != (kind == "gauge"); wrong || d.Monotonic != (kind == "sum") {
			c.t.Errorf("%s: temporality %d, monotonic %v", m.Name, d.Temporality, d.Monotonic)
		}
		for _, p := range d.Points {
			c.attributes(p.Attributes)
			if number(c.t, p.Time) == 0 || (p.Start == "") != (kind == "gauge") || (p.Double == nil) != (kind == "histogram") {
				c.t.Errorf("%s: a point is wrong: %+v", m.Name, p)
			}
			if kind == "histogram" {
				c.histogram(m.Name, p)
			}
		}
	}
	c.metrics[m.Name] = m
}

func (c *collector) histogram(name string, p dataPoint) {
	total := uint64(0)
	for _, n := range p.Buckets {
		total += number(c.t, n)
	}
	if len(p.Buckets) != len(p.Bounds)+1 || total != number(c.t, p.Count) || p.Sum == nil {
		c.t.Errorf("%s: a histogram is wrong: %+v", name, p)
	}
}

func number(t testing.TB, text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Errorf("%q is no number of 64 bits", text)
	}
	return n
}

func (c *collector) count(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[path]
}

func TestACollectorGetsSpansAndMetrics(t *testing.T) {
	for name, value := range map[string]string{ // the config decides, not the environment
		"EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1", "EXPORTER_OTLP_HEADERS": "x-key=other,x-env=other",
		"EXPORTER_OTLP_COMPRESSION": "gzip", "EXPORTER_OTLP_PROTOCOL": "grpc", "TRACES_SAMPLER": "always_off",
		"SERVICE_NAME": "other", "SPAN_ATTRIBUTE_COUNT_LIMIT": "1", "BSP_MAX_QUEUE_SIZE": "1", "METRIC_EXPORT_INTERVAL": "1", "SDK_DISABLED": "true",
	} {
		t.Setenv("OTEL_"+name, value)
	}
	c := collect(t, nil)
	tel := open(t, telemetry.Options{OTLP: c.url + "/", Service: "gate", Headers: map[string]string{"X-Key": "KEY"}}, telemetry.Env{
		Version: "1.2", Secret: func(name string) (string, error) { return "value of " + name, nil }, Node: func() string { return "mill" },
	})
	var inside tool.Call
	h := tel.For(nil)(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		inside = *c
		r, err := fake(ctx, c, out)
		r.Trace.Cached = true
		return r, err
	}))
	const trace, parent = "0af76519-16cd-43dd-8448-eb211c80319c", "b7ad6b7169203331"
	call := &tool.Call{Tool: "reads", Args: []byte(`{}`), Trace: trace, Span: parent, Caller: tool.Principal{ID: "ada", Door: "mcp"}}
	if _, err := h.Invoke(t.Context(), call, tool.Discard); err != nil || call.Span != parent || call.ID != "" {
		t.Fatalf("%v, and the call is now %+v", err, call)
	}
	invoke(t, tel, "breaks")
	tel.Close(kit.Context(t))
	kit.MustEqual(t, len(c.spans), 2, "spans")
	first, second := c.spans[0], c.spans[1]
	if first.TraceID != "0af7651916cd43dd8448eb211c80319c" || first.Parent != parent || first.SpanID != inside.Span || inside.Trace != trace || first.Name != "execute_tool reads" {
		t.Errorf("the span %+v of the call %+v", first, inside)
	}
	for key, want := range map[string]string{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "reads", "gen_ai.tool.call.id": inside.ID, "mcp.method.name": "tools/call", "toolpost.source": "src", "toolpost.protocol": "fake", "toolpost.door": "mcp", "toolpost.caller": "ada", "toolpost.node": "mill",
		"toolpost.outcome": "ok", "toolpost.bytes_in": "2", "toolpost.bytes_out": strconv.Itoa(len(canary) + 2),
	} {
		kit.Equal(t, first.Attributes.text(t, key), want, key)
	}
	if second.Parent != "" || second.TraceID == first.TraceID || second.Status.Code != 2 || second.Attributes.text(t, "error.type") != "internal" || second.Attributes.text(t, "mcp.method.name") != "" {
		t.Errorf("the span of a call that breaks: %+v", second)
	}
	if m := c.metrics["toolpost.calls"]; m.Sum == nil || len(m.Sum.Points) != 2 || *m.Sum.Points[1].Double != 1 {
		t.Errorf("calls: %+v", m)
	}
	if m := c.metrics["toolpost.call.duration"]; m.Histogram == nil || m.Unit != "s" || m.Histogram.Points[0].Count != "1" {
		t.Errorf("durations: %+v", m)
	}
	for _, h := range c.headers {
		if h.Get("X-Key") != "value of KEY" || h.Get("X-Env") != "" {
			t.Errorf("headers %v", h)
		}
	}
	if !bytes.Contains(c.raw.Bytes(), []byte(`"gate"`)) || !bytes.Contains(c.raw.Bytes(), []byte(`"toolpost.cached"`)) {
		t.Errorf("no service, or not cached:\n%s", c.raw.Bytes())
	}
}

func TestSpansTellNothingOfArgumentsOutputsAndErrors(t *testing.T) {
	c := collect(t, nil)
	tel := open(t, telemetry.Options{OTLP: c.url}, telemetry.Env{
		Version: "1", Redact: func(s string) string { return strings.ReplaceAll(s, "password", "[secret]") },
	})
	invoke(t, tel, "reads", "fails", "refused", "breaks", "asks", "nobody-"+canary, "password", "bad\xffname\"\n")
	call := &tool.Call{Tool: "reads", ID: "password", Trace: "password", Span: "password", Caller: tool.Principal{ID: "password\xff", Door: "password"}}
	_, _ = tel.For(nil)(tool.HandlerFunc(fake)).Invoke(t.Context(), call, tool.Discard)
	tel.Close(kit.Context(t))
	kit.Equal(t, len(c.spans), 9, "spans")
	for _, bad := range []string{canary, "nobody", "password"} {
		if strings.Contains(c.raw.String(), bad) {
			t.Errorf("%s is told:\n%s", bad, c.raw.String())
		}
	}
}

func TestSamplingIsTheSameInEveryProcess(t *testing.T) {
	half := 0.5
	var kept [2]map[string]bool
	var ids []string
	for range 400 {
		ids = append(ids, tool.NewID())
	}
	for i := range kept {
		c := collect(t, nil)
		tel := open(t, telemetry.Options{OTLP: c.url, Sample: &half, Metrics: new(bool)}, telemetry.Env{Version: "1"})
		h := tel.For(nil)(tool.HandlerFunc(fake))
		for _, id := range ids {
			_, _ = h.Invoke(t.Context(), &tool.Call{Tool: "reads", Trace: id}, tool.Discard)
		}
		tel.Close(kit.Context(t))
		kept[i] = map[string]bool{}
		for _, s := range c.spans {
			kept[i][s.TraceID] = true
		}
		kit.Equal(t, c.count("/v1/metrics"), 0, "metrics were sent that nobody wanted")
	}
	if n := len(kept[0]); n < 100 || n > 300 || fmt.Sprint(keysOf(kept[0])) != fmt.Sprint(keysOf(kept[1])) {
		t.Errorf("%d and %d of %d traces", len(kept[0]), len(kept[1]), len(ids))
	}
}

func TestATraceThatIsNotSampledIsPassedOn(t *testing.T) {
	tel := open(t, telemetry.Options{OTLP: "http://127.0.0.1:1", Sample: new(float64), Metrics: new(bool)}, telemetry.Env{})
	defer tel.Close(kit.Context(t))
	h := tel.For(nil)(tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		if c.Span != "b7ad6b7169203331" || c.Trace != "0af76519-16cd-43dd-8448-eb211c80319c" {
			t.Errorf("the call became %+v", c)
		}
		return &tool.Result{OK: true}, nil
	}))
	_, _ = h.Invoke(t.Context(), &tool.Call{Trace: "0af76519-16cd-43dd-8448-eb211c80319c", Span: "b7ad6b7169203331"}, tool.Discard)
}

func TestSpansAreResentWhenTheCollectorIsUnavailable(t *testing.T) {
	c := collect(t, func(path string, n int) (int, string) {
		if path == "/v1/traces" && n == 1 {
			return http.StatusServiceUnavailable, "later"
		}
		return 200, `{"partialSuccess":{"rejectedSpans":"1","errorMessage":"one is too many"}}`
	})
	tel := open(t, telemetry.Options{OTLP: c.url}, telemetry.Env{Version: "1"})
	invoke(t, tel, "reads", "reads", "reads")
	value := func(name string) float64 {
		_, families := scrape(t, tel)
		return families[name].GetMetric()[0].GetCounter().GetValue()
	}
	kit.Eventually(t, "a second try", func() bool { return value("toolpost_telemetry_spans_total") > 0 })
	tel.Close(kit.Context(t))
	if sent, dropped, failed := value("toolpost_telemetry_spans_total"), value("toolpost_telemetry_dropped_total"), value("toolpost_telemetry_failures_total"); sent != 2 || dropped != 1 || failed != 1 {
		t.Errorf("%v sent, %v dropped, %v failed", sent, dropped, failed)
	}
	kit.Equal(t, len(c.spans), 3, "spans")
}

// silent accepts connections and never answers.
func silent(t testing.TB) string {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return "http://" + l.Addr().String()
}

func TestADeadCollectorHoldsUpNoCallAndNoEnd(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	refuses := collect(t, func(string, int) (int, string) { return http.StatusUnauthorized, canary })
	other := collect(t, nil)
	away := collect(t, func(path string, _ int) (int, string) { return http.StatusTemporaryRedirect, other.url + path })
	for name, url := range map[string]string{"gone": gone.URL, "silent": silent(t), "refuses": refuses.url, "redirects": away.url} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			tel := open(t, telemetry.Options{OTLP: url, Interval: time.Second}, telemetry.Env{
				Version: "1", Log: slog.New(slog.NewTextHandler(&logged, nil)),
			})
			calls := 100
			if name == "silent" {
				calls = 3000 // more than can wait
			}
			for range calls {
				invoke(t, tel, "reads")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			tel.Close(ctx)
			_, families := scrape(t, tel)
			if n := families["toolpost_telemetry_dropped_total"].GetMetric()[0].GetCounter().GetValue(); n != float64(calls) {
				t.Errorf("%v spans of %d were dropped", n, calls)
			}
			if n := strings.Count(logged.String(), "cannot be sent"); n != 1 {
				t.Errorf("%d warnings:\n%s", n, logged.String())
			}
			if strings.Contains(logged.String(), canary) {
				t.Error("the log has what the collector said")
			}
		})
	}
	if len(other.headers) > 0 {
		t.Error("somebody else than the collector got something")
	}
}

func TestAHeaderWhoseSecretIsMissingSendsNothing(t *testing.T) {
	c := collect(t, nil)
	tel := open(t, telemetry.Options{OTLP: c.url, Headers: map[string]string{"X-Key": "KEY"}}, telemetry.Env{Version: "1"})
	invoke(t, tel, "reads")
	tel.Close(kit.Context(t))
	kit.Equal(t, len(c.headers), 0, "messages without their header")
}
