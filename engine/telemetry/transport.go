package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"toolpost/tool"
)

// A link is the way to a collector, over HTTP or gRPC. Every message passes through it: it adds the headers, which are
// secrets and asked for each time, and notes whether the message arrived.
type link struct {
	base    string
	headers map[string]string // -> names of secrets
	secret  func(string) (string, error)
	log     *slog.Logger
	client  *http.Client

	noting  sync.Mutex
	failed  int64 // messages
	failing bool  // the last message did not arrive
}

func newLink(o Options, env Env) *link {
	l := &link{base: strings.TrimRight(o.OTLP, "/"), headers: o.Headers, secret: env.Secret, log: env.Log}
	plain := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	l.client = &http.Client{
		Timeout:   postTimeout,
		Transport: noted{plain, l},
		// The headers are for this collector alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l
}

func (l *link) spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if address, secure, ok := l.grpc(); ok {
		options := []otlptracegrpc.Option{
			otlptracegrpc.WithEndpoint(address), otlptracegrpc.WithTimeout(sendTimeout),
			otlptracegrpc.WithDialOption(grpc.WithUnaryInterceptor(l.call)), otlptracegrpc.WithRetry(patience()),
		}
		if !secure {
			options = append(options, otlptracegrpc.WithInsecure())
		}
		return otlptracegrpc.New(ctx, options...)
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(l.base+"/v1/traces"),
		otlptracehttp.WithHTTPClient(l.client), otlptracehttp.WithRetry(otlptracehttp.RetryConfig(patience())))
}

// patience says how spans are sent again.
func patience() otlptracegrpc.RetryConfig {
	return otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: firstPause, MaxInterval: sendTimeout, MaxElapsedTime: sendTimeout,
	}
}

// metricExporter tries each message once: the next one has everything that this one has.
func (l *link) metricExporter(ctx context.Context) (metric.Exporter, error) {
	if address, secure, ok := l.grpc(); ok {
		options := []otlpmetricgrpc.Option{
			otlpmetricgrpc.WithEndpoint(address), otlpmetricgrpc.WithTimeout(postTimeout),
			otlpmetricgrpc.WithDialOption(grpc.WithUnaryInterceptor(l.call)),
			otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}),
		}
		if !secure {
			options = append(options, otlpmetricgrpc.WithInsecure())
		}
		return otlpmetricgrpc.New(ctx, options...)
	}
	return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(l.base+"/v1/metrics"),
		otlpmetrichttp.WithHTTPClient(l.client), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))
}

// grpc returns host and port of a collector that speaks it.
func (l *link) grpc() (address string, secure, ok bool) {
	u, err := url.Parse(l.base)
	if err != nil || u.Scheme != "grpc" && u.Scheme != "grpcs" {
		return "", false, false
	}
	return u.Host, u.Scheme == "grpcs", true
}

func (l *link) hangUp() { l.client.CloseIdleConnections() }

// noted is the link as an HTTP transport.
type noted struct {
	*http.Transport
	l *link
}

// RoundTrip implements http.RoundTripper.
func (n noted) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, from := range n.l.headers {
		value, err := n.l.secret(from)
		if err != nil {
			n.l.note(err)
			return nil, err
		}
		r.Header.Set(name, value)
	}
	resp, err := n.Transport.RoundTrip(r)
	switch {
	case err != nil:
		n.l.note(err)
	case resp.StatusCode/100 != 2:
		n.l.note(tool.Errorf(tool.CodeUnavailable, "the collector answered HTTP %s", resp.Status))
	default:
		n.l.note(nil)
	}
	return resp, err
}

// call is the link as a gRPC interceptor.
func (l *link) call(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	for name, from := range l.headers {
		value, err := l.secret(from)
		if err != nil {
			l.note(err)
			return err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), value)
	}
	err := next(ctx, method, req, reply, conn, opts...)
	if err != nil { // the words of a collector stay out of the log
		l.note(tool.Errorf(tool.CodeUnavailable, "the collector answered %s", status.Code(err)))
	} else {
		l.note(nil)
	}
	return err
}

// note logs when messages begin not to arrive, and when they arrive again: not each of them.
func (l *link) note(err error) {
	l.noting.Lock()
	defer l.noting.Unlock()
	if err != nil {
		l.failed++
	}
	switch {
	case err != nil && !l.failing:
		l.log.Warn("telemetry cannot be sent; calls are not affected", "collector", l.base, "error", err.Error())
	case err == nil && l.failing:
		l.log.Info("telemetry is sent again", "collector", l.base)
	}
	l.failing = err != nil
}

func (l *link) failures() int64 {
	l.noting.Lock()
	defer l.noting.Unlock()
	return l.failed
}
