package agents

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
)

// An exchange is a request and its answer, as they were on the wire.
type exchange struct {
	method, path string
	header       http.Header
	body         []byte
	status       int
	answered     http.Header
	answer       []byte
	left         bool // the client disconnected before the end
}

// A recorder is a server that remembers every exchange.
type recorder struct {
	next func(w http.ResponseWriter, r *http.Request, body []byte)
	open sync.WaitGroup
	mu   sync.Mutex
	all  []*exchange
}

func (rec *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	e := &exchange{method: r.Method, path: r.URL.RequestURI(), header: r.Header.Clone(), body: body, status: http.StatusOK}
	rec.open.Add(1)
	defer rec.open.Done()
	e.left = true
	defer func() { // also if the proxy panics, which it does if the agent disconnects before the end
		e.answered = w.Header().Clone()
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.all = append(rec.all, e)
	}()
	rec.next(&copied{ResponseWriter: w, to: e}, r, body)
	e.left = false
}

// exchanges returns all exchanges, once they have ended.
func (rec *recorder) exchanges() []*exchange {
	rec.open.Wait()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return slices.Clone(rec.all)
}

type copied struct {
	http.ResponseWriter
	to *exchange
}

func (c *copied) WriteHeader(status int) {
	c.to.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *copied) Write(b []byte) (int, error) {
	c.to.answer = append(c.to.answer, b...)
	return c.ResponseWriter.Write(b)
}

func (c *copied) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// newTap puts a recording proxy in front of a server.
func newTap(t *testing.T, to string) (*recorder, string) {
	t.Helper()
	target := kit.Must(url.Parse(to))(t)
	// Rewrite, not Director: nothing is added to the headers.
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	rec := &recorder{next: func(w http.ResponseWriter, r *http.Request, _ []byte) { proxy.ServeHTTP(w, r) }}
	srv := httptest.NewServer(rec)
	t.Cleanup(srv.Close)
	return rec, srv.URL
}

// keep writes the exchanges of a recorder to the folder TOOLPOST_AGENTS_WIRE, if that is set.
func keep(t *testing.T, side string, rec *recorder) {
	dir := os.Getenv("TOOLPOST_AGENTS_WIRE")
	if dir == "" {
		return
	}
	t.Cleanup(func() {
		for i, e := range rec.exchanges() {
			name := fmt.Sprintf("%s-%s-%02d.txt", strings.ReplaceAll(t.Name(), "/", "-"), side, i)
			text := fmt.Appendf(nil, "%s %s\n%v\n\n%s\n\n%d\n%v\n\n%s\n", e.method, e.path, e.header, e.body, e.status, e.answered, e.answer)
			kit.Check(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		}
	})
}
