// Package telemetry is the stage that measures calls: it counts them, times them and gives each a span in its trace.
// Adapters know nothing of it. Its data has names, codes and sizes, and never an argument, an output or the message of
// an error.
package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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
}

// A Telemetry measures the calls of one process.
type Telemetry struct {
	env     Env
	calls   table[labels, series]
	running table[door, atomic.Int64] // running calls
	send    *sender                   // nil if nothing is sent
	tracing bool
	sample  uint64 // how many of 2^56 traces are sent
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
	return New(o, env), nil
}

// New makes a telemetry. The options must be valid. It sends nothing before the first call ends, and must be closed.
func New(o Options, env Env) *Telemetry {
	t := &Telemetry{env: env}
	t.calls.most, t.running.most = maxSeries, maxDoors
	if o.OTLP == "" {
		return t
	}
	t.tracing = o.Traces == nil || *o.Traces
	t.sample = shares
	if o.Sample != nil {
		t.sample = uint64(*o.Sample * shares)
	}
	every := cmp.Or(o.Interval, time.Minute)
	if o.Metrics != nil && !*o.Metrics {
		every = 0
	}
	t.send = newSender(o, env, every, t.snapshot)
	return t
}

// Close sends what is waiting, as far as that can be done quickly and before ctx ends. On a nil Telemetry it does
// nothing.
func (t *Telemetry) Close(ctx context.Context) {
	if t != nil && t.send != nil {
		t.send.close(ctx)
	}
}

// For is an engine.Stage, and the same for every tool.
func (t *Telemetry) For(*tool.Spec) tool.Middleware { return t.stage }

func (t *Telemetry) stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
		inside := t.running.of(door(c.Caller.Door))
		inside.Add(1)
		start := c.Start()
		var s *span
		if t.tracing {
			s, c = t.begin(c, start)
		}
		defer func() { // also on a panic, which leaves neither result nor error
			inside.Add(-1)
			t.end(ctx, c, r, err, s, start)
		}()
		return next.Invoke(ctx, c, out)
	})
}

// end measures a call that has ended.
func (t *Telemetry) end(ctx context.Context, c *tool.Call, r *tool.Result, err error, s *span, start time.Time) {
	took := r.Elapsed(start)
	l := t.labels(ctx, c, r, err)
	size := 0
	if r != nil {
		size = len(r.Output)
	}
	t.calls.of(l).add(took, len(c.Args), size)
	if s != nil {
		s.labels, s.end, s.out = l, start.Add(took), size
		s.cached = r != nil && r.Trace.Cached
		t.send.take(s)
	}
}

// labels describes a call and how it ended. It never contains a name that the caller made up.
func (t *Telemetry) labels(ctx context.Context, c *tool.Call, r *tool.Result, err error) labels {
	l := labels{door: c.Caller.Door}
	l.outcome, l.code, _ = tool.OutcomeOf(r, err)
	if l.code != "" && !slices.Contains(tool.Codes(), l.code) { // chosen by a tool
		l.code = tool.CodeToolError
	}
	if r != nil && r.Trace.Tool != "" {
		l.tool, l.source, l.protocol = r.Trace.Tool, r.Trace.Source, r.Trace.Protocol
		return l
	}
	l.tool = unknownTool
	if spec, err := t.env.Lookup(ctx, c.Caller, c.Tool); err == nil && spec != nil {
		l.tool, l.source, l.protocol = spec.Name, spec.Source, spec.Protocol
	}
	return l
}

// shares is how finely traces are sampled: by the last seven bytes of their ids, which are random in a UUID of any
// version, and identically in every process that sees the trace.
const shares = 1 << 56

// A span is the data of one call.
type span struct {
	labels
	trace, id, parent string // in hexadecimal digits

	call, caller string
	start, end   time.Time
	in, out      int
	cached       bool
}

// begin starts a span and returns the call for the stages inside: with an id, and as part of the span. A trace that is
// not sampled is left unchanged.
func (t *Telemetry) begin(c *tool.Call, start time.Time) (*span, *tool.Call) {
	inside := *c
	inside.Name()
	trace := traceID(inside.Trace)
	if share, _ := strconv.ParseUint(trace[18:], 16, 64); share >= t.sample {
		return nil, &inside
	}
	inside.Span = tool.NewSpan()
	s := &span{
		trace: trace, id: inside.Span, call: inside.ID, caller: c.Caller.ID, start: start, in: len(c.Args),
	}
	if c.Trace != "" { // a span is useless without its trace
		s.parent = tool.SpanOf("00-" + trace + "-" + c.Span + "-01")
	}
	return s, &inside
}

// traceID returns a trace as 32 hexadecimal digits. Some contracts let callers choose any text: the same text results in
// the same id.
func traceID(trace string) string {
	if parent := tool.Traceparent(trace, "0000000000000001"); parent != "" {
		return strings.Split(parent, "-")[1]
	}
	sum := sha256.Sum256([]byte(trace))
	return hex.EncodeToString(sum[:16])
}
