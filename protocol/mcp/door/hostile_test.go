package door_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/tool"
)

// A said is an answer of the door.
type said struct {
	status int
	header http.Header
	body   string
	Result json.RawMessage `json:"result"`
	Error  struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// post sends a body with headers, which are pairs of a name and a value.
func post(t *testing.T, url, body string, headers ...string) said {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp := kit.Must(httpClient(t).Do(req))(t)
	defer resp.Body.Close()
	b := kit.Must(io.ReadAll(resp.Body))(t)
	s := said{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if bytes.HasPrefix(b, []byte("{")) {
		kit.Check(t, json.Unmarshal(b, &s), b)
	}
	return s
}

const aboutMe = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// call makes a modern call of a tool, with its headers.
func call(t *testing.T, url, name, rest string) said {
	t.Helper()
	return post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+name+`",`+rest+aboutMe+`}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", name)
}

func TestBadRequestsAreRefusedInTheWordsOfTheProtocol(t *testing.T) {
	b := newBench()
	url := serveHTTP(t, door.Options{}, b, b)
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	modern := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo"}
	with := func(more ...string) []string { return append(append([]string(nil), modern...), more...) }
	body := func(params string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + params + `}}`
	}
	good := body(`"name":"echo","arguments":{},` + aboutMe)
	for name, c := range map[string]struct {
		body         string
		headers      []string
		status, code int
	}{
		"not JSON":                   {`{"jsonrpc"`, modern, 400, -32700},
		"half a message":             {good[:len(good)/2], modern, 400, -32700},
		"two messages":               {good + good, modern, 400, -32700},
		"a batch":                    {`[` + good + `]`, modern, 400, -32600},
		"not UTF-8":                  {strings.Replace(good, "echo", "ech\xff", 1), modern, 400, -32700},
		"a key twice":                {strings.Replace(good, `"id":7`, `"id":7,"id":8`, 1), modern, 400, -32700},
		"a key twice, deep inside":   {body(`"name":"echo","arguments":{"a":{"b":1,"b":2}},` + aboutMe), modern, 400, -32700},
		"a key in another case":      {strings.Replace(good, `"method"`, `"Method"`, 1), modern, 400, -32600},
		"too deep":                   {body(`"name":"echo","arguments":{"a":` + deep + `},` + aboutMe), modern, 400, -32700},
		"no version":                 {strings.Replace(good, `"jsonrpc":"2.0",`, "", 1), modern, 400, -32600},
		"an id that is null":         {strings.Replace(good, `"id":7`, `"id":null`, 1), modern, 400, -32600},
		"an id that is an object":    {strings.Replace(good, `"id":7`, `"id":{}`, 1), modern, 400, -32600},
		"a huge id":                  {strings.Replace(good, `"id":7`, `"id":"`+strings.Repeat("x", 2000)+`"`, 1), modern, 400, -32600},
		"a huge progress token":      {strings.Replace(good, `"_meta":{`, `"_meta":{"progressToken":"`+strings.Repeat("x", 2000)+`",`, 1), modern, 400, -32602},
		"huge capabilities":          {strings.Replace(good, `"elicitation":{}`, `"x":"`+strings.Repeat("x", 20_000)+`"`, 1), modern, 400, -32602},
		"params that are a list":     {`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}`, modern, 400, -32602},
		"no _meta":                   {body(`"name":"echo"`), modern, 400, -32602},
		"no capabilities":            {body(`"name":"echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`), modern, 400, -32602},
		"arguments that are a list":  {body(`"name":"echo","arguments":[],` + aboutMe), modern, 200, -32602},
		"a name that is a number":    {body(`"name":1,` + aboutMe), modern, 400, -32602},
		"another name in the header": {good, with("Mcp-Name", "fail"), 400, -32020},
		"another method":             {good, with("Mcp-Method", "tools/list"), 400, -32020},
		"another version":            {good, with("Mcp-Protocol-Version", "2025-11-25"), 400, -32020},
		"a version that is not":      {strings.Replace(good, "2026-07-28", "2099-01-01", 1), with("Mcp-Protocol-Version", "2099-01-01"), 400, -32022},
		"an unknown method":          {strings.Replace(good, "tools/call", "tools/burn", 1), with("Mcp-Method", "tools/burn"), 404, -32601},
		"a field of ours that is not": {
			body(`"name":"echo","_meta":{"toolpost/sesion":"s","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`),
			modern, 200, -32602,
		},
		"a session that is not": {`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, []string{"Mcp-Session-Id", "nobody"}, 404, -32600},
	} {
		t.Run(name, func(t *testing.T) {
			got := post(t, url, c.body, c.headers...)
			if got.status != c.status || got.Error.Code != c.code || got.Error.Message == "" {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	if got := call(t, url, "echo", `"arguments":{"next":"caller"},`); got.status != 200 || !strings.Contains(got.body, `"structuredContent":{"next":"caller"}`) {
		t.Errorf("the next caller gets %d %s", got.status, got.body)
	}
}

func TestAHeaderMayBeWrapped(t *testing.T) {
	b := newBench()
	url := serveHTTP(t, door.Options{}, b, b)
	got := post(t, url, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo",`+aboutMe+`}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "=?base64?ZWNobw==?=")
	if got.status != 200 || got.Error.Code != 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// stateOf returns the state that the client must send back with its answer.
func stateOf(t *testing.T, s said) string {
	t.Helper()
	var r struct {
		Type  string `json:"resultType"`
		State string `json:"requestState"`
	}
	if err := json.Unmarshal(s.Result, &r); err != nil || r.Type != "input_required" || r.State == "" {
		t.Fatalf("%v: %s", err, s.body)
	}
	return r.State
}

func TestRequestStateIsUsableOnce(t *testing.T) {
	b := newBench()
	url := serveHTTP(t, door.Options{}, carrying(b), b)
	const answer = `"inputResponses":{"answer":{"action":"accept","content":{"colour":"red"}}},`
	ask := func() string { return stateOf(t, call(t, url, "ask", `"arguments":{"n":1},`)) }
	state := ask()
	bring := func(name, args, state string) said {
		return call(t, url, name, `"arguments":`+args+`,`+answer+`"requestState":"`+state+`",`)
	}
	for name, got := range map[string]said{
		"changed":             bring("ask", `{"n":1}`, state[:20]+string(state[20]^1)+state[21:]),
		"invented":            bring("ask", `{"n":1}`, "e30"),
		"for other arguments": bring("ask", `{"n":2}`, state),
		"for another tool":    bring("echo", `{"n":1}`, state),
	} {
		if got.Error.Code != -32602 || !strings.Contains(got.Error.Message, "requestState") {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	if got := bring("ask", `{"n":1}`, state); !strings.Contains(got.body, `\"answers\":{\"colour\":\"red\"}`) {
		t.Errorf("the answer: %s", got.body)
	}
	if got := bring("ask", `{"n":1}`, state); got.Error.Code != -32602 || !strings.Contains(got.Error.Message, "answered already") {
		t.Errorf("the answer once more: %s", got.body)
	}
	if got := call(t, url, "ask", `"arguments":{"n":1},"inputResponses":{},"requestState":"`+ask()+`",`); stateOf(t, got) == "" {
		t.Errorf("no answer: %s", got.body)
	}
}

// On stdio nonsense is answered with an error. After a line that is too long the door stops reading, but answers the
// earlier requests.
func TestNonsenseOnStdioIsAnsweredInTheWordsOfTheProtocol(t *testing.T) {
	b := newBench()
	modern := func(id, method, rest string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + rest + aboutMe + `}}` + "\n"
	}
	var out bytes.Buffer
	in := strings.Join([]string{
		"nonsense\n", "\n", `{"jsonrpc":"2.0","id":1,"method":"tools/list","id":2}` + "\n", "[]\n", "\xff\n",
		`{"jsonrpc":"2.0","id":"old","method":"tools/list"}` + "\n", // before initialize, and without _meta
		modern(`"burn"`, "tools/burn", ""),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody"}}` + "\n",
		`{"jsonrpc":"2.0","id":"toolpost-1","result":{}}` + "\n", // an answer to no question
		modern(`"good"`, "tools/call", `"name":"echo","arguments":{"a":1},`),
		`{"jsonrpc":"2.0","id":3,"method":"` + strings.Repeat("x", 9<<20), // a line that is too long
	}, "")
	door := &door.Door{In: strings.NewReader(in), Out: &out, Caller: tool.Principal{ID: "ada"}}
	kit.OK(t, door.Serve(t.Context(), b, b))
	said := map[string][]int{}
	for line := range strings.Lines(out.String()) {
		var m struct {
			ID     any
			Result json.RawMessage
			Error  struct{ Code int }
		}
		kit.OK(t, json.Unmarshal([]byte(line), &m), line)
		key := fmt.Sprint(m.ID)
		said[key] = append(said[key], m.Error.Code)
	}
	slices.Sort(said["<nil>"])
	want := map[string][]int{
		"<nil>": {-32700, -32700, -32700, -32600}, "2": {-32700}, "old": {-32602}, "burn": {-32601}, "good": {0},
	}
	if !reflect.DeepEqual(said, want) {
		t.Errorf("it said %v\n%.2000s", said, out.String())
	}
}

// A session belongs to its client, and no caller can open so many that others get none.
func TestSessionsAreTheirOwnersAndBounded(t *testing.T) {
	b := newBench()
	url, _ := serveTwo(t, door.Options{}, b, b)
	id := handshake(t, url, "ada")
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if got := post(t, url, list, "Authorization", "Bearer token-bob", "Mcp-Session-Id", id); got.status != http.StatusNotFound {
		t.Errorf("another's session: %d %s", got.status, got.body)
	}
	for range 999 {
		handshake(t, url, "ada")
	}
	const again = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`
	if got := post(t, url, again, "Authorization", "Bearer token-ada"); got.status != http.StatusServiceUnavailable {
		t.Errorf("one session more: %d %s", got.status, got.body)
	}
	if got := post(t, url, list, "Authorization", "Bearer token-bob", "Mcp-Session-Id", handshake(t, url, "bob")); got.status != http.StatusOK {
		t.Errorf("the next caller: %d %s", got.status, got.body)
	}
}

// Several programs may share an address.
func TestASessionGoesOnInAnotherProgramThatSharesTheStore(t *testing.T) {
	serve := func(key string) string {
		b := newBench()
		url, _ := serveTwo(t, door.Options{Keys: secret.NewKeyed(func() ([]byte, error) { return []byte(key), nil })}, b, b)
		return url
	}
	one, two, foreign := serve("shared"), serve("shared"), serve("another")
	id := handshake(t, one, "ada")
	list := func(url, who, id string, status int) {
		t.Helper()
		if got := post(t, url, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, "Authorization", "Bearer token-"+who, "Mcp-Session-Id", id); got.status != status {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	list(two, "ada", id, http.StatusOK)
	list(two, "bob", id, http.StatusNotFound)
	list(foreign, "ada", id, http.StatusNotFound)
	list(two, "ada", "A"+id[1:]+"A", http.StatusNotFound)
	end, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, two, http.NoBody)
	kit.OK(t, err)
	end.Header.Set("Authorization", "Bearer token-ada")
	end.Header.Set("Mcp-Session-Id", id)
	resp := kit.Must(httpClient(t).Do(end))(t)
	kit.OK(t, resp.Body.Close())
	list(two, "ada", id, http.StatusNotFound)
}

// A client's data is kept for as long as its session or its subscription lasts, of which it may have many: so it must
// be small.
func TestSessionAndSubscriptionDataIsBounded(t *testing.T) {
	b := newBench()
	url, _ := serveTwo(t, door.Options{}, b, b)
	huge := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"x":"` +
		strings.Repeat("x", 1<<20) + `"}}}`
	if got := post(t, url, huge, "Authorization", "Bearer token-ada"); got.Error.Code != -32602 {
		t.Errorf("a mebibyte of capabilities: %d %s", got.status, got.body)
	}
	id, uri := handshake(t, url, "ada"), "toolpost://assets/"+strings.Repeat("x", 4000)
	refused := 0
	for n := range 50 {
		got := post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"%s%d"}}`, uri, n),
			"Authorization", "Bearer token-ada", "Mcp-Session-Id", id)
		if got.Error.Code == -32602 {
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("a session keeps %d URIs of 4 KiB", 50-refused)
	}
	for name, list := range map[string]string{
		"one that is long":      `"toolpost://assets/` + strings.Repeat("x", 1<<20) + `"`,
		"more than are allowed": numbered(1001),
		"long ones":             numbered(50, uri),
	} {
		got := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[`+
			list+`]},`+aboutMe+`}}`, "Authorization", "Bearer token-ada", "Mcp-Protocol-Version", "2026-07-28",
			"Mcp-Method", "subscriptions/listen", "Accept", "application/json")
		if got.Error.Code != -32602 {
			t.Errorf("%s: %d %.200s", name, got.status, got.body)
		}
	}
}

// numbered is a list of URIs.
func numbered(n int, begin ...string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"toolpost://assets/%s%d"`, strings.Join(begin, ""), i))
	}
	return strings.Join(all, ",")
}
