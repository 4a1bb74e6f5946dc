package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Limits of what waits for a collector, and of the waiting time.
const (
	maxWaiting  = 2048 // spans; further ones are dropped and counted
	maxBatch    = 512  // spans in one message
	batchDelay  = time.Second
	postTimeout = 10 * time.Second
	closeTime   = 3 * time.Second
	tries       = 3
	firstPause  = time.Second
	lastPause   = 30 * time.Second
	maxAnswer   = 64 << 10
)

// A sender sends spans and metrics to a collector, from one goroutine. Calls never wait for it: data that cannot be sent
// is dropped and counted.
type sender struct {
	writer
	base    string
	headers map[string]string // -> names of secrets
	secret  func(string) (string, error)
	log     *slog.Logger
	client  *http.Client
	every   time.Duration // between metrics; 0 if none are sent
	measure func() []family

	queue   chan *span
	sent    atomic.Int64 // spans
	dropped atomic.Int64 // spans
	failed  atomic.Int64 // messages
	failing bool         // the last message did not arrive

	life    context.Context
	end     context.CancelFunc
	closing context.Context // limits the time for what is left; set before life ends
	ended   chan struct{}
}

func newSender(o Options, env Env, every time.Duration, measure func() []family) *sender {
	s := &sender{
		writer: writer{service: cmp.Or(o.Service, "toolpost"), version: env.Version,
			instance: tool.NewID(), start: time.Now(), redact: env.Redact},
		base: strings.TrimRight(o.OTLP, "/"), headers: o.Headers, secret: env.Secret, log: env.Log, every: every,
		measure: measure,
		queue:   make(chan *span, maxWaiting), ended: make(chan struct{}),
	}
	s.client = &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // keeps our headers
	}
	s.life, s.end = context.WithCancel(context.Background())
	go s.run()
	return s
}

// take queues a span, or drops it.
func (s *sender) take(one *span) {
	select {
	case s.queue <- one:
	default:
		s.dropped.Add(1)
	}
}

// close sends what is left and ends the goroutine. It must be called once.
func (s *sender) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	s.closing = ctx
	s.end()
	<-s.ended
	s.client.CloseIdleConnections()
}

func (s *sender) run() {
	defer close(s.ended)
	var metrics <-chan time.Time
	if s.every > 0 {
		t := time.NewTicker(s.every)
		defer t.Stop()
		metrics = t.C
	}
	due := time.NewTimer(batchDelay)
	due.Stop()
	var batch []*span
	for {
		select {
		case one := <-s.queue:
			if batch = append(batch, one); len(batch) == 1 {
				due.Reset(batchDelay)
			}
			if len(batch) < maxBatch {
				continue
			}
		case <-due.C:
		case <-metrics:
			s.sendMetrics(s.life)
			continue
		case <-s.life.Done():
			s.finish(batch)
			return
		}
		due.Stop()
		batch = s.sendSpans(batch)
	}
}

// sendSpans sends a batch, and retries if the collector asks for that. It returns what is left of the batch if the
// sender is closed meanwhile.
func (s *sender) sendSpans(batch []*span) (left []*span) {
	pause := firstPause
	for try := 1; len(batch) > 0; try++ {
		wait, again, err := s.postSpans(s.life, batch)
		switch {
		case err == nil:
			return nil
		case s.life.Err() != nil:
			return batch
		case !again || try == tries:
			s.dropped.Add(int64(len(batch)))
			return nil
		}
		select {
		case <-time.After(min(max(wait, pause), lastPause)):
		case <-s.life.Done():
			return batch
		}
		pause *= 2
	}
	return nil
}

// finish sends everything that is left, once.
func (s *sender) finish(batch []*span) {
	for ; len(batch)+len(s.queue) > 0; batch = nil {
		for len(batch) < maxBatch && len(s.queue) > 0 {
			batch = append(batch, <-s.queue)
		}
		if _, _, err := s.postSpans(s.closing, batch); err != nil {
			s.dropped.Add(int64(len(batch)))
		}
	}
	if s.every > 0 {
		s.sendMetrics(s.closing)
	}
}

func (s *sender) postSpans(ctx context.Context, batch []*span) (wait time.Duration, again bool, err error) {
	doc, err := s.traces(batch)
	if err != nil {
		s.note(err)
		return 0, false, err
	}
	rejected, wait, again, err := s.post(ctx, "/v1/traces", doc)
	if err == nil {
		s.sent.Add(int64(len(batch)) - rejected)
		s.dropped.Add(rejected)
	}
	return wait, again, err
}

// sendMetrics does not retry: the next metrics contain everything that these do.
func (s *sender) sendMetrics(ctx context.Context) {
	doc, err := s.metrics(s.measure(), time.Now())
	if err != nil {
		s.note(err)
		return
	}
	_, _, _, _ = s.post(ctx, "/v1/metrics", doc) // post has noted the error
}

// post sends a message. If it arrived, it returns how much the collector rejected; if not, whether and when to send it
// again.
func (s *sender) post(
	ctx context.Context, path string, doc []byte,
) (rejected int64, wait time.Duration, again bool, err error) {
	defer func() { s.note(err) }()
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, bytes.NewReader(doc))
	if err != nil {
		return 0, 0, false, err
	}
	if err := s.addHeaders(req.Header); err != nil {
		return 0, 0, true, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, 0, true, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode/100 == 2:
		return rejectedOf(body), 0, false, nil
	case err != nil:
		return 0, 0, true, err
	}
	seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	err = tool.Errorf(tool.CodeUnavailable, "the collector answered HTTP %s", resp.Status)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, time.Duration(seconds) * time.Second, true, err
	}
	return 0, 0, false, err
}

func (s *sender) addHeaders(h http.Header) error {
	h.Set("Content-Type", "application/json")
	for name, from := range s.headers {
		value, err := s.secret(from)
		if err != nil {
			return err
		}
		h.Set(name, value)
	}
	return nil
}

// rejectedOf parses how many spans a collector rejected from its answer. An answer that cannot be parsed counts as 0.
func rejectedOf(body []byte) int64 {
	var answer struct {
		Partial struct {
			Spans json.RawMessage `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if strictjson.Unmarshal(body, &answer) != nil {
		return 0
	}
	text := strings.Trim(string(answer.Partial.Spans), `"`) // a 64-bit number, which may be a string
	n, _ := strconv.ParseUint(text, 10, 31)
	return int64(min(n, maxBatch))
}

// note logs when messages start to fail, and when they arrive again, not each of them.
func (s *sender) note(err error) {
	if err != nil {
		s.failed.Add(1)
	}
	switch {
	case err != nil && !s.failing:
		s.log.Warn("telemetry cannot be sent; calls are not affected", "collector", s.base, "error", err.Error())
	case err == nil && s.failing:
		s.log.Info("telemetry is sent again", "collector", s.base)
	}
	s.failing = err != nil
}

// samples returns the sender's own measurements.
func (s *sender) samples() []Sample {
	return []Sample{
		{Name: "toolpost.telemetry.spans", Help: "Spans that the collector took.", Counter: true,
			Value: float64(s.sent.Load())},
		{Name: "toolpost.telemetry.dropped", Help: "Spans that were not sent.", Counter: true,
			Value: float64(s.dropped.Load())},
		{Name: "toolpost.telemetry.failures", Help: "Messages that did not reach the collector.", Counter: true,
			Value: float64(s.failed.Load())},
	}
}
