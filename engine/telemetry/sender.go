package telemetry

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"toolpost/tool"
)

// Bounds on what waits for a collector, and on how long it is waited for.
const (
	maxWaiting  = 2048 // spans; further ones are dropped and counted
	maxBatch    = 512  // spans in one message
	batchDelay  = time.Second
	postTimeout = 10 * time.Second
	sendTimeout = 30 * time.Second // of one message with all its tries
	closeTime   = 3 * time.Second
	firstPause  = time.Second
)

// A sender brings spans and metrics to a collector. The batches, the tries and the wire are those of the OpenTelemetry
// SDK; what is ours is that nobody waits for it, that what is not sent is counted, and that no secret leaves with it.
//
// The SDK gives errors of its own to a handler that the whole process shares and that prints them. So none get there:
// what goes wrong is noted where messages are sent, see transport.go.
type sender struct {
	*link
	redact   func(string) string
	start    time.Time
	measure  func() []family
	resource *resource.Resource
	scope    instrumentation.Scope

	spans    sdktrace.SpanProcessor
	readings *metric.MeterProvider // nil: no metrics are sent

	taken   atomic.Int64 // spans
	done    atomic.Int64 // spans that were sent or given up
	sent    atomic.Int64 // spans
	dropped atomic.Int64 // spans

	life context.Context // nothing is sent once it has ended
	end  context.CancelFunc
}

func newSender(o Options, env Env, every time.Duration, measure func() []family) (*sender, error) {
	s := &sender{
		link: newLink(o, env), redact: env.Redact, start: time.Now(), measure: measure,
		scope: instrumentation.Scope{Name: "toolpost", Version: env.Redact(env.Version)},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.resource = s.resourceOf(o, env.Version)
	spans, err := s.spanExporter(s.life)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "telemetry: %w", err)
	}
	if every > 0 {
		metrics, err := s.metricExporter(s.life)
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "telemetry: %w", err)
		}
		s.readings = metric.NewMeterProvider(metric.WithResource(s.resource),
			metric.WithReader(metric.NewPeriodicReader(
				quietMetrics{metrics, s}, metric.WithInterval(every), metric.WithTimeout(postTimeout),
				metric.WithProducer(s))))
	}
	s.spans = sdktrace.NewBatchSpanProcessor(countedSpans{spans, s}, sdktrace.WithMaxExportBatchSize(maxBatch),
		sdktrace.WithMaxQueueSize(maxWaiting), sdktrace.WithBatchTimeout(batchDelay),
		sdktrace.WithExportTimeout(sendTimeout))
	return s, nil
}

// resourceOf says who sends. What the config says wins over the variables OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES.
func (s *sender) resourceOf(o Options, version string) *resource.Resource {
	fixed := []attribute.KeyValue{s.text("service.version", version), s.text("service.instance.id", tool.NewID())}
	if o.Service != "" {
		fixed = append(fixed, s.text("service.name", o.Service))
	}
	r, err := resource.New(s.life, resource.WithAttributes(s.text("service.name", "toolpost")),
		resource.WithFromEnv(), resource.WithAttributes(fixed...))
	if err != nil { // and yet there is one, without what was wrong
		s.log.Warn("a variable of OpenTelemetry is ignored", "error", err.Error())
	}
	return r
}

// text is an attribute that may leave the program, and that every encoding can have: names can be anything.
func (s *sender) text(key, value string) attribute.KeyValue {
	return attribute.String(key, s.clean(value))
}

func (s *sender) clean(text string) string { return strings.ToValidUTF8(s.redact(text), "\uFFFD") }

// take takes a span, or drops it. It looks itself for room in the queue: the SDK would not say that there was none.
func (s *sender) take(one *span) {
	if s.taken.Add(1)-s.done.Load() > maxWaiting {
		s.done.Add(1)
		s.dropped.Add(1)
		return
	}
	s.spans.OnEnd(s.span(one))
}

// span is what is told of a call: in our own words, and in those that OpenTelemetry has for tools of AI agents.
func (s *sender) span(one *span) sdktrace.ReadOnlySpan {
	id, _ := trace.TraceIDFromHex(one.trace) // hexadecimal digits of the right number
	spanID, _ := trace.SpanIDFromHex(one.id)
	stub := tracetest.SpanStub{
		Name: "tool " + s.clean(one.tool), SpanKind: trace.SpanKindServer, StartTime: one.start, EndTime: one.end,
		SpanContext: spanContext(id, spanID),
		Attributes: []attribute.KeyValue{
			s.text("toolpost.tool", one.tool), s.text("toolpost.source", one.source),
			s.text("toolpost.protocol", one.protocol),
			s.text("toolpost.door", one.door), s.text("toolpost.caller", one.caller), s.text("toolpost.call", one.call),
			s.text("toolpost.outcome", string(one.outcome)),
			attribute.Int("toolpost.bytes_in", one.in), attribute.Int("toolpost.bytes_out", one.out),
			attribute.String("gen_ai.operation.name", "execute_tool"),
			s.text("gen_ai.tool.name", one.tool), s.text("gen_ai.tool.call.id", one.call),
		},
		Resource: s.resource, InstrumentationScope: s.scope,
	}
	if parent, err := trace.SpanIDFromHex(one.parent); err == nil {
		stub.Parent = spanContext(id, parent).WithRemote(true)
	}
	if one.code != "" {
		stub.Attributes = append(stub.Attributes, s.text("error.type", string(one.code)))
	}
	if one.cached {
		stub.Attributes = append(stub.Attributes, attribute.Bool("toolpost.cached", true))
	}
	if one.outcome != tool.OutcomeOK && one.outcome != tool.OutcomeAsked {
		stub.Status.Code = codes.Error
	}
	return stub.Snapshot()
}

func spanContext(id trace.TraceID, span trace.SpanID) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled})
}

// close sends what is left. It is called once.
func (s *sender) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	defer s.end()
	context.AfterFunc(ctx, s.end)
	// With life every message ends that is under way, so these wait no longer than ctx.
	var both sync.WaitGroup
	both.Go(func() { _ = s.spans.Shutdown(context.Background()) })
	if s.readings != nil {
		both.Go(func() { _ = s.readings.Shutdown(context.Background()) })
	}
	both.Wait()
	s.hangUp()
}

// untilHangUp ends a message with the sender.
func (s *sender) untilHangUp(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// countedSpans counts what becomes of spans.
type countedSpans struct {
	sdktrace.SpanExporter
	s *sender
}

// ExportSpans implements trace.SpanExporter.
func (c countedSpans) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	ctx, cancel := c.s.untilHangUp(ctx)
	defer cancel()
	all := int64(len(batch))
	lost := min(lostSpans(c.SpanExporter.ExportSpans(ctx, batch)), all)
	c.s.sent.Add(all - lost)
	c.s.dropped.Add(lost)
	c.s.done.Add(all)
	return nil
}

// lostSpans says how many spans of a batch are lost. A collector may take a part of them, which the SDK says in words
// alone: "... (3 spans rejected)".
func lostSpans(err error) int64 {
	if err == nil {
		return 0
	}
	if said, ok := strings.CutSuffix(err.Error(), " spans rejected)"); ok {
		if n, err := strconv.ParseInt(said[strings.LastIndexByte(said, '(')+1:], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return math.MaxInt64
}

// quietMetrics keeps errors to itself: the next metrics have everything that these have.
type quietMetrics struct {
	metric.Exporter
	s *sender
}

// Export implements metric.Exporter.
func (q quietMetrics) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	ctx, cancel := q.s.untilHangUp(ctx)
	defer cancel()
	_ = q.Exporter.Export(ctx, m)
	return nil
}

// Produce implements metric.Producer: what is measured is counted here, for Prometheus too, and only sent by the SDK.
func (s *sender) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := time.Now()
	all := metricdata.ScopeMetrics{Scope: s.scope}
	for _, f := range s.measure() {
		if len(f.points) > 0 {
			all.Metrics = append(all.Metrics, metricdata.Metrics{
				Name: f.Name, Description: f.Help, Unit: f.Unit, Data: s.aggregation(f, now),
			})
		}
	}
	return []metricdata.ScopeMetrics{all}, nil
}

func (s *sender) aggregation(f family, now time.Time) metricdata.Aggregation {
	if f.histogram() {
		h := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
		for _, p := range f.points {
			h.DataPoints = append(h.DataPoints, s.histogram(p, now))
		}
		return h
	}
	var points []metricdata.DataPoint[float64]
	for _, p := range f.points {
		points = append(points, metricdata.DataPoint[float64]{
			Attributes: s.labels(p), StartTime: s.start, Time: now, Value: p.value,
		})
	}
	if f.Counter {
		return metricdata.Sum[float64]{
			DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
		}
	}
	for i := range points {
		points[i].StartTime = time.Time{}
	}
	return metricdata.Gauge[float64]{DataPoints: points}
}

func (s *sender) histogram(p point, now time.Time) metricdata.HistogramDataPoint[float64] {
	h := metricdata.HistogramDataPoint[float64]{
		Attributes: s.labels(p), StartTime: s.start, Time: now, Count: uint64(p.count()), Sum: p.value,
	}
	for _, end := range bounds() {
		h.Bounds = append(h.Bounds, end.Seconds())
	}
	for _, n := range p.classes {
		h.BucketCounts = append(h.BucketCounts, uint64(n))
	}
	return h
}

func (s *sender) labels(p point) attribute.Set {
	list := make([]attribute.KeyValue, len(p.labels))
	for i, l := range p.labels {
		list[i] = s.text("toolpost."+l.Name, l.Value)
	}
	return attribute.NewSet(list...)
}

// samples tells how the sending goes.
func (s *sender) samples() []Sample {
	count := func(name, help string, n int64) Sample {
		return Sample{Name: "toolpost.telemetry." + name, Help: help, Counter: true, Value: float64(n)}
	}
	return []Sample{
		count("spans", "Spans that the collector took.", s.sent.Load()),
		count("dropped", "Spans that were not sent.", s.dropped.Load()),
		count("failures", "Messages that did not reach the collector.", s.failures()),
	}
}
