package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// says returns a route that answers with a word.
func says(method, path, word string) Route {
	return Route{Method: method, Path: path, Open: true, Serve: func(w http.ResponseWriter, _ *http.Request, _ tool.Principal) {
		Reply(w, http.StatusOK, []byte(`"`+word+`"`))
	}}
}

func doorWith(name string, routes ...Route) Door {
	return Door{Name: name, Hint: "see " + name, Routes: func(*Server, tool.Handler, tool.Catalog) []Route { return routes }}
}

// asked returns the status and the body of an answer.
func asked(s *Server, method, path string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost:1"
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestDoorsShareOneAddressWithTheirOwnRoutes(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	api, mcp := doorWith("api", says("GET", "/v1/tools", "tools")), doorWith("mcp", says("POST", "/mcp", "mcp"), says("GET", "/mcp", "events"))
	console := doorWith("console", says("GET", "/", "a page"))
	for _, c := range []struct {
		doors        []Door
		method, path string
		status       int
		want         string
	}{
		{[]Door{api, mcp}, "GET", "/v1/tools", 200, `"tools"`},
		{[]Door{api, mcp}, "POST", "/mcp", 200, `"mcp"`},
		{[]Door{api, mcp}, "DELETE", "/mcp", 405, "use POST, GET"},
		{[]Door{api, mcp}, "GET", "/", 404, "nothing at /: see api; see mcp"},
		{[]Door{api, console}, "GET", "/", 200, `"a page"`},
		{[]Door{api, console}, "GET", "/some/page", 200, `"a page"`},
		{[]Door{api, console}, "GET", "/v1/tools", 200, `"tools"`},
		{[]Door{api, console}, "POST", "/v1/tools", 405, "use GET"},
		{[]Door{api, console}, "POST", "/", 405, "use GET"},
		{[]Door{api, console}, "GET", "/v1/../some", 404, "nothing at /v1/../some"},
	} {
		s := newServer(New(Options{}).o, c.doors, addr, nil, nil)
		if status, body := asked(s, c.method, c.path); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
}

func TestManyLargeBodiesAreBoundedTogetherAndForEachCaller(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	door := Door{Name: "api", Routes: func(s *Server, _ tool.Handler, _ tool.Catalog) []Route {
		return []Route{{Method: "POST", Path: "/", Serve: func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
			if _, status, err := s.ReadBody(w, r); err != nil {
				Refuse(w, r, nil, status, err)
				return
			}
			if r.Header.Get("More") == "" {
				inside <- struct{}{}
				<-leave
			}
		}}}
	}}
	gate := func(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
		return tool.Principal{ID: shown.Token}, nil
	}
	s := newServer(New(Options{MaxBody: 4, Gate: gate}).o, []Door{door}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, nil, nil)
	post := func(caller, more string) (int, string) {
		w, body := httptest.NewRecorder(), strings.NewReader("four")
		ctx, answered := context.WithCancel(t.Context())
		defer answered() // as net/http does
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
		r.Host = "localhost:1"
		r.Header.Set("Authorization", "Bearer "+caller)
		if more != "" {
			r.Header.Set("More", more)
		}
		s.ServeHTTP(w, r)
		if w.Code >= 400 && (w.Header().Get("Retry-After") != "1" || body.Len() != 4) {
			t.Errorf("%d says Retry-After: %q, and was read up to %d", w.Code, w.Header().Get("Retry-After"), body.Len())
		}
		return w.Code, w.Body.String()
	}
	var served sync.WaitGroup
	for i := range bodiesAtOnce {
		served.Go(func() { post(fmt.Sprint(i/ofEach), "") })
		<-inside
		if i < ofEach || i == bodiesAtOnce-1 {
			continue
		}
		if status, body := post("0", "more"); status != http.StatusTooManyRequests || !strings.Contains(body, `"retry_after_ms":1000`) {
			t.Errorf("one more of the same caller: %d %s", status, body)
		}
	}
	if status, body := post("another", "more"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"retry_after_ms":1000`) {
		t.Errorf("one more: %d %s", status, body)
	}
	close(leave)
	served.Wait()
	if len(s.bodies.of) != 0 || s.bodies.held != 0 {
		t.Errorf("still weighed: %d, %v", s.bodies.held, s.bodies.of)
	}
	if status, body := post("0", "more"); status != http.StatusOK {
		t.Errorf("when all have left: %d %s", status, body)
	}
}

// A body counts by what it has sent, not by what it may send: bodies that send nothing, or are no longer needed, keep
// no other out.
func TestIdleBodiesDoNotBlockOthers(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	door := Door{Name: "api", Routes: func(s *Server, _ tool.Handler, _ tool.Catalog) []Route {
		return []Route{{Method: "POST", Path: "/", Open: true, Serve: func(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
			if r.Header.Get("Last") != "" {
				if _, status, err := s.ReadBody(w, r); err != nil {
					Refuse(w, r, nil, status, err)
				}
				return
			}
			if r.Header.Get("Slow") != "" {
				inside <- struct{}{}
			}
			_, _, _ = s.ReadBody(w, r)
			if s.ForgetBody(r); r.Header.Get("Slow") == "" {
				inside <- struct{}{}
				<-leave
			}
		}}}
	}}
	s := newServer(New(Options{MaxBody: 4}).o, []Door{door}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, nil, nil)
	post := func(header string, body io.Reader) int {
		w := httptest.NewRecorder()
		ctx, answered := context.WithCancel(t.Context())
		defer answered()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
		r.Host = "localhost:1"
		if header != "" {
			r.Header.Set(header, "1")
		}
		s.ServeHTTP(w, r)
		return w.Code
	}
	var served sync.WaitGroup
	for range 70 {
		served.Go(func() { post("", strings.NewReader("four")) })
		<-inside
	}
	silent, end := io.Pipe()
	for range 70 {
		served.Go(func() { post("Slow", silent) })
		<-inside
	}
	kit.Equal(t, post("Last", strings.NewReader("four")), http.StatusOK, "one more is answered")
	_ = end.Close()
	close(leave)
	served.Wait()
}
