package web

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"toolpost/tool"
)

// says is a route that answers with a word.
func says(method, path, word string) Route {
	return Route{Method: method, Path: path, Open: true, Serve: func(w http.ResponseWriter, _ *http.Request, _ tool.Principal) {
		Reply(w, http.StatusOK, []byte(`"`+word+`"`))
	}}
}

func doorWith(name string, routes ...Route) Door {
	return Door{Name: name, Hint: "see " + name, Routes: func(*Server, tool.Handler, tool.Catalog) []Route { return routes }}
}

// asked gives the status and the body of an answer.
func asked(s *Server, method, path string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost:1"
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestADoorMayHaveWhatNoOtherHas(t *testing.T) {
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
