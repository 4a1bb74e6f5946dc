// Package telemetry is the stage that measures calls: it counts them, times them and gives each a span in its trace.
// Adapters know nothing of it. Its data has names, codes and sizes, and never an argument, an output or the message of
// an error.
package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"toolpost/config"
	"toolpost/tool"
)

// Options is the telemetry section of a config.
type Options struct {
	OTLP     string            `yaml:"otlp" doc:"OTLP/HTTP address of an OpenTelemetry collector, such as http://127.0.0.1:4318; must be https unless it is on this machine; default: nothing is sent"`
	Headers  map[string]string `yaml:"headers" doc:"headers to send to the collector, each with the name of the secret that holds its value"`
	Traces   *bool             `yaml:"traces" schema:"default=true" doc:"whether to send spans"`
	Metrics  *bool             `yaml:"metrics" schema:"default=true" doc:"whether to send metrics"`
	Sample   *float64          `yaml:"sample" schema:"default=1" doc:"share of traces to send, from 0 to 1"`
	Service  string            `yaml:"service" schema:"default=toolpost" doc:"service name in the telemetry"`
	Interval time.Duration     `yaml:"interval" schema:"default=60s" doc:"how often metrics are sent"`
}

// Validate implements config's validator.
func (o *Options) Validate() error {
	if o.OTLP == "" {
		if len(o.Headers) > 0 || o.Traces != nil || o.Metrics != nil || o.Sample != nil ||
			o.Service != "" || o.Interval != 0 {
			return fmt.Errorf("the telemetry has no collector to go to; give it one, such as `otlp: " +
				"http://127.0.0.1:4318`, or leave the section out")
		}
		return nil
	}
	if err := checkCollector(o.OTLP); err != nil {
		return err
	}
	for name, secret := range o.Headers {
		if !headerName(name) || strings.EqualFold(name, "Content-Type") || strings.EqualFold(name, "Host") {
			return fmt.Errorf("%.40q cannot be a header for the collector", name)
		}
		if secret == "" {
			return fmt.Errorf("the header %s has no value; name a secret of the section `secrets`", name)
		}
	}
	switch {
	case o.Sample != nil && (*o.Sample < 0 || *o.Sample > 1):
		return fmt.Errorf("sample is %v; expected a share from 0 to 1", *o.Sample)
	case o.Interval != 0 && o.Interval < time.Second:
		return fmt.Errorf("metrics every %v is too often; expected 1s or more", o.Interval)
	case len(o.Service) > 255:
		return fmt.Errorf("the name of the service is longer than 255 bytes")
	}
	return nil
}

// checkCollector refuses addresses to which spans would travel unencrypted, and those that contain a password.
func checkCollector(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("otlp: expected a URL, such as https://collector.example:4318")
	case u.User != nil:
		return fmt.Errorf("otlp: the URL has a password in it; put it into a secret and name that under `headers`")
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("otlp: the URL has a query or a fragment, and /v1/traces is put behind it; leave them out")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return fmt.Errorf(
			"otlp: %s is another machine, and http is not encrypted; use https, or a collector on this one", u.Hostname())
	}
	return nil
}

func headerName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return name != "" && len(name) <= 255 && strings.Trim(name, letters+"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Env is what telemetry needs of the surrounding program. All of it is required.
type Env struct {
	Version string
	Log     *slog.Logger
	// Lookup finds the tool of a call whose result does not name it; it is that of a tool.Catalog.
	Lookup  func(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error)
	Secret  func(name string) (string, error) // returns the values of headers
	Redact  func(text string) string          // removes secrets from everything that leaves the program
	Samples func() []Sample                   // returns further measurements
	Node    func() string                     // returns the name of this node of a fleet, or ""
}

// A Telemetry measures the calls of one process.
type Telemetry struct {
	env     Env
	started time.Time
	calls   table[labels, series]
	running table[string, atomic.Int64] // calls that run
	send    *sender                     // nil: nothing is sent
	tracer  trace.Tracer                // nil: calls have no spans
	sample  uint64                      // of 2^56 traces, how many are sent
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{Name: "telemetry", Doc: "where traces and metrics go; default: nowhere", Options: Options{}}
}

// Open makes the telemetry of a config; see New.
func Open(cfg *config.Config, env Env) (*Telemetry, error) {
	var o Options
	if err := cfg.Section(Section().Name).Decode(&o); err != nil {
		return nil, err
	}
	return New(o, env)
}

// New makes a telemetry of options that are valid. It sends nothing before the first call ends, and must be closed.
func New(o Options, env Env) (*Telemetry, error) {
	t := &Telemetry{env: env, started: time.Now(), sample: shares}
	t.calls.most, t.calls.kept = maxSeries, labels.kept
	t.running.most, t.running.kept = maxDoors, kept
	if o.OTLP == "" {
		return t, nil
	}
	if o.Sample != nil {
		t.sample = uint64(*o.Sample * shares)
	}
	var err error
	t.send, err = newSender(o, t)
	return t, err
}

// Close sends what is waiting, as far as that can be done quickly and before ctx ends. On a nil Telemetry it does
// nothing.
func (t *Telemetry) Close(ctx context.Context) {
	if t != nil && t.send != nil {
		t.send.close(ctx)
	}
}

// clean makes a text one that may leave the program, and that a message can have: names can be anything.
func (t *Telemetry) clean(text string) string {
	return strings.ToValidUTF8(t.env.Redact(text), "\uFFFD")
}

// For is an engine.Stage, and the same for every tool.
func (t *Telemetry) For(*tool.Spec) tool.Middleware { return t.stage }

func (t *Telemetry) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
		inside := t.running.of(door(c))
		inside.Add(1)
		start := c.Start()
		var span trace.Span
		if t.tracer != nil {
			span, c = t.begin(c, start)
		}
		defer func() { // also on a panic, which leaves neither result nor error
			inside.Add(-1)
			t.end(ctx, c, r, err, span, start)
		}()
		return next.Invoke(ctx, c, out)
	})
}

// end measures a call that is over.
func (t *Telemetry) end(ctx context.Context, c *tool.Call, r *tool.Result, err error, span trace.Span, start time.Time) {
	took := r.Elapsed(start)
	l := t.labels(ctx, c, r, err)
	size := 0
	if r != nil {
		size = len(r.Output)
	}
	if !c.DryRun || err != nil { // otherwise nothing was called: a job is judged before it runs
		t.calls.of(l).add(took, len(c.Args), size)
	}
	if span == nil {
		return
	}
	text := func(key, value string) attribute.KeyValue { return attribute.String(key, t.clean(value)) }
	about := []attribute.KeyValue{
		text("gen_ai.operation.name", operation), text("gen_ai.tool.name", l.tool), text("gen_ai.tool.call.id", c.ID),
		text("toolpost.source", l.source), text("toolpost.protocol", l.protocol), text("toolpost.door", l.door),
		text("toolpost.caller", c.Caller.ID), text("toolpost.outcome", string(l.outcome)),
		attribute.Int("toolpost.bytes_in", len(c.Args)), attribute.Int("toolpost.bytes_out", size),
	}
	if node := t.env.Node(); node != "" {
		about = append(about, text("toolpost.node", node))
	}
	if l.door == "mcp" {
		about = append(about, text("mcp.method.name", "tools/call"))
	}
	if l.code != "" {
		about = append(about, text("error.type", string(l.code)))
	}
	if r != nil && r.Trace.Cached {
		about = append(about, attribute.Bool("toolpost.cached", true))
	}
	if l.bad() {
		span.SetStatus(codes.Error, "")
	}
	span.SetName(operation + " " + t.clean(l.tool))
	span.SetAttributes(about...)
	span.End(trace.WithTimestamp(start.Add(took)))
}

// operation is what OpenTelemetry calls a call of a tool.
const operation = "execute_tool"

// doorFleet stands for the door of calls that hubs of the fleet sent here: these count them under their own doors.
const doorFleet = "fleet"

func door(c *tool.Call) string {
	if c.FromHub {
		return doorFleet
	}
	return c.Caller.Door
}

// labels says what a call was and how it ended. A name that the caller made up is not among it.
func (t *Telemetry) labels(ctx context.Context, c *tool.Call, r *tool.Result, err error) labels {
	l := labels{door: door(c)}
	l.outcome, l.code, _ = tool.OutcomeOf(r, err)
	if l.code != "" && !slices.Contains(tool.Codes(), l.code) { // chosen by a tool
		l.code = tool.CodeToolError
	}
	if r != nil && r.Trace.Tool != "" {
		l.tool, l.source, l.protocol = r.Trace.Tool, r.Trace.Source, r.Trace.Protocol
		if l.source != tool.OwnSource {
			return l
		}
	}
	l.tool = cmp.Or(l.tool, unknownTool)
	ctx, cancel := context.WithCancel(ctx)
	cancel() // the call has waited for the sources that it needs: its answer waits for no other
	if spec, err := t.env.Lookup(ctx, c.Caller, c.Tool); err == nil && spec != nil {
		l.tool, l.source, l.protocol, l.operator = spec.Name, spec.Source, spec.Protocol, spec.Looks() && !tool.Attempted(l.outcome, l.code)
	}
	return l
}

// shares is how finely traces are sampled: by the last seven bytes of their ids, which are random in a UUID of any
// version, and identically in every process that sees the trace.
const shares = 1 << 56

// begin starts a span and returns the call as those inside see it: with a name, and as part of the span. A trace that is
// not sampled is left as it came.
func (t *Telemetry) begin(c *tool.Call, start time.Time) (trace.Span, *tool.Call) {
	inside := *c
	inside.Name()
	parent := trace.SpanContextConfig{TraceID: traceID(inside.Trace), Remote: true}
	if binary.BigEndian.Uint64(parent.TraceID[8:])%shares >= t.sample {
		return nil, &inside
	}
	if c.Trace != "" { // a span is nothing without its trace
		parent.SpanID, _ = trace.SpanIDFromHex(c.Span)
	}
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(parent))
	_, span := t.tracer.Start(ctx, operation, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindServer))
	inside.Span = span.SpanContext().SpanID().String()
	return span, &inside
}

// traceID returns the id of a trace. Some contracts let callers choose any text: the same text gives the same id.
func traceID(text string) trace.TraceID {
	if id, err := trace.TraceIDFromHex(strings.ReplaceAll(text, "-", "")); err == nil {
		return id
	}
	sum := sha256.Sum256([]byte(text))
	return trace.TraceID(sum[:16])
}
