package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/schema"
)

// Whatever an argument contains, it is a value at its place and nothing else.
func TestArgumentsCannotLeaveTheirPlace(t *testing.T) {
	s := open(t, `document: odd.yaml, server: "%s/base", operations: [file, only]`, startAPI(t))
	for _, name := range []string{"../../etc/passwd", "a/b", "%2e%2e%2f", "a?b#c", "..\\..", "\x00", "grüß", "a b+c", "...", "%"} {
		quoted, _ := json.Marshal(map[string]string{"name": name, "part": "p"})
		a := s.call("file", string(quoted))
		if len(a.Steps) != 5 || a.Steps[3] != name || a.Steps[4] != "p.json" || strings.Contains(a.Target, "/../") {
			t.Errorf("%q arrived as %s", name, a.Target)
		}
	}
	for _, args := range []string{`{"name":"..","part":"p"}`, `{"name":".","part":"p"}`, `{"name":"","part":"p"}`, `{"part":"p"}`} {
		s.refused("file", args, tool.CodeInvalidInput)
	}
	s.refused("only", `{"a":".","b":"."}`, tool.CodeInvalidInput)
	s.refused("only", `{"a":"x","b":[["y"]]}`, tool.CodeInvalidInput)
	for _, note := range []string{`a\r\nX-Evil: 1`, `a\nb`, `\u0000`, `a\rb`} {
		s.refused("file", `{"name":"a","part":"b","X-Note":"`+note+`"}`, tool.CodeInvalidInput)
	}
	a := s.call("file", `{"name":"a","part":"b","mood":"x; admin=1\r\nX-Evil: 1","next":"/a?b&admin=1#top%+"}`)
	if len(a.Cookies) != 1 || a.Headers["x-evil"] != "" || len(a.Query) != 1 || a.Query["next"][0] != "/a?b&admin=1#top%+" {
		t.Errorf("%+v", a)
	}
	if len(s.faults("file", `{"name":"a","part":"b","Authorization":"x"}`)) == 0 {
		t.Error("an argument can say who we are")
	}
	s.refused("file", `{"name":"`+strings.Repeat("x", 70_000)+`","part":"b"}`, tool.CodeInvalidInput)
	s.refused("file", `{"name":"a","part":"b","X-Note":"`+strings.Repeat("x", 70_000)+`"}`, tool.CodeInvalidInput)
}

func TestAnswersOfEveryKindHaveAnOutcome(t *testing.T) {
	tooltest.NoLeaks(t)
	s := open(t, `document: odd.yaml, server: %q, max_response: 1000000`, startAPI(t))
	ctx := kit.Context(t)
	for name, want := range map[string]string{
		"text": `"grüß"`, "empty": ``, `bytes {"blocks":1}`: `"base64":"AAEC`, `bytes {"blocks":1000}`: `{"asset":"answer","bytes":256000,"media_type":"application/octet-stream"}`,
		"in": `"target": "/landed?by=redirect"`, "next": `"ok"`,
	} {
		name, args, _ := strings.Cut(name, " ")
		var asset []byte
		res, err := s.invoke(ctx, name, args, tool.SinkFunc(func(e tool.Event) (err error) {
			asset, err = io.ReadAll(e.File)
			return err
		}))
		if err != nil || !res.OK || !strings.Contains(string(res.Output), want) {
			t.Errorf("%s: %+v %v", name, res, err)
		}
		if strings.Contains(args, "1000") && len(asset) != 256_000 {
			t.Errorf("the asset has %d bytes", len(asset))
		}
		if name == "next" && (res.Trace.Details["location"] != "/things/7" || res.Trace.Details["link"] == nil) {
			t.Errorf("details: %v", res.Trace.Details)
		}
	}
	for name, code := range map[string]tool.Code{
		"huge": tool.CodeProtocol, "liar": tool.CodeProtocol, "packed": tool.CodeProtocol, "cut": tool.CodeCrash, "garbage": tool.CodeCrash,
	} {
		s.refused(name, `{}`, code)
	}
}

func TestStatusesAreFailuresInTheAPIsWords(t *testing.T) {
	s := open(t, `document: odd.yaml, server: %q`, startAPI(t))
	own := map[int]string{418: `{"why": "`} // the body has no form that is known
	for status, code := range map[int]tool.Code{
		400: tool.CodeInvalidInput, 401: tool.CodeAccessDenied, 403: tool.CodeAccessDenied, 404: tool.CodeNotFound, 405: tool.CodeUnsupported,
		409: tool.CodeConflict, 410: tool.CodeNotFound, 418: tool.CodeToolError, 422: tool.CodeInvalidInput, 429: tool.CodeQuotaExceeded,
		500: tool.CodeToolError, 501: tool.CodeUnsupported, 503: tool.CodeUnavailable, 504: tool.CodeTimeout,
	} {
		res, err := s.invoke(kit.Context(t), "status", fmt.Sprintf(`{"code":%d}`, status), tool.Discard)
		if err != nil || res.OK || res.Failure.Code != code || res.Failure.Reason != fmt.Sprintf("http_%d", status) ||
			!strings.HasSuffix(strings.TrimRight(res.Failure.Message, `"}`), fmt.Sprintf(": %sbecause of %d", own[status], status)) ||
			res.Failure.Retry() != 7*time.Second || !strings.Contains(string(res.Failure.Details), "because of") {
			t.Errorf("%d: %+v %+v %v", status, res, res.Failure, err)
		}
	}
	res, err := s.invoke(kit.Context(t), "page", `{}`, tool.Discard)
	if err != nil || res.Failure == nil || len(res.Failure.Message)+len(res.Failure.Details) > 1000 {
		t.Errorf("a large page: %v %v", res, err)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	tooltest.NoLeaks(t)
	s := open(t, `document: odd.yaml, server: %q`, startAPI(t))
	for _, name := range []string{"never", "drip"} {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		kit.Refused(t, kit.Err(s.invoke(ctx, name, `{}`, tool.Discard)), tool.CodeTimeout, "", name)
		cancel()
	}
}

func TestRedirectsStayAtTheServer(t *testing.T) {
	s := open(t, `document: odd.yaml, server: %q`, startAPI(t))
	var reached atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer other.Close()
	for _, to := range []string{other.URL, "//" + strings.TrimPrefix(other.URL, "http://") + "/x", "file:///etc/passwd", "https://127.0.0.1/"} {
		res, err := s.invoke(kit.Context(t), "out", `{"to":"`+to+`"}`, tool.Discard)
		if err != nil || res.OK || res.Failure.Reason != "redirect" || reached.Load() {
			t.Errorf("%s: %+v %v", to, res, err)
		}
	}
	if res, err := s.invoke(kit.Context(t), "loop", `{}`, tool.Discard); err != nil || res.OK || res.Failure.Reason != "redirect" {
		t.Errorf("a loop: %+v %v", res, err)
	}
}

// inner is a foreign name that resolves to this machine.
const inner = "inner.example.test"

// resolveInner resolves names with a server of the test, until the test ends.
func resolveInner(t *testing.T) {
	t.Helper()
	at := kit.Must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1500); ; {
			n, from, err := at.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA && q.Name.String() == inner+"." {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				}}
			}
			if reply, err := m.Pack(); err == nil {
				_, _ = at.WriteTo(reply, from)
			}
		}
	}()
	was := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", at.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = was; at.Close(); <-done })
}

func TestANameDoesNotLeadIntoTheInnerNetwork(t *testing.T) {
	named := strings.Replace(startAPI(t), "127.0.0.1", inner, 1)
	resolveInner(t)
	_, err := open(t, `document: odd.yaml, server: %q`, named).invoke(kit.Context(t), "text", `{}`, tool.Discard)
	if e := tool.AsError(err); e == nil || e.Code != tool.CodeAccessDenied || e.Reason != "private_address" {
		t.Errorf("%v", err)
	}
	res, err := open(t, `document: odd.yaml, server: %q, private: true`, named).invoke(kit.Context(t), "text", `{}`, tool.Discard)
	if err != nil || !res.OK {
		t.Errorf("private: %v %v", res, err)
	}
}

func TestABrokenOperationHidesNoOther(t *testing.T) {
	s := open(t, `document: odd.yaml, server: %q`, startAPI(t))
	for name, want := range map[string]string{
		"broken": "no such parameter", "get_types": "not an object", "types": "not a list", "kinds": "path, query, header or cookie",
		"noSlash": "begin with a slash", "schema": "not an object",
	} {
		kit.Contains(t, s.why(name), want, name)
	}
	if res, err := s.invoke(kit.Context(t), "text", `{}`, tool.Discard); err != nil || !res.OK {
		t.Error(res, err)
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("openapi: 3.1.0\nx-a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 12 {
		fmt.Fprintf(&b, "x-a%d: &a%[1]d [%s]\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return b.String()
}

// Each of these is refused as a whole, with the reason, and without the time and memory that it would take.
func TestHostileDocumentsAreRefused(t *testing.T) {
	const head = "openapi: 3.1.0\ninfo: {title: x, version: '1'}\n"
	for name, c := range map[string]struct{ text, want string }{
		"huge":               {head + "x-big: " + strings.Repeat("x", 65<<20), "longer than"},
		"deep YAML":          {head + "x-a: " + strings.Repeat("[", 100_000), "deeper"},
		"deep lines":         {head + "x-a: " + strings.Repeat("[\n ", 5_000), "YAML"},
		"deep dashes":        {head + "x-a:\n" + strings.Repeat("- ", 50_000) + "x", "deeper"},
		"deep JSON":          {`{"openapi":"3.1.0","x":` + strings.Repeat("[", 100_000), "deeper"},
		"many values":        {`{"openapi":"3.1.0","x":[` + strings.Repeat("0,", 3_000_000) + `0]}`, "more than"},
		"bomb":               {bomb(), "larger than"},
		"anchor in itself":   {"openapi: 3.1.0\nx: &x [*x]\n", "YAML|deeper"},
		"merge key":          {"openapi: 3.1.0\nx: &x {a: 1}\ny: {<<: *x}\n", "merge keys"},
		"equal keys":         {head + "paths: {}\npaths: {}\n", "duplicate key"},
		"equal keys, JSON":   {`{"openapi":"3.1.0","openapi":"3.1.0"}`, "duplicate"},
		"tag":                {head + "x: !!python/object [a]\n", "tag|YAML|"},
		"binary":             {head + "x: !!binary aGk=\n", "tag"},
		"infinite":           {head + "x: .inf\n", "not a number"},
		"not UTF-8":          {head + "x: \xff\n", "UTF-8"},
		"two documents":      {head + "---\na: 1\n", "second"},
		"a list":             {"[1]", "not an object"},
		"nothing":            {"", "version"},
		"a page":             {"<html>not found</html>", "not an object"},
		"Swagger":            {"swagger: '2.0'\n", "Swagger 2.0"},
		"of another version": {"openapi: 4.0.0\n", "3.0 and 3.1"},
		"no version":         {"openapi: [3]\n", "3.0 and 3.1"},
		"paths are a list":   {"openapi: 3.1.0\npaths: []\n", "not an object"},
		"half of JSON":       {`{"openapi":"3.1.0",`, "early"},
	} {
		path := filepath.Join(t.TempDir(), "api")
		kit.OK(t, os.WriteFile(path, []byte(c.text), 0o600))
		r, err := try(t, fmt.Sprintf("document: %q", path))
		if err == nil {
			if c.want == "tag|YAML|" { // a tag that is not resolved means just its value
				_ = r.Close(context.Background())
				continue
			}
			t.Errorf("%s was read", name)
			_ = r.Close(context.Background())
			continue
		}
		found := false
		for want := range strings.SplitSeq(c.want, "|") {
			found = found || strings.Contains(err.Error(), want)
		}
		if !found || len(err.Error()) > 1000 {
			t.Errorf("%s: %.300s", name, err)
		}
	}
}

// A chain of references that is as long as a document can be exhausts neither the stack nor the time.
func TestALongChainOfReferencesIsBounded(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"openapi":"3.1.0","paths":{"/a":{"post":{"operationId":"a","requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/S0"}}}}}},"/b":{"get":{"operationId":"b"}}},"components":{"schemas":{`)
	for i := range 100_000 {
		fmt.Fprintf(&b, `"S%d":{"properties":{"n":{"$ref":"#/components/schemas/S%d"}}},`, i, i+1)
	}
	b.WriteString(`"S100000":true}}}`)
	s := openText(t, b.String())
	if why := s.why("a"); !strings.Contains(why, "larger than") || s.why("b") != "" {
		t.Errorf("%q %q", why, s.why("b"))
	}
}

// The schemas of all tools together are bounded: a tool beyond the bound has none.
func TestTheSchemasOfAllToolsAreBounded(t *testing.T) {
	var paths []string
	for i := range 80 {
		paths = append(paths, fmt.Sprintf(`"/a%d":{"post":{"operationId":"a%[1]d","parameters":[{"in":"query","name":"q%[1]d"}],`+
			`"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/S"}}}}}}`, i))
	}
	s := openText(t, `{"openapi":"3.1.0","paths":{`+strings.Join(paths, ",")+`},"components":{"schemas":{"S":{"description":"`+
		strings.Repeat("x", 900<<10)+`"}}}}`)
	size, without := 0, 0
	for _, spec := range s.specs {
		if size += len(spec.Input); spec.Input == nil {
			kit.Contains(t, s.why(spec.Name), "larger than 64 MiB together", spec.Name)
			without++
		}
	}
	if size > 64<<20 || without == 0 || without == 80 {
		t.Errorf("the schemas have %d bytes; %d tools have none", size, without)
	}
}

// Names in $defs that many references claim are given in the same order each time: a tool whose schema changes with each
// start could not be pinned.
func TestEqualDocumentsMakeEqualSchemas(t *testing.T) {
	var properties, schemas []string
	for i := range 20 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"$ref":"#/components/schemas/S%[1]d/properties/same"}`, i))
		schemas = append(schemas, fmt.Sprintf(`"S%d":{"properties":{"same":{"const":%[1]d}}}`, i))
	}
	doc := `{"openapi":"3.1.0","paths":{"/a":{"post":{"operationId":"a","requestBody":{"content":{"application/json":{"schema":{"properties":{` +
		strings.Join(properties, ",") + `}}}}}}}},"components":{"schemas":{` + strings.Join(schemas, ",") + `}}}`
	kit.Equal(t, string(openText(t, doc).specs["a"].Input), string(openText(t, doc).specs["a"].Input))
}

// The runner vouches for schemas only if they compile.
func TestSoundSchemasCompile(t *testing.T) {
	files := kit.Must(filepath.Glob("testdata/docs/*"))(t)
	for _, file := range files {
		s := open(t, `document: %q, server: "http://127.0.0.1:1"`, filepath.Base(file))
		for name, spec := range s.specs {
			_, in := schema.Compile(spec.Input)
			_, out := schema.Compile(spec.Output)
			works := (spec.Input == nil || in == nil) && (spec.Output == nil || out == nil)
			kit.Equal(t, s.Runner.(interface{ Sound(*tool.Spec) bool }).Sound(spec), works, file, name)
		}
	}
	for _, bad := range []string{`{"type":"strin"}`, `{"allOf":[{"$ref":"#/components/schemas/S"}]}`, `{"minLength":-1}`} {
		s := openText(t, `{"openapi":"3.1.0","paths":{"/a":{"get":{"operationId":"a","responses":{"200":{"content":{"application/json":{"schema":`+
			`{"items":{"$ref":"#/components/schemas/S"}}}}}}}}},"components":{"schemas":{"S":`+bad+`}}}`)
		if s.Runner.(interface{ Sound(*tool.Spec) bool }).Sound(s.specs["a"]) || s.specs["a"].Output == nil {
			t.Errorf("%s is sound", bad)
		}
	}
}

// A fetched document may name only its own host among internal addresses, and credentials are sent to no other host;
// and when it changes, so do the tools.
func TestADocumentAtAURL(t *testing.T) {
	tooltest.NoLeaks(t)
	api := startAPI(t)
	text := atomic.Pointer[string]{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere.json" {
			http.Redirect(w, r, api+"/x", http.StatusFound)
			return
		}
		if r.URL.Path == "/api.json" {
			_, _ = io.WriteString(w, *text.Load())
			return
		}
		fmt.Fprintf(w, "%s %s", r.URL.Path, r.Header.Get("X-Key"))
	}))
	defer front.Close()
	const doc = `{"openapi":"3.1.0","paths":{"/own":{"get":{"operationId":"own","security":[{"key":[]}],"servers":[{"url":"base"}]}},
		"/inner":{"get":{"operationId":"inner","servers":[{"url":%q}]}},
		"/outer":{"get":{"operationId":"outer","security":[{"key":[]}],"servers":[{"url":"https://example.org"}]}}%s},
		"components":{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"X-Key"}}}}`
	set := func(more string) { one := fmt.Sprintf(doc, api, more); text.Store(&one) }
	set("")
	s := open(t, `document: "%s/api.json?token=hidden", auth: {key: HEADER}, refresh: 20ms`, front.URL)
	res, err := s.invoke(kit.Context(t), "own", `{}`, tool.Discard)
	if err != nil || string(res.Output) != `"/base/own k-header"` {
		t.Errorf("%+v %v", res, err)
	}
	for name, want := range map[string]string{"inner": "inner address", "outer": "credentials are for the host"} {
		kit.Contains(t, s.why(name), want, name)
	}
	changed := tool.Changed(s.Runner)
	set(`,"/new":{"get":{"operationId":"new","servers":[{"url":"/"}]}}`)
	select {
	case <-changed:
	case <-kit.Context(t).Done():
		t.Fatal("nobody noticed that the document changed")
	}
	if specs, err := s.Runner.(tool.Source).Tools(kit.Context(t)); err != nil || len(specs) != 4 {
		t.Errorf("%d tools, %v", len(specs), err)
	}
	_, err = try(t, fmt.Sprintf(`document: "%s/elsewhere.json?token=hidden"`, front.URL))
	if err == nil || !strings.Contains(err.Error(), "302") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a document that is elsewhere: %v", err)
	}
}

// No error contains the secret in a URL that cannot be reached.
func TestErrorsDoNotTellSecrets(t *testing.T) {
	s := open(t, `document: auth.yaml, server: "http://127.0.0.1:1", %s`, everyKey)
	for _, name := range []string{"byQuery", "byHeader", "byBasic"} {
		_, err := s.invoke(kit.Context(t), name, `{}`, tool.Discard)
		if tool.CodeOf(err) != tool.CodeUnavailable || strings.Contains(err.Error(), "k-header") || strings.Contains(err.Error(), "query") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// allowReserved is for queries: in a cookie it would let a value begin another cookie, before ours.
func TestValuesCannotInjectCookiesOrPartHeaders(t *testing.T) {
	got := make(chan *http.Request, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			kit.Check(t, r.ParseMultipartForm(1<<20))
		}
		got <- r
	}))
	defer api.Close()
	doc := filepath.Join(t.TempDir(), "api.yaml")
	kit.OK(t, os.WriteFile(doc, []byte(`
openapi: 3.1.0
info: {title: x, version: "1"}
paths:
  /c:
    get: {operationId: c, security: [{sid: []}], parameters: [{name: mood, in: cookie, allowReserved: true, schema: {type: string}}]}
    post: {operationId: p, requestBody: {content: {multipart/form-data: {schema: {type: object}}}}}
components: {securitySchemes: {sid: {type: apiKey, in: cookie, name: sid}}}
`), 0o600))
	s := open(t, `document: %q, server: %q, auth: {sid: COOKIE}`, doc, api.URL)
	invoke := func(name, args string) *http.Request {
		t.Helper()
		c := &tool.Call{Tool: name, Args: json.RawMessage(args), Spec: s.specs[name]}
		kit.Must(s.Invoke(kit.Context(t), c, tool.Discard))(t)
		return <-got
	}
	if all := invoke("c", `{"mood":"x;admin"}`).Cookies(); len(all) != 2 || all[1].Value != "k-cookie" {
		t.Errorf("the cookies are %v", all)
	}
	for _, name := range []string{`a; filename=b`, `a\"; filename=\"b`, `a\r\nX: y`} {
		r := invoke("p", `{"body":{"`+name+`":"v"}}`)
		if len(r.MultipartForm.File) != 0 || len(r.MultipartForm.Value) != 1 {
			t.Errorf("%s arrives as %+v", name, r.MultipartForm)
		}
	}
}
