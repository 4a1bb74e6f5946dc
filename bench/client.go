package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
	"toolpost/bench/curves"
)

// post posts a document and returns the answer, as clients that use net/http do.
func post(ctx context.Context, client *http.Client, url string, header http.Header, body string) ([]byte, error) {
	req := attempt.Must(http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body)))
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// client returns a client with one connection per caller.
func (l *lab) client(callers int) *http.Client {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	l.atEnd(func() error { c.CloseIdleConnections(); return nil })
	return c
}

// A caller is a client that costs as little as possible, so that it does not hide the server's cost: one connection that
// stays open, requests prepared as bytes, and it reads no more of an answer than it needs to find the end.
type caller struct {
	conn     net.Conn
	in       *bufio.Reader
	requests [][]byte
	want     []byte // in every answer
	next     int
	until    time.Time // deadline of the connection
}

func (l *lab) dial(ctx context.Context, addr string, requests []request) *caller {
	conn := attempt.Must((&net.Dialer{}).DialContext(ctx, "tcp", addr))
	l.atEnd(conn.Close)
	c := &caller{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), want: []byte(`{"ok":true`)}
	for _, r := range requests {
		c.requests = append(c.requests, r.to(addr))
		if r.path != "" {
			c.want = []byte(r.want)
		}
	}
	return c
}

// A request is a call over HTTP: of a tool, or, if it has a path, any other request, with the text that its answer must
// contain.
type request struct {
	tool, args, session string
	path, headers, want string
}

// to returns its bytes for the server at an address.
func (r request) to(addr string) []byte {
	b := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n%s", cmp.Or(r.path, "/v1/tools/"+r.tool+"/call"), addr, benchToken, len(r.args), r.headers)
	if r.session != "" {
		b = fmt.Appendf(b, "Toolpost-Session: %s\r\n", r.session)
	}
	return fmt.Appendf(b, "\r\n%s", r.args)
}

// patience is how long an answer may take before the measurement ends: a server that never answers must not hang the run.
const patience = time.Minute

// call sends the next request and fails unless the tool succeeded.
func (c *caller) call() error {
	status, body, err := c.exchange(c.requests[c.next])
	if err == nil && (status/100 != 2 || !bytes.Contains(body, c.want)) {
		err = fmt.Errorf("unexpected answer, status %d: %.300q", status, body)
	}
	c.next = (c.next + 1) % len(c.requests)
	return err
}

// exchange sends a request and reads the answer; of a large body it returns only the beginning.
func (c *caller) exchange(request []byte) (status int, body []byte, err error) {
	if time.Until(c.until) < patience/2 { // seldom, because setting the timer is not free
		c.until = time.Now().Add(patience)
		if err := c.conn.SetDeadline(c.until); err != nil {
			return 0, nil, err
		}
	}
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, err
	}
	status, size, err := c.head()
	if err != nil {
		return 0, nil, err
	}
	begin, err := c.in.Peek(min(size, 4<<10))
	if err != nil {
		return 0, nil, err
	}
	if len(begin) < size {
		begin = bytes.Clone(begin) // the rest is read into the same buffer
	}
	_, err = c.in.Discard(size)
	return status, begin, err
}

// head reads the head of an answer and returns the size of its body.
func (c *caller) head() (status, size int, err error) {
	size = -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		switch line = bytes.TrimRight(line, "\r\n"); {
		case status == 0:
			status, err = statusOf(line)
		case len(line) == 0 && size < 0:
			err = fmt.Errorf("an answer with status %d that does not say how long it is", status)
		case len(line) == 0:
			return status, size, nil
		default:
			if text, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				size, err = strconv.Atoi(string(text))
			}
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

func statusOf(line []byte) (int, error) {
	fields := bytes.Fields(line)
	if len(fields) < 2 || string(fields[0]) != "HTTP/1.1" {
		return 0, fmt.Errorf("not HTTP/1.1: %.100q", line)
	}
	return strconv.Atoi(string(fields[1]))
}

// A crowd is a group of callers of one server.
type crowd struct {
	callers []*caller
	addr    string
	last    []byte // a request that is answered once all calls before it are on record; nil if there is no record
}

// crowd connects callers to a server. They divide the requests among them and repeat them in turn. If there are fewer
// requests than callers, each caller makes all of them.
func (l *lab) crowd(ctx context.Context, at *served, callers int, requests ...request) *crowd {
	c := &crowd{addr: at.addr}
	for i := range callers {
		mine := requests
		if n := len(requests); n >= callers {
			mine = requests[i*n/callers : (i+1)*n/callers]
		}
		c.callers = append(c.callers, l.dial(ctx, at.addr, mine))
	}
	return c
}

// recording makes a lap end when its calls are on record: the record of a call that only reads may be written after its
// answer, and would slow the next measurement. A refused call is answered only after its record, which comes after all
// others.
func (c *crowd) recording() *crowd {
	c.last = request{tool: "nobody", args: "{}"}.to(c.addr)
	return c
}

// A lap is the result of one turn of a crowd.
type lap struct {
	took time.Duration
	each []time.Duration // how long each call took
}

// lap lets all callers call for the given time.
func (c *crowd) lap(long time.Duration) (lap, error) {
	began := time.Now()
	took := make([][]time.Duration, len(c.callers))
	var g errgroup.Group
	for i, one := range c.callers {
		g.Go(func() error {
			for now := began; now.Sub(began) < long; {
				if err := one.call(); err != nil {
					return err
				}
				then := now
				now = time.Now()
				took[i] = append(took[i], now.Sub(then))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return lap{}, err
	}
	alone, err := c.settle()
	return lap{time.Since(began) - 2*alone, slices.Concat(took...)}, err
}

// settle waits until all calls are on record. It returns the cost of that with nothing left to record, which is not part
// of the calls' cost.
func (c *crowd) settle() (alone time.Duration, err error) {
	if c.last == nil {
		return 0, nil
	}
	for range 2 {
		began := time.Now()
		if _, _, err := c.callers[0].exchange(c.last); err != nil {
			return 0, err
		}
		alone = time.Since(began)
	}
	return alone, nil
}

// once lets each caller make each of its requests.
func (c *crowd) once() error {
	var g errgroup.Group
	for _, one := range c.callers {
		g.Go(func() error { _, err := batch(len(one.requests), one.call)(); return err })
	}
	return g.Wait()
}

// A pace is the speed of a crowd over all its laps.
type pace struct {
	rates []float64 // calls per second of each lap
	each  []time.Duration
}

func (p *pace) add(l lap) {
	p.rates = append(p.rates, float64(len(l.each))/l.took.Seconds())
	p.each = append(p.each, l.each...)
}

// rate returns the median of the laps, in calls per second.
func (p *pace) rate() float64 {
	slices.Sort(p.rates)
	return p.rates[len(p.rates)/2]
}

// percentile returns the longest time among the fastest n percent of the calls.
func (p *pace) percentile(n int) time.Duration {
	slices.Sort(p.each)
	return p.each[len(p.each)*n/100]
}

// rounds is how many laps each of two crowds runs.
const rounds = 15

// long is the length of a lap: long enough for some calls of the slowest kind, and short beside other load on the
// machine.
const long = 200 * time.Millisecond

// race lets two crowds call in turns, so that other load on the machine affects both alike. A first lap of each warms up
// and does not count.
func race(rounds int, measured, reference *crowd) (m, r *pace) {
	m, r = new(pace), new(pace)
	for i := range rounds + 1 {
		one := attempt.Must(measured.lap(long))
		other, err := reference.lap(long)
		if err != nil {
			attempt.Check(fmt.Errorf("the reference: %w", err))
		}
		if i > 0 {
			m.add(one)
			r.add(other)
		}
	}
	return m, r
}

// faster returns a row whose target is at least a share of the reference's rate.
func faster(m, r *pace, least float64) row {
	return share(m.text(), r.text(), m.rate()/r.rate(), least)
}

// A contest is a race between equally many callers of the measured server and of its reference.
type contest func(ctx context.Context, l *lab, callers int) (m, r *pace)

// rateOf compares calls per second.
func rateOf(c contest, callers int, least float64) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		m, r := c(ctx, l, callers)
		return faster(m, r, least)
	}
}

// latencyOf compares the time that a single caller waits.
func latencyOf(c contest, limit time.Duration) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		m, r := c(ctx, l, 1)
		return over(m.percentile(50), r.percentile(50), limit)
	}
}

// text shows the rate and the 99th percentile of the call times.
func (p *pace) text() string {
	return fmt.Sprintf("%s/s p99 %s", curves.Thousands(p.rate()), short(p.percentile(99)))
}

func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}
