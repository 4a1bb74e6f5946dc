package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"toolpost/tool"
	"toolpost/wire/regex"
)

// Limits of what waits for a collector, and of the waiting time.
const (
	maxWaiting  = 2048 // spans; further ones are dropped and counted
	maxBatch    = 512  // spans in one message
	batchDelay  = time.Second
	postTimeout = 10 * time.Second
	closeTime   = 3 * time.Second
	firstPause  = time.Second
	retryTime   = 30 * time.Second // how long a batch is tried again
)

// A sender brings spans and metrics to a collector, with the exporters of OpenTelemetry, whose way out it is. No call
// waits for it: what cannot be sent is dropped and counted.
type sender struct {
	Env
	base      string
	headers   map[string]string // -> names of secrets
	transport *http.Transport
	shutdown  []func(context.Context) error

	waiting atomic.Int64 // spans
	sent    atomic.Int64 // spans
	dropped atomic.Int64 // spans
	failed  atomic.Int64 // messages
	failing atomic.Bool  // the last message did not arrive

	life    context.Context
	end     context.CancelFunc
	closing context.Context // how long what is left may take; set before life ends
}

// newSender starts what sends. Every option that a variable of the environment could set instead is given: what is sent,
// and to which collector, is decided by the config alone.
func newSender(o Options, t *Telemetry) (*sender, error) {
	s := &sender{
		Env: t.env, base: strings.TrimRight(o.OTLP, "/"), headers: o.Headers,
		transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
	}
	s.life, s.end = context.WithCancel(context.Background())
	client := &http.Client{
		Transport: s, Timeout: postTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // with our headers
	}
	about := resource.NewSchemaless(
		attribute.String("service.name", t.clean(cmp.Or(o.Service, "toolpost"))),
		attribute.String("service.version", t.clean(t.env.Version)), attribute.String("service.instance.id", tool.NewID()),
	)
	if o.Traces == nil || *o.Traces {
		to, err := otlptracehttp.New(s.life,
			otlptracehttp.WithEndpointURL(s.base+"/v1/traces"), otlptracehttp.WithHTTPClient(client),
			otlptracehttp.WithEncoding(otlptracehttp.EncodingJSON), otlptracehttp.WithCompression(otlptracehttp.NoCompression),
			otlptracehttp.WithHeaders(map[string]string{}), otlptracehttp.WithTLSClientConfig(nil),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
				Enabled: true, InitialInterval: firstPause, MaxInterval: retryTime, MaxElapsedTime: retryTime,
			}))
		if err != nil {
			return nil, err
		}
		t.tracer = s.tracer(to, about)
	}
	if o.Metrics == nil || *o.Metrics {
		to, err := otlpmetrichttp.New(s.life,
			otlpmetrichttp.WithEndpointURL(s.base+"/v1/metrics"), otlpmetrichttp.WithHTTPClient(client),
			otlpmetrichttp.WithCompression(otlpmetrichttp.NoCompression), otlpmetrichttp.WithHeaders(map[string]string{}),
			otlpmetrichttp.WithTLSClientConfig(nil),
			otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})) // the next ones have everything that these have
		if err != nil {
			return nil, err
		}
		reader := sdkmetric.NewPeriodicReader(measured{to, s}, sdkmetric.WithInterval(cmp.Or(o.Interval, time.Minute)),
			sdkmetric.WithTimeout(postTimeout), sdkmetric.WithProducer(t))
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(about))
		s.shutdown = append(s.shutdown, provider.Shutdown)
	}
	return s, nil
}

func (s *sender) tracer(to sdktrace.SpanExporter, about *resource.Resource) trace.Tracer {
	batches := sdktrace.NewBatchSpanProcessor(spans{to, s},
		sdktrace.WithMaxQueueSize(maxWaiting), sdktrace.WithMaxExportBatchSize(maxBatch),
		sdktrace.WithBatchTimeout(batchDelay), sdktrace.WithExportTimeout(retryTime+postTimeout))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(queue{batches, s}), sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // begin has decided
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{AttributeValueLengthLimit: -1, AttributeCountLimit: -1}))
	s.shutdown = append(s.shutdown, provider.Shutdown)
	return provider.Tracer("toolpost", trace.WithInstrumentationVersion(s.Version))
}

// A queue counts the spans that wait, and those that are dropped: the queue of the SDK does not report them.
type queue struct {
	sdktrace.SpanProcessor
	*sender
}

// OnEnd takes a span, or drops it.
func (q queue) OnEnd(span sdktrace.ReadOnlySpan) {
	if q.waiting.Add(1) > maxWaiting {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(span)
}

// spans counts the spans that an exporter sends.
type spans struct {
	sdktrace.SpanExporter
	*sender
}

// ExportSpans returns no error: RoundTrip has told it, without what the collector said.
func (e spans) ExportSpans(ctx context.Context, list []sdktrace.ReadOnlySpan) error {
	n, lost := int64(len(list)), int64(0)
	err := e.export(ctx, func(ctx context.Context) error { return e.SpanExporter.ExportSpans(ctx, list) })
	if err != nil {
		lost = n
		if some := rejected().FindStringSubmatch(err.Error()); some != nil {
			lost, _ = strconv.ParseInt(some[1], 10, 32)
		}
	}
	e.sent.Add(n - min(lost, n))
	e.dropped.Add(min(lost, n))
	e.waiting.Add(-n)
	return nil
}

// rejected is how the exporter says that the collector took a message but for some of its spans.
var rejected = regex.Lazy(`\((\d+) spans rejected\)$`)

// measured sends metrics.
type measured struct {
	sdkmetric.Exporter
	*sender
}

// Export returns no error, as ExportSpans.
func (e measured) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	_ = e.export(ctx, func(ctx context.Context) error { return e.Exporter.Export(ctx, all) })
	return nil
}

// export sends a message; if the sender is told to end meanwhile, once more.
func (s *sender) export(ctx context.Context, send func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if s.life.Err() == nil {
		if err := send(ctx); err == nil || s.life.Err() == nil {
			return err
		}
	}
	err := send(s.closing)
	if s.closing.Err() != nil && !s.failing.Load() { // there was no time to try
		s.note(err)
	}
	return err
}

// close sends what is left and ends all goroutines. It is called once.
func (s *sender) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	s.closing = ctx
	s.end()
	for _, shutdown := range s.shutdown {
		_ = shutdown(context.WithoutCancel(ctx)) // each message ends with ctx
	}
	s.dropped.Add(s.waiting.Swap(0))
	s.transport.CloseIdleConnections()
}

// RoundTrip brings a message of an exporter to the collector. A collector that cannot be reached is told to the exporter
// as one that asks for patience, so that it tries again; not at the end, when there is no time.
func (s *sender) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.post(r.Clone(r.Context()))
	failed := err
	if err == nil && resp.StatusCode/100 != 2 {
		failed = fmt.Errorf("the collector answered HTTP %s", resp.Status)
	}
	s.note(failed)
	if err != nil && s.life.Err() == nil {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Request: r}, nil
	}
	return resp, err
}

func (s *sender) post(r *http.Request) (*http.Response, error) {
	for name, from := range s.headers {
		value, err := s.Secret(from)
		if err != nil {
			return nil, err
		}
		r.Header.Set(name, value)
	}
	return s.transport.RoundTrip(r)
}

// note logs when messages start to fail, and when they arrive again, not each of them.
func (s *sender) note(err error) {
	was := s.failing.Swap(err != nil)
	if err != nil {
		s.failed.Add(1)
	}
	switch {
	case err != nil && !was:
		s.Log.Warn("telemetry cannot be sent; calls are not affected", "collector", s.base, "error", err.Error())
	case err == nil && was:
		s.Log.Info("telemetry is sent again", "collector", s.base)
	}
}

// samples returns the sender's own measurements.
func (s *sender) samples() []Sample {
	if s == nil {
		return nil
	}
	return []Sample{
		{Name: "toolpost_telemetry_spans_total", Help: "Spans that the collector took.", Value: float64(s.sent.Load())},
		{Name: "toolpost_telemetry_dropped_total", Help: "Spans that were not sent.", Value: float64(s.dropped.Load())},
		{Name: "toolpost_telemetry_failures_total", Help: "Messages that did not reach the collector.",
			Value: float64(s.failed.Load())},
	}
}
