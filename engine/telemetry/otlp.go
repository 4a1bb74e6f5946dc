package telemetry

import (
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The messages of OTLP in JSON: 64-bit numbers are strings, and ids are hexadecimal digits. This is a documented
// encoding of its own, and the official library takes two milliseconds of every start of the program.
type (
	object    = map[string]any
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text   *string `json:"stringValue,omitzero"`
		Number string  `json:"intValue,omitzero"`
		Bool   bool    `json:"boolValue,omitzero"`
	}
)

// Constants of OTLP.
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

func (w *writer) text(key, text string) attribute {
	clean := w.clean(text)
	return attribute{key, value{Text: &clean}}
}

// clean removes secrets and invalid UTF-8 from a text: names can contain anything.
func (w *writer) clean(text string) string { return strings.ToValidUTF8(w.redact(text), "\uFFFD") }

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// message wraps spans or metrics, which have the same envelope in OTLP.
func (w *writer) message(kind string, items []object) ([]byte, error) {
	return strictjson.Marshal(object{"resource" + kind: []object{{
		"resource": object{"attributes": []attribute{
			w.text("service.name", w.service), w.text("service.version", w.version),
			w.text("service.instance.id", w.instance),
		}},
		"scope" + kind: []object{{
			"scope": object{"name": "toolpost", "version": w.clean(w.version)}, strings.ToLower(kind): items,
		}},
	}}})
}

func (w *writer) traces(batch []*span) ([]byte, error) {
	spans := make([]object, len(batch))
	for i, s := range batch {
		spans[i] = w.span(s)
	}
	return w.message("Spans", spans)
}

func (w *writer) span(s *span) object {
	attributes := []attribute{
		w.text("toolpost.tool", s.tool), w.text("toolpost.source", s.source), w.text("toolpost.protocol", s.protocol),
		w.text("toolpost.door", s.door), w.text("toolpost.caller", s.caller), w.text("toolpost.call", s.call),
		w.text("toolpost.outcome", string(s.outcome)),
		{"toolpost.bytes_in", value{Number: strconv.Itoa(s.in)}},
		{"toolpost.bytes_out", value{Number: strconv.Itoa(s.out)}},
	}
	if s.code != "" {
		attributes = append(attributes, w.text("error.type", string(s.code)))
	}
	if s.cached {
		attributes = append(attributes, attribute{"toolpost.cached", value{Bool: true}})
	}
	o := object{
		"traceId": s.trace, "spanId": s.id, "name": "tool " + w.clean(s.tool), "kind": kindServer,
		"startTimeUnixNano": nanos(s.start), "endTimeUnixNano": nanos(s.end), "attributes": attributes,
	}
	if s.parent != "" {
		o["parentSpanId"] = s.parent
	}
	if s.outcome != tool.OutcomeOK && s.outcome != tool.OutcomeAsked {
		o["status"] = object{"code": statusError}
	}
	return o
}

func (w *writer) metrics(all []family, now time.Time) ([]byte, error) {
	var list []object
	for _, f := range all {
		if len(f.points) > 0 {
			list = append(list, w.metric(f, now))
		}
	}
	return w.message("Metrics", list)
}

func (w *writer) metric(f family, now time.Time) object {
	kind, data := "gauge", object{}
	switch {
	case f.Counter:
		kind, data = "sum", object{"aggregationTemporality": cumulative, "isMonotonic": true}
	case f.histogram():
		kind, data = "histogram", object{"aggregationTemporality": cumulative}
	}
	points := make([]object, len(f.points))
	for i, p := range f.points {
		points[i] = w.point(p)
		points[i]["timeUnixNano"] = nanos(now)
		if kind != "gauge" {
			points[i]["startTimeUnixNano"] = nanos(w.start)
		}
	}
	data["dataPoints"] = points
	return object{"name": f.Name, "description": f.Help, "unit": f.Unit, kind: data}
}

func (w *writer) point(p point) object {
	attributes := []attribute{}
	for _, l := range p.labels {
		attributes = append(attributes, w.text("toolpost."+l.Name, l.Value))
	}
	if p.classes == nil {
		return object{"attributes": attributes, "asDouble": p.value}
	}
	var classes []string
	for _, n := range p.classes {
		classes = append(classes, strconv.FormatInt(n, 10))
	}
	var ends []float64
	for _, end := range bounds() {
		ends = append(ends, end.Seconds())
	}
	return object{
		"attributes": attributes, "sum": p.value, "count": strconv.FormatInt(p.count(), 10), "bucketCounts": classes,
		"explicitBounds": ends,
	}
}
