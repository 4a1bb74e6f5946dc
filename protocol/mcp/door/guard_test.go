package door_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/tool"
)

// Headers must repeat the arguments that a schema asks for, or the call is refused: proxies go by the headers.
func TestHeadersThatRepeatArgumentsMustRepeatThem(t *testing.T) {
	s := newShop()
	s.sell(&tool.Spec{Name: "region", Input: []byte(`{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"Count"}}},
		"yes":{"type":"boolean","x-mcp-header":"Yes"}}}`)})
	url := serveHTTP(t, door.Options{}, s, s)
	for name, c := range map[string]struct {
		args    string
		headers []string
		code    int
	}{
		"the same":            {`{"region":"north"}`, []string{"Mcp-Param-Region", "north"}, 0},
		"wrapped":             {`{"region":"nörd"}`, []string{"Mcp-Param-Region", "=?base64?bsO2cmQ=?="}, 0},
		"a number":            {`{"deep":{"n":42}}`, []string{"Mcp-Param-Count", "42.0"}, 0},
		"a boolean":           {`{"yes":true}`, []string{"Mcp-Param-Yes", "true"}, 0},
		"neither":             {`{}`, nil, 0},
		"null":                {`{"region":null}`, nil, 0},
		"another":             {`{"region":"north"}`, []string{"Mcp-Param-Region", "south"}, -32020},
		"in another case":     {`{"region":"north"}`, []string{"Mcp-Param-Region", "North"}, -32020},
		"missing":             {`{"region":"north"}`, nil, -32020},
		"without an argument": {`{}`, []string{"Mcp-Param-Region", "north"}, -32020},
		"badly wrapped":       {`{"region":"Hello"}`, []string{"Mcp-Param-Region", "=?base64?SGVsbG8?="}, -32020},
		"another number":      {`{"deep":{"n":42}}`, []string{"Mcp-Param-Count", "43"}, -32020},
		"a huge number":       {`{"deep":{"n":42}}`, []string{"Mcp-Param-Count", "1e999999999"}, -32020},
		"not ASCII":           {`{"region":"nörd"}`, []string{"Mcp-Param-Region", "nörd"}, -32020},
	} {
		t.Run(name, func(t *testing.T) {
			got := post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"region","arguments":`+c.args+`,`+aboutMe+`}}`,
				append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "region"}, c.headers...)...)
			if got.Error.Code != c.code || (c.code != 0) != (got.status == http.StatusBadRequest) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

// A caller without a token is told where to get one if tokens of an issuer are accepted, and only then.
func TestChallengeNamesTheTokenIssuer(t *testing.T) {
	issuers := []string{"https://login.example.org"}
	b := newBench()
	for name, c := range map[string]struct {
		o                   door.Options
		resource, challenge string
	}{
		"an issuer": {door.Options{Issuers: func() []string { return issuers }}, "URL", `resource_metadata="ORIGIN/.well-known/oauth-protected-resource/mcp"`},
		"an issuer behind a proxy": {
			door.Options{Issuers: func() []string { return issuers }, URL: "https://tools.example.org/mcp"}, "https://tools.example.org/mcp",
			`resource_metadata="https://tools.example.org/.well-known/oauth-protected-resource/mcp"`,
		},
		"none": {door.Options{}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := serveTwo(t, c.o, b, b)
			origin := strings.TrimSuffix(url, door.Path)
			got := post(t, url, `{}`, "Authorization", "Bearer wrong")
			challenge := got.header.Get("WWW-Authenticate")
			if got.status != http.StatusUnauthorized || !strings.Contains(challenge, strings.ReplaceAll(c.challenge, "ORIGIN", origin)) ||
				c.challenge == "" && strings.Contains(challenge, "resource_metadata") {
				t.Errorf("%d %q", got.status, challenge)
			}
			for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
				status, body := get(t, origin+path)
				switch {
				case c.resource == "" && status != http.StatusNotFound:
					t.Errorf("%d %s", status, body)
				case c.resource != "" && (status != http.StatusOK || !strings.Contains(body, `"resource":"`+strings.ReplaceAll(c.resource, "URL", url)+`"`) ||
					!strings.Contains(body, `"authorization_servers":["https://login.example.org"]`)):
					t.Errorf("%d %s", status, body)
				}
			}
		})
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	resp := kit.Must(httpClient(t).Do(req))(t)
	defer resp.Body.Close()
	b := kit.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

func TestOtherHostsAndForeignPagesAreRefusedInJSONRPC(t *testing.T) {
	b := newBench()
	url := serveHTTP(t, door.Options{}, b, b)
	for name, c := range map[string]struct {
		host, origin string
		status       int
	}{
		"another host":   {"evil.example.org", "", http.StatusMisdirectedRequest},
		"a foreign page": {"", "http://evil.example.org", http.StatusForbidden},
		"our own page":   {"", strings.TrimSuffix(url, door.Path), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url,
				strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+aboutMe+`}}`)))(t)
			for name, value := range map[string]string{
				"Content-Type": "application/json", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover", "Origin": c.origin,
			} {
				if value != "" {
					req.Header.Set(name, value)
				}
			}
			req.Host = c.host
			resp := kit.Must(httpClient(t).Do(req))(t)
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(string(body), `"jsonrpc":"2.0"`) {
				t.Errorf("%s %s", resp.Status, body)
			}
		})
	}
}

// The properties of a call come in _meta or in headers; in both they are refused, except for a trace.
func TestCallPropertiesComeFromMetaOrHeaders(t *testing.T) {
	s := newShop()
	s.sell(&tool.Spec{Name: "patch", Output: []byte(`{"type":"object"}`)})
	url := serveHTTP(t, door.Options{}, s, s)
	about := `"_meta":{META"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for name, c := range map[string]struct {
		meta    string
		headers []string
		want    string
	}{
		"in _meta":            {`"toolpost/session":"tale",`, nil, `"session":"tale"`},
		"in a header":         {``, []string{"Toolpost-Session", "tale"}, `"session":"tale"`},
		"in both":             {`"toolpost/session":"tale",`, []string{"Toolpost-Session", "tale"}, `"code":-32602`},
		"one in each":         {`"toolpost/session":"tale",`, []string{"Idempotency-Key", "k"}, `"session":"tale"`},
		"a header not known":  {``, []string{"Toolpost-Sesion", "tale"}, `"code":-32602`},
		"a trace in both":     {`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",`, []string{"traceparent", "00-1af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}, `"session":""`},
		"a name of ours only": {`"toolpost/nothing":"x",`, nil, `"code":-32602`},
	} {
		t.Run(name, func(t *testing.T) {
			got := post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"patch",`+strings.Replace(about, "META", c.meta, 1)+`}}`,
				append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "patch"}, c.headers...)...)
			if !strings.Contains(got.body, c.want) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

// A sender whose body is slow or too large gets a refusal, and no other caller is affected.
func TestSlowAndHugeBodiesAreRefused(t *testing.T) {
	b := newBench()
	url, _ := serveTwo(t, door.Options{}, b, b) // with a time limit of one second for a body
	conn := kit.Must(net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), door.Path)))(t)
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: "+conn.RemoteAddr().String()+
		"\r\nAuthorization: Bearer token-ada\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\"")
	answer, _ := io.ReadAll(conn) // the server closes the connection and does not wait for the rest
	if !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || !strings.Contains(string(answer), `"jsonrpc":"2.0"`) {
		t.Errorf("a slow body: %s", answer)
	}
	// Little more than the limit: the unread rest fits into the connection's buffers, so that the client can read the
	// answer.
	huge := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":"` +
		strings.Repeat("x", 8<<20) + `"}}}`
	url = serveHTTP(t, door.Options{}, b, b)
	if got := post(t, url, huge); got.status != http.StatusRequestEntityTooLarge || !strings.Contains(got.body, `"jsonrpc":"2.0"`) {
		t.Errorf("a huge body: %d %s", got.status, got.body)
	}
	if got := call(t, url, "echo", `"arguments":{"next":"caller"},`); got.status != 200 {
		t.Errorf("the next caller gets %d %s", got.status, got.body)
	}
}
