package rest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/follow"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
)

// A followed catalogue has one tool that follows something, and one that works long.
type followed struct{ tooltest.Reference }

func (followed) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	return &tool.Spec{Name: name, Effects: tool.Effects{Reads: true}, Timeout: map[string]time.Duration{"watch": follow.Timeout}[name]}, nil
}

func TestFollowingCallEndsWithItsToken(t *testing.T) {
	var revoked atomic.Bool
	auth := kit.Must(identity.StaticToken(token))(t)
	started, ended, finish := make(chan string, 2), make(chan string, 2), make(chan struct{})
	h := open(t, setup{
		Options: web.Options{Gate: func(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
			if revoked.Load() {
				return tool.Principal{}, identity.WrongToken()
			}
			return auth(ctx, shown)
		}},
		catalog: followed{},
		handler: tool.HandlerFunc(func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
			started <- c.Tool
			select {
			case <-ctx.Done():
				ended <- c.Tool
			case <-finish:
			}
			return &tool.Result{OK: true}, ctx.Err()
		}),
	})
	work := make(chan answer, 2)
	for _, name := range []string{"work", "watch"} {
		r := h.request("POST", "/v1/tools/"+name+"/call", `{}`)
		r.Header.Set("Accept", web.TypeStream)
		go func() { work <- h.do(r) }()
		<-started
	}
	revoked.Store(true)
	kit.Equal(t, <-ended, "watch")
	<-work
	close(finish)
	kit.Contains(t, string((<-work).body), "event: result")
}

// What the sources are called is for callers; how many are being opened is not.
func TestReadinessNamesSourcesToCallersOnly(t *testing.T) {
	h := open(t, setup{door: rest.Options{Opening: func() []string { return []string{"payroll", "late"} }}})
	for auth, want := range map[string]string{
		"":                `{"ok":true,"opening_count":2}`,
		"Bearer tp_wrong": `{"ok":true,"opening_count":2}`,
		"Bearer " + token: `{"ok":true,"opening":["payroll","late"],"opening_count":2}`,
	} {
		req := h.request("GET", "/readyz", "")
		req.Header.Set("Authorization", auth)
		if auth == "" {
			req.Header.Del("Authorization")
		}
		kit.Equal(t, strings.TrimSpace(string(h.do(req).body)), want, auth)
	}
}

func TestEveryRouteAsksForTheToken(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	routes := []struct {
		method, path  string
		without, with int // status
	}{
		{"GET", "/healthz", 200, 200},
		{"GET", "/readyz", 200, 200},
		{"GET", "/v1/tools", 401, 200},
		{"HEAD", "/v1/tools", 401, 200},
		{"GET", "/v1/tools/echo", 401, 200},
		{"GET", "/v1/tools/nope", 401, 404},
		{"POST", "/v1/tools/echo/call", 401, 200},
		{"POST", "/v1/tools/nope/call", 401, 404},
		{"DELETE", "/v1/calls/nope", 401, 404},
		{"GET", "/metrics", 401, 404},
		{"GET", "/v1/assets/nope", 401, 404},
		{"GET", "/v1/jobs", 401, 501},
		{"GET", "/v1/jobs/nope", 401, 501},
		{"DELETE", "/v1/jobs/nope", 401, 501},
		{"GET", "/v1/jobs/nope/events", 401, 501},
		{"GET", "/v1/nothing", 401, 404},
		{"GET", "/v1/", 401, 404},
		{"GET", "/nothing", 404, 404},
		{"GET", "/", 404, 404},
	}
	tokens := map[string][]string{
		"no token":        nil,
		"an empty one":    {"Bearer "},
		"a wrong one":     {"Bearer tp_another-token-altogether"},
		"a prefix of it":  {"Bearer " + token[:len(token)-1]},
		"it and more":     {"Bearer " + token + "x"},
		"another scheme":  {"Basic " + token},
		"no scheme":       {token},
		"it twice":        {"Bearer " + token, "Bearer " + token},
		"the right one":   {"Bearer " + token},
		"in another case": {"bEARER " + token},
		"a long one":      {"Bearer " + strings.Repeat("x", 8<<10)},
	}
	for _, route := range routes {
		for name, auth := range tokens {
			req := h.request(route.method, route.path, "")
			req.Header["Authorization"] = auth
			a := h.do(req)
			want := route.without
			if name == "the right one" || name == "in another case" {
				want = route.with
			}
			kit.Equal(t, a.status, want, route.method, route.path, name)
			if a.status == 401 && route.method != "HEAD" {
				a.refused(t, 401, tool.CodeAccessDenied)
				if !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") || !strings.Contains(string(a.body), "toolpost serve") {
					t.Errorf("a refusal that does not help: %v %s", a.header, a.body)
				}
			}
			if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: headers %v", route.method, route.path, a.header)
			}
		}
	}
}

func TestUnknownPathsAndMethodsAreAnsweredInOurWords(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	for _, c := range []struct {
		method, path string
		status       int
		code         tool.Code
		allow        string
	}{
		{"GET", "/v2/tools", 404, tool.CodeNotFound, ""},
		{"GET", "/v1/tools/echo/call/more", 404, tool.CodeNotFound, ""},
		{"GET", "/v1", 404, tool.CodeNotFound, ""},
		{"GET", "/v1/tools/", 404, tool.CodeNotFound, ""},
		{"GET", "/v1//tools", 404, tool.CodeNotFound, ""},
		{"GET", "/healthz/../v1/tools", 404, tool.CodeNotFound, ""},
		{"POST", "/v1/tools//call", 404, tool.CodeNotFound, ""},
		{"POST", "/v1/tools/../call", 404, tool.CodeNotFound, ""},
		{"POST", "/v1/tools", 405, tool.CodeUnsupported, "GET"},
		{"DELETE", "/v1/tools/echo", 405, tool.CodeUnsupported, "GET"},
		{"GET", "/v1/tools/echo/call", 405, tool.CodeUnsupported, "POST"},
		{"PUT", "/v1/calls/x", 405, tool.CodeUnsupported, "DELETE"},
		{"POST", "/healthz", 405, tool.CodeUnsupported, "GET"},
		{"OPTIONS", "/v1/tools", 405, tool.CodeUnsupported, "GET"},
		{"TRACE", "/readyz", 405, tool.CodeUnsupported, "GET"},
	} {
		a := h.do(h.request(c.method, c.path, ""))
		a.refused(t, c.status, c.code)
		kit.Equal(t, a.header.Get("Allow"), c.allow, "%s %s: Allow is", c.method, c.path)
	}
}

func TestOnlyOurHostsAreServed(t *testing.T) {
	tooltest.NoLeaks(t)
	s := setup{}
	s.Hosts = []string{"Tools.Example.org", "other.example.org:443"}
	h := open(t, s)
	port := h.port()
	for host, status := range map[string]int{
		h.addr:                      200,
		"localhost:" + port:         200,
		"LocalHost:" + port:         200,
		"[::1]:" + port:             200,
		"tools.example.org":         200,
		"tools.example.org:" + port: 200,
		"other.example.org:443":     200,
		"other.example.org":         421,
		"tools.example.org:1":       421,
		"localhost":                 421,
		"localhost:1":               421,
		"127.0.0.1":                 421,
		"evil.example.com:" + port:  421,
		"localhost.evil.com":        421,
		"localhost.:" + port:        421,
	} {
		for _, path := range []string{"/v1/tools", "/healthz"} {
			req := h.request("GET", path, "")
			req.Host = host
			kit.Equal(t, h.do(req).status, status, path, host)
		}
	}
}

func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	s := setup{}
	s.Origins = []string{"https://App.example.org/"}
	h := open(t, s)
	for origin, status := range map[string]int{
		"http://" + h.addr:             200,
		"https://app.example.org":      200,
		"http://app.example.org":       403,
		"https://app.example.org:8443": 403,
		"https://evil.example.com":     403,
		"http://localhost:1":           403,
		"null":                         403,
		"":                             403,
	} {
		req := h.request("POST", "/v1/tools/echo/call", `{}`)
		req.Header["Origin"] = []string{origin}
		a := h.do(req)
		kit.Equal(t, a.status, status, "from %q: status", origin)
		if got := a.header.Get("Access-Control-Allow-Origin"); status == 200 && got != origin || status != 200 && got != "" {
			t.Errorf("from %q: the origin %q is allowed", origin, got)
		}

		ask := h.request("OPTIONS", "/v1/tools/echo/call", "")
		ask.Header = http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}}
		a = h.do(ask)
		if allowed := a.status == 204 && a.header.Get("Access-Control-Allow-Headers") != ""; allowed != (status == 200) {
			t.Errorf("the question of a browser from %q: status %d %v", origin, a.status, a.header)
		}
	}
	two := h.request("GET", "/v1/tools", "")
	two.Header["Origin"] = []string{"https://app.example.org", "https://evil.example.com"}
	h.do(two).refused(t, 403, tool.CodeAccessDenied)
}

func TestBodiesAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	s := setup{handler: strict}
	s.MaxBody = 1000
	h := open(t, s)
	fill := func(n int) string { return `{"a":"` + strings.Repeat("x", n-8) + `"}` }
	for name, c := range map[string]struct {
		body   string
		header http.Header
		status int
		code   tool.Code
	}{
		"just small enough":   {body: fill(1000), status: 200},
		"one byte too large":  {body: fill(1001), status: 413, code: tool.CodeInvalidInput},
		"much too large":      {body: fill(100 << 10), status: 413, code: tool.CodeInvalidInput},
		"too deep":            {body: `{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, status: 400, code: tool.CodeInvalidInput},
		"invalid UTF-8":       {body: "{\"a\":\"\xff\"}", status: 400, code: tool.CodeInvalidInput},
		"a duplicate key":     {body: `{"a":1,"a":2}`, status: 400, code: tool.CodeInvalidInput},
		"half an object":      {body: `{"a":`, status: 400, code: tool.CodeInvalidInput},
		"an array":            {body: `[]`, status: 400, code: tool.CodeInvalidInput},
		"null":                {body: `null`, status: 400, code: tool.CodeInvalidInput},
		"two objects":         {body: `{}{}`, status: 400, code: tool.CodeInvalidInput},
		"nothing":             {body: ``, status: 200},
		"space":               {body: " \n", status: 200},
		"JSON by name":        {body: `{}`, header: http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, status: 200},
		"a form":              {body: `{}`, header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, status: 415, code: tool.CodeUnsupported},
		"text":                {body: `{}`, header: http.Header{"Content-Type": {"text/plain"}}, status: 415, code: tool.CodeUnsupported},
		"another charset":     {body: `{}`, header: http.Header{"Content-Type": {"application/json; charset=latin1"}}, status: 415, code: tool.CodeUnsupported},
		"a type that is none": {body: `{}`, header: http.Header{"Content-Type": {";;"}}, status: 415, code: tool.CodeUnsupported},
		"compressed":          {body: `{}`, header: http.Header{"Content-Encoding": {"gzip"}}, status: 415, code: tool.CodeUnsupported},
		"not compressed":      {body: `{}`, header: http.Header{"Content-Encoding": {"identity"}}, status: 200},
	} {
		for _, chunked := range []bool{false, true} {
			req := h.request("POST", "/v1/tools/echo/call", c.body)
			if chunked { // the length is unknown beforehand
				req.ContentLength, req.Body, req.GetBody = -1, io.NopCloser(strings.NewReader(c.body)), nil
			}
			for name, values := range c.header {
				req.Header[name] = values
			}
			a := h.do(req)
			if a.status != c.status {
				t.Errorf("%s (chunked %v): status %d %.200s, %d is wanted", name, chunked, a.status, a.body, c.status)
			} else if c.status != 200 {
				a.refused(t, c.status, c.code)
			}
		}
	}
}

func TestAnEmptyBodyMeansNoArguments(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	for _, body := range []string{"", "  \r\n"} {
		if d := h.call("echo", body).document(t); string(d.Output) != `{}` {
			t.Errorf("%q came as %s", body, d.Output)
		}
	}
}

func TestSlowClientIsDisconnected(t *testing.T) {
	tooltest.NoLeaks(t)
	s := setup{}
	s.Times.Header, s.Times.Body = time.Second, time.Second
	h := open(t, s)
	t.Run("with the header", func(t *testing.T) {
		_, r := h.raw(t, "GET /v1/tools HTTP/1.1\r\nHost:")
		kit.Check(t, kit.Err(io.Copy(io.Discard, r)), "the connection stays open")
	})
	t.Run("with the body", func(t *testing.T) {
		_, r := h.raw(t, h.head("POST", "/v1/tools/echo/call", "Content-Length: 10")+`{"a`)
		readRaw(t, r).refused(t, 408, tool.CodeTimeout)
	})
	t.Run("a long call is none", func(t *testing.T) {
		req := h.request("POST", "/v1/tools/hang/call", `{}`)
		req.Header.Set("Toolpost-Timeout", "3s")
		h.do(req).refused(t, 504, tool.CodeTimeout)
	})
}

func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	tooltest.NoLeaks(t)
	s := setup{}
	s.Times.Body = time.Hour // only a refusal that does not wait for the body arrives in time
	s.Times.Grace = 10 * time.Millisecond
	h := open(t, s)
	_, r := h.raw(t, "POST /v1/tools/echo/call HTTP/1.1\r\nHost: "+h.addr+"\r\nContent-Length: 1000\r\n\r\n{")
	readRaw(t, r).refused(t, 401, tool.CodeAccessDenied)
	_, r = h.raw(t, h.head("POST", "/v1/tools/echo/call", "Content-Length: 100000000000")+"{")
	readRaw(t, r).refused(t, 413, tool.CodeInvalidInput)
}

func TestHalfABodyIsNoCall(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	h := open(t, setup{handler: p})
	conn, r := h.raw(t, h.head("POST", "/v1/tools/echo/call", "Content-Length: 10")+`{"a`)
	_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	readRaw(t, r).refused(t, 400, tool.CodeInvalidInput)
	if len(p.began) > 0 {
		t.Error("the call was made all the same")
	}
}

func TestHeadersAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	_, r := h.raw(t, h.head("GET", "/v1/tools", "X-Long: "+strings.Repeat("x", 80<<10)))
	kit.Equal(t, readRaw(t, r).status, 431)
}
