package openapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/schema"
)

// The values and results are those of the table in the specification.
func TestParametersOfEveryStyleArriveAsTheSpecificationHasThem(t *testing.T) {
	tooltest.NoLeaks(t)
	s := open(t, `document: styles.yaml, server: %q`, startAPI(t))
	values := map[string]string{
		"primitive": `"blue"`, "array": `["blue","black","brown"]`, "object": `{"R":100,"G":200,"B":150}`,
	}
	// Members are sorted by name.
	want := map[string]string{
		"path_simple_primitive": "blue", "path_simple_array": "blue,black,brown",
		"path_simple_object_whole": "B,150,G,200,R,100", "path_simple_object_explode": "B=150,G=200,R=100",
		"path_label_primitive": ".blue", "path_label_array_whole": ".blue,black,brown",
		"path_label_array_explode": ".blue.black.brown", "path_label_object_whole": ".B,150,G,200,R,100",
		"path_label_object_explode": ".B=150.G=200.R=100", "path_matrix_primitive": ";color=blue",
		"path_matrix_array_whole":    ";color=blue,black,brown",
		"path_matrix_array_explode":  ";color=blue;color=black;color=brown",
		"path_matrix_object_whole":   ";color=B,150,G,200,R,100",
		"path_matrix_object_explode": ";B=150;G=200;R=100", "query_form_primitive": "color=blue",
		"query_form_array_whole":            "color=blue,black,brown",
		"query_form_array_explode":          "color=blue&color=black&color=brown",
		"query_form_object_whole":           "color=B,150,G,200,R,100",
		"query_form_object_explode":         "B=150&G=200&R=100",
		"query_spaceDelimited_array_whole":  "color=blue%20black%20brown",
		"query_spaceDelimited_object_whole": "color=B%20150%20G%20200%20R%20100",
		"query_pipeDelimited_array_whole":   "color=blue%7Cblack%7Cbrown",
		"query_pipeDelimited_object_whole":  "color=B%7C150%7CG%7C200%7CR%7C100",
		"query_deepObject_object":           "color%5BB%5D=150&color%5BG%5D=200&color%5BR%5D=100",
		"header_simple_primitive":           "blue", "header_simple_array": "blue,black,brown",
		"header_simple_object_whole": "B,150,G,200,R,100", "header_simple_object_explode": "B=150,G=200,R=100",
		"cookie_form_primitive": "color=blue", "cookie_form_array_whole": "color=blue,black,brown",
		"cookie_form_array_explode": "color=blue; color=black; color=brown",
		"cookie_form_object_whole":  "color=B,150,G,200,R,100", "cookie_form_object_explode": "B=150; G=200; R=100",
	}
	checked := map[string]bool{}
	for _, name := range s.names {
		shape := strings.Split(name, "_")[2]
		a := s.call(name, `{"color":`+values[shape]+`}`)
		path, query, _ := strings.Cut(a.Target, "?")
		got := map[string]string{
			"path": strings.TrimPrefix(path, "/"+name+"/"), "query": query, "header": a.Headers["color"], "cookie": a.Headers["cookie"],
		}[strings.Split(name, "_")[0]]
		for key, expected := range want {
			if name == key || strings.HasPrefix(name, key+"_") {
				checked[key] = true
				kit.Equal(t, got, expected, name)
			}
		}
	}
	if len(checked) != len(want) || len(s.names) != 46 {
		t.Errorf("%d of %d were checked, of %d tools", len(checked), len(want), len(s.names))
	}
}

func TestSchemasOfAlternativesHold(t *testing.T) {
	s := open(t, `document: oneof.yaml, server: %q`, startAPI(t))
	a := s.call("createPayment", `{"body":{"kind":"card","amount":1,"number":"123456789012"}}`)
	if a.Method != "POST" || a.Headers["content-type"] != "application/json" ||
		string(a.Body) != `{"amount":1,"kind":"card","number":"123456789012"}` {
		t.Errorf("%+v", a)
	}
	s.call("createPayment", `{"body":{"kind":"transfer","amount":99999999999999999999,"iban":null}}`)
	for _, bad := range []string{
		`{}`, `{"body":{"kind":"card","amount":0,"number":"123456789012"}}`, `{"body":{"kind":"card","amount":1,"iban":"x"}}`,
		`{"body":{},"more":1}`,
	} {
		if len(s.faults("createPayment", bad)) == 0 {
			t.Errorf("%s matches", bad)
		}
	}
	if out := string(s.specs["createPayment"].Output); !strings.Contains(out, `"anyOf"`) || !strings.Contains(out, `"Transfer":`) {
		t.Errorf("output: %s", out)
	}
}

func TestSchemasThatReferToThemselvesStayFinite(t *testing.T) {
	s := open(t, `document: recursion.json, server: %q`, startAPI(t))
	a := s.call("putTree", `{"id":7,"body":{"name":"a","children":[{"name":"b","twin":{"name":"c"}}]}}`)
	if a.Target != "/trees/7" || a.Method != "PUT" {
		t.Errorf("%+v", a)
	}
	if len(s.faults("putTree", `{"id":7,"body":{"name":"a","children":[{"name":"b","twin":{"nam":"c"}}]}}`)) == 0 {
		t.Error("a fault deep inside was not found")
	}
	kit.Contains(t, s.why("loops"), "lead to each other", "loops")
	want := map[string]tool.Effects{
		"putTree":  {Reads: true, Writes: true, Network: true, Idempotent: true},
		"dropTree": {Reads: true, Writes: true, Network: true, Idempotent: true, Destructive: true},
	}
	for name, effects := range want {
		kit.Equal(t, s.specs[name].Effects, effects, name)
	}
}

// A document of 21 MB with more operations, and more values, than a source may have is read with a filter, without the
// memory that decoding all of it would take.
func TestALargeDocumentIsReadWithAFilter(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(`{"openapi":"3.1.0","info":{"title":"Large","version":"1"},"paths":{"/users/{id}":{"get":` +
		`{"operationId":"user","parameters":[{"$ref":"#/components/parameters/id"}]}}`)
	about := strings.Repeat("what it does, ", 40)
	for i := range 11_000 {
		fmt.Fprintf(&doc, `,"/things%d/{id}":{"get":{"operationId":"thing%[1]d","description":%q,"parameters":[`+
			`{"$ref":"#/components/parameters/id"}%s]}}`, i, about, strings.Repeat(`,{"in":"query","name":"a","schema":{"type":"string"}}`, 25))
	}
	doc.WriteString(`},"components":{"parameters":{"id":{"in":"path","name":"id","required":true,"schema":{"$ref":"#/components/schemas/Id"}}},` +
		`"schemas":{"Id":{"type":"string","minLength":1}}}}`)
	path := filepath.Join(t.TempDir(), "large.json")
	kit.OK(t, os.WriteFile(path, []byte(doc.String()), 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := open(t, `document: %q, server: %q, operations: ["GET /users*"]`, path, startAPI(t))
	runtime.ReadMemStats(&after)
	if grown, most := after.TotalAlloc-before.TotalAlloc, uint64(8*doc.Len()+64<<20); grown > most {
		t.Errorf("reading %d bytes took %d bytes of memory, more than %d", doc.Len(), grown, most)
	}
	if !slices.Equal(s.names, []string{"user"}) {
		t.Fatal(s.names, s.why(s.names[0]))
	}
	if a := s.call("user", `{"id":"ada"}`); a.Target != "/users/ada" {
		t.Errorf("%+v", a)
	}
	if len(s.faults("user", `{"id":""}`)) == 0 {
		t.Error("the schema behind two references does not hold")
	}
	for _, operations := range []string{``, `, operations: ["GET /things*"]`} {
		kit.Fails(t, kit.Err(try(t, fmt.Sprintf(`document: %q, server: "http://127.0.0.1:1"`, path)+operations)),
			"operations", "all of it was read")
	}
}

// Some documents append a query to a path.
func TestAQueryInAPathIsTakenAsParameters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "query.yaml")
	in := func(name, where string) string {
		return fmt.Sprintf("{in: %s, name: %s, required: true, schema: {type: string}}", where, name)
	}
	doc := "openapi: 3.0.3\npaths:\n" +
		"  /now?city={city}&units=m/s&raw:\n    get: {operationId: now, parameters: [" + in("city", "path") + "]}\n" +
		"  /{id}/now?lang={language}&kind=x:\n    get: {operationId: of, parameters: [" +
		in("id", "path") + ", " + in("language", "path") + ", " + in("kind", "query") + "]}\n" +
		"  /odd?city={town}:\n    get: {operationId: odd}\n"
	kit.OK(t, os.WriteFile(path, []byte(doc), 0o600))
	s := open(t, `document: %q, server: %q`, path, startAPI(t))
	for call, want := range map[string]string{
		`now {"city":"a&b=c"}`:                 "/now?units=m/s&raw&city=a%26b%3Dc",
		`of {"id":"7","lang":"de","kind":"y"}`: "/7/now?lang=de&kind=y",
	} {
		name, args, _ := strings.Cut(call, " ")
		if a := s.call(name, args); a.Target != want {
			t.Errorf("%s arrived as %s, not %s", call, a.Target, want)
		}
	}
	kit.Contains(t, s.why("odd"), "does not declare", "odd")
}

func TestAThousandOperationsAreTools(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("openapi: 3.0.3\ninfo: {title: Large, version: '1'}\npaths:\n")
	for i := range 1000 {
		fmt.Fprintf(&doc, "  /things%d/{id}:\n    get:\n      operationId: getThing%[1]d\n      parameters:\n"+
			"      - name: id\n        in: path\n        required: true\n        schema:\n          type: string\n"+
			"      - name: next\n        in: query\n        schema: {$ref: '#/components/schemas/S%d'}\n"+
			"      responses:\n        '200':\n          description: a thing\n", i, i%50)
	}
	doc.WriteString("components:\n  schemas:\n")
	for i := range 50 {
		fmt.Fprintf(&doc, "    S%d: {type: object, properties: {next: {$ref: '#/components/schemas/S%d'}}}\n", i, (i+1)%50)
	}
	path := filepath.Join(t.TempDir(), "large.yaml")
	kit.OK(t, os.WriteFile(path, []byte(doc.String()), 0o600))
	s := open(t, `document: %q, server: %q`, path, startAPI(t))
	kit.MustEqual(t, len(s.names), 1000, "tools")
	for _, name := range s.names {
		kit.MustEqual(t, s.why(name), "")
	}
	for _, i := range []int{0, 123, 999} {
		if a := s.call(fmt.Sprintf("getThing%d", i), `{"id":"x"}`); a.Target != fmt.Sprintf("/things%d/x", i) {
			t.Errorf("%+v", a)
		}
	}
	few := open(t, `document: %q, server: "http://127.0.0.1:1", operations: [getThing12?, "GET /things7/*"]`, path)
	kit.Equal(t, len(few.names), 11, "chosen: %v", few.names)
}

func TestNullOf30IsNullOfJSONSchema(t *testing.T) {
	s := open(t, `document: nullable.yaml, server: %q`, startAPI(t))
	for _, body := range []string{
		`{"nick":null,"mood":null,"boss":null,"age":1}`, `{"nick":"Bob","mood":"good","boss":{"name":"Eve"},"age":150}`,
		`{"friend":{"name":"x"}}`,
	} {
		if a := s.call("changePerson", `{"body":`+body+`}`); !sameJSON(a.JSON, body) {
			t.Errorf("%s arrived as %s", body, a.JSON)
		}
	}
	for _, body := range []string{
		`{"name":null}`, `{"age":0}`, `{"age":151}`, `{"mood":"odd"}`, `{"boss":{}}`, `{"nick":1}`, `{"friend":null}`,
	} {
		if len(s.faults("changePerson", `{"body":`+body+`}`)) == 0 {
			t.Errorf("%s matches", body)
		}
	}
}

func sameJSON(a json.RawMessage, b string) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

func TestBodiesOfEveryKindArrive(t *testing.T) {
	s := open(t, `document: bodies.yaml, server: %q`, startAPI(t))
	bytes := "\x00\xff\r\n--"
	b64 := base64.StdEncoding.EncodeToString([]byte(bytes))
	a := s.call("upload", `{"body":{"file":{"base64":"`+b64+`","filename":"a\"b\r\nX: y.png"},"more":["`+b64+`","YQ=="],
		"title":"grüß","tags":["a","b"],"about":{"by":"me"}}}`)
	want := []part{
		{"about", "", "application/json", []byte(`{"by":"me"}`)}, {"file", "a\"b\r\nX: y.png", "image/png", []byte(bytes)},
		{"more", "more", "application/octet-stream", []byte(bytes)}, {"more", "more", "application/octet-stream", []byte("a")},
		{"tags", "", "text/plain", []byte("a")}, {"tags", "", "text/plain", []byte("b")}, {"title", "", "text/plain", []byte("grüß")},
	}
	for i := range a.Parts { // browsers, and the library, write these as %22, %0D and %0A
		a.Parts[i].Filename = strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n").Replace(a.Parts[i].Filename)
	}
	kit.DeepEqual(t, a.Parts, want, "parts")
	a = s.call("form", `{"body":{"text":"a&b=c d","list":[1,2],"joined":["x","y z"],"deep":{"a":{"b":"1"},"c":[2,3]},"nested":{"k":[1]}}}`)
	form := map[string][]string{
		"text": {"a&b=c d"}, "list": {"1", "2"}, "joined": {"x,y z"}, "deep[a][b]": {"1"}, "deep[c]": {"2", "3"}, "nested": {`{"k":[1]}`},
	}
	kit.DeepEqual(t, a.Form, form, "form")
	if a = s.call("text", `{"body":"grüß"}`); string(a.Body) != "grüß" || a.Headers["content-type"] != "text/plain; charset=utf-8" {
		t.Errorf("text: %+v", a)
	}
	if a = s.call("bytes", `{"body":"`+b64+`"}`); string(a.Body) != bytes || a.Headers["content-type"] != "application/octet-stream" {
		t.Errorf("bytes: %+v", a)
	}
	if a = s.call("several", `{"body":{"a":1}}`); a.Headers["content-type"] != "application/vnd.api+json" {
		t.Errorf("several: %+v", a)
	}
	if a = s.call("several", `{}`); len(a.Body) != 0 || a.Headers["content-type"] != "" {
		t.Errorf("no body: %+v", a)
	}
	s.refused("bytes", `{"body":"not base64!"}`, tool.CodeInvalidInput)
	s.refused("upload", `{"body":{"file":{"base64":"YQ==","media_type":"text/plain\r\nX: y"}}}`, tool.CodeInvalidInput)
}

const everyKey = `auth: {key: HEADER, inQuery: QUERY, inCookie: COOKIE, token: BEARER, password: BASIC, oauth: BEARER, digest: BASIC}`

// The API answers 401 unless it gets exactly the expected credentials.
func TestCredentialsOfEveryKindArrive(t *testing.T) {
	s := open(t, `document: auth.yaml, server: %q, %s`, startAPI(t), everyKey)
	calls := map[string]string{
		"byHeader": `{"X-Api-Key":"of the caller"}`, "byQuery": `{"filter":{"api_key":"of the caller","x":"1"}}`,
		"byCookie": `{"theme":"dark; session=mine"}`, "byBearer": `{}`, "byBasic": `{}`, "byOAuth": `{}`, "byBoth": `{}`,
		"byNobody": `{}`, "byAnybody": `{}`,
	}
	for name, args := range calls {
		s.call(name, args)
	}
	for name, want := range map[string]string{
		"byDigest": "http digest are not supported", "byMissing": "auth: {unset: SECRET}", "byUnknown": "does not have",
	} {
		kit.Contains(t, s.why(name), want, name)
		s.refused(name, `{}`, tool.CodeUnavailable)
	}
	for fields, want := range map[string]string{
		`document: auth.yaml, auth: {kee: HEADER}`: `no security scheme "kee"`, `document: auth.yaml, auth: {key: NOSUCH}`: "no secret NOSUCH",
	} {
		kit.Fails(t, kit.Err(try(t, fields)), want, fields)
	}
}

func TestServersAreThoseOfTheDocument(t *testing.T) {
	api := startAPI(t)
	port := api[strings.LastIndexByte(api, ':')+1:]
	s := open(t, `document: servers.yaml, variables: {port: %q, base: v2}`, port)
	if a := s.call("where", `{}`); a.Target != "/v2/where" {
		t.Errorf("%+v", a)
	}
	if a := s.call("elsewhere", `{}`); a.Target != "/other/elsewhere" {
		t.Errorf("%+v", a)
	}
	for name, want := range map[string]string{
		"relative": "without a host", "file": "is not the address", "user": "has a user", "open": "without a default",
	} {
		kit.Contains(t, s.why(name), want, name)
	}
	kit.Contains(t, open(t, `document: servers.yaml, variables: {base: v3}`).why("where"),
		`cannot be "v3"`, "a variable outside its enum")
}

func TestOnlyOperationsBecomeTools(t *testing.T) {
	s := open(t, `document: webhooks.yaml, server: %q`, startAPI(t))
	kit.EqualSlices(t, s.names, []string{"get_subscriptions", "subscribe", "head_subscriptions"})
	if spec := s.specs["subscribe"]; spec.Title != "Subscribe" || spec.Description != "Subscribe\n\nTells you when something happens." {
		t.Errorf("%q %q", spec.Title, spec.Description)
	}
	a := s.call("subscribe", `{"tenant":"a b","trace":"t"}`)
	if a.Target != "/subscriptions?tenant=a%20b" || a.Headers["trace"] != "t" {
		t.Errorf("%+v", a)
	}
	if len(s.faults("subscribe", `{}`)) == 0 || len(s.faults("get_subscriptions", `{}`)) != 0 {
		t.Error("the operation's parameter does not go before that of the path")
	}
	if res, err := s.invoke(kit.Context(t), "head_subscriptions", `{}`, tool.Discard); err != nil || !res.OK || res.Output != nil {
		t.Errorf("HEAD: %+v %v", res, err)
	}
	read := tool.Effects{Reads: true, Idempotent: true}
	if got := s.specs["get_subscriptions"].Effects; got != read || !got.ReadOnly() {
		t.Errorf("%+v", got)
	}
}

func TestReferencesStayInTheDocument(t *testing.T) {
	s := open(t, `document: refs.yaml, server: %q`, startAPI(t))
	if a := s.call("a", `{"id":7}`); a.Target != "/a/7" {
		t.Errorf("%+v", a)
	}
	s.call("b", `{"body":{"one":{"two":{"id":1}},"zero":{"zero":{}}}}`)
	if len(s.faults("b", `{"body":{"one":{"two":{"id":0}}}}`)) == 0 || len(s.faults("g", `{"x":1}`)) == 0 {
		t.Error("a fault behind references was not found")
	}
	s.call("g", `{"x":true}`)
	for name, want := range map[string]string{
		"c": "is not an object", "d": "leads out of the document", "e": "lead to each other", "f": "leads nowhere",
		"get_h": "leads out of the document",
	} {
		kit.Contains(t, s.why(name), want, name)
	}
	kit.Check(t, kit.Err(schema.Compile(s.specs["b"].Output)))
}
