package telemetry

import (
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The messages of OTLP as JSON has them: numbers of 64 bits are texts, and ids are hexadecimal digits. They are a
// documented form of their own, and the official library takes two milliseconds of every start of the program.
type (
	otlpTraces struct {
		ResourceSpans []otlpResourceSpans `json:"resourceSpans"`
	}
	otlpResourceSpans struct {
		Resource   otlpResource     `json:"resource"`
		ScopeSpans []otlpScopeSpans `json:"scopeSpans"`
	}
	otlpScopeSpans struct {
		Scope otlpScope  `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		Parent     string          `json:"parentSpanId,omitzero"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      string          `json:"startTimeUnixNano"`
		End        string          `json:"endTimeUnixNano"`
		Attributes []otlpAttribute `json:"attributes"`
		Status     otlpStatus      `json:"status"`
	}
	otlpStatus struct {
		Code int `json:"code,omitzero"`
	}
	otlpMetrics struct {
		ResourceMetrics []otlpResourceMetrics `json:"resourceMetrics"`
	}
	otlpResourceMetrics struct {
		Resource     otlpResource       `json:"resource"`
		ScopeMetrics []otlpScopeMetrics `json:"scopeMetrics"`
	}
	otlpScopeMetrics struct {
		Scope   otlpScope    `json:"scope"`
		Metrics []otlpMetric `json:"metrics"`
	}
	otlpMetric struct {
		Name        string    `json:"name"`
		Description string    `json:"description"`
		Unit        string    `json:"unit,omitzero"`
		Sum         *otlpData `json:"sum,omitzero"`
		Gauge       *otlpData `json:"gauge,omitzero"`
		Histogram   *otlpData `json:"histogram,omitzero"`
	}
	otlpData struct {
		Points      []otlpPoint `json:"dataPoints"`
		Temporality int         `json:"aggregationTemporality,omitzero"`
		Monotonic   bool        `json:"isMonotonic,omitzero"`
	}
	otlpPoint struct {
		Attributes []otlpAttribute `json:"attributes"`
		Start      string          `json:"startTimeUnixNano,omitzero"`
		Time       string          `json:"timeUnixNano"`
		Value      *float64        `json:"asDouble,omitzero"`
		Count      string          `json:"count,omitzero"`
		Sum        *float64        `json:"sum,omitzero"`
		Classes    []string        `json:"bucketCounts,omitzero"`
		Bounds     []float64       `json:"explicitBounds,omitzero"`
	}
	otlpResource struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	otlpScope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitzero"`
	}
	otlpAttribute struct {
		Key   string    `json:"key"`
		Value otlpValue `json:"value"`
	}
	otlpValue struct {
		Text   *string `json:"stringValue,omitzero"`
		Number string  `json:"intValue,omitzero"`
		Bool   bool    `json:"boolValue,omitzero"`
	}
)

// Numbers of OTLP.
const (
	kindServer  = 2
	statusError = 2
	cumulative  = 2
)

// A writer makes messages.
type writer struct {
	service, version, instance string

	start  time.Time
	redact func(string) string
}

func (w *writer) text(key, value string) otlpAttribute {
	clean := w.clean(value)
	return otlpAttribute{key, otlpValue{Text: &clean}}
}

// clean makes a text one that may leave the program, and that JSON can have: names can be anything.
func (w *writer) clean(text string) string { return strings.ToValidUTF8(w.redact(text), "\uFFFD") }

func (w *writer) resource() otlpResource {
	return otlpResource{[]otlpAttribute{
		w.text("service.name", w.service), w.text("service.version", w.version), w.text("service.instance.id", w.instance),
	}}
}

func (w *writer) scope() otlpScope { return otlpScope{"toolpost", w.clean(w.version)} }

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func (w *writer) traces(batch []*span) ([]byte, error) {
	spans := make([]otlpSpan, len(batch))
	for i, s := range batch {
		spans[i] = w.span(s)
	}
	return strictjson.Marshal(otlpTraces{[]otlpResourceSpans{{w.resource(), []otlpScopeSpans{{w.scope(), spans}}}}})
}

func (w *writer) span(s *span) otlpSpan {
	o := otlpSpan{
		TraceID: s.trace, SpanID: s.id, Parent: s.parent, Name: "tool " + w.clean(s.tool), Kind: kindServer,
		Start: nanos(s.start), End: nanos(s.end),
		Attributes: []otlpAttribute{
			w.text("toolpost.tool", s.tool), w.text("toolpost.source", s.source), w.text("toolpost.protocol", s.protocol),
			w.text("toolpost.door", s.door), w.text("toolpost.caller", s.caller), w.text("toolpost.call", s.call),
			w.text("toolpost.outcome", string(s.outcome)),
			{"toolpost.bytes_in", otlpValue{Number: strconv.Itoa(s.in)}}, {"toolpost.bytes_out", otlpValue{Number: strconv.Itoa(s.out)}},
		},
	}
	if s.code != "" {
		o.Attributes = append(o.Attributes, w.text("error.type", string(s.code)))
	}
	if s.cached {
		o.Attributes = append(o.Attributes, otlpAttribute{"toolpost.cached", otlpValue{Bool: true}})
	}
	if s.outcome != tool.OutcomeOK && s.outcome != tool.OutcomeAsked {
		o.Status.Code = statusError
	}
	return o
}

func (w *writer) metrics(all []family, now time.Time) ([]byte, error) {
	var list []otlpMetric
	for _, f := range all {
		if len(f.points) > 0 {
			list = append(list, w.metric(f, now))
		}
	}
	return strictjson.Marshal(otlpMetrics{[]otlpResourceMetrics{{w.resource(), []otlpScopeMetrics{{w.scope(), list}}}}})
}

func (w *writer) metric(f family, now time.Time) otlpMetric {
	m := otlpMetric{Name: f.Name, Description: f.Help, Unit: f.Unit}
	data := &otlpData{}
	for _, p := range f.points {
		data.Points = append(data.Points, w.point(p, now))
	}
	switch {
	case f.Counter:
		m.Sum, data.Temporality, data.Monotonic = data, cumulative, true
	case f.histogram():
		m.Histogram, data.Temporality = data, cumulative
	default:
		m.Gauge = data
		for i := range data.Points {
			data.Points[i].Start = ""
		}
	}
	return m
}

func (w *writer) point(p point, now time.Time) otlpPoint {
	o := otlpPoint{Start: nanos(w.start), Time: nanos(now)}
	for _, l := range p.labels {
		o.Attributes = append(o.Attributes, w.text("toolpost."+l.Name, l.Value))
	}
	if p.classes == nil {
		o.Value = &p.value
		return o
	}
	o.Sum, o.Count = &p.value, strconv.FormatInt(p.count(), 10)
	for _, n := range p.classes {
		o.Classes = append(o.Classes, strconv.FormatInt(n, 10))
	}
	for _, end := range bounds() {
		o.Bounds = append(o.Bounds, end.Seconds())
	}
	return o
}
