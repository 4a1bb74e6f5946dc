package strictjson_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

// Each of these is accepted by encoding/json, or may be read differently by two readers.
var refused = map[string]string{
	"duplicate key":        `{"a":1,"a":2}`,
	"duplicate key deep":   `{"x":[{"a":1,"b":2,"a":3}]}`,
	"duplicate by escape":  `{"a":1,"\u0061":2}`,
	"invalid UTF-8":        "{\"a\":\"\xff\"}",
	"overlong UTF-8":       "{\"a\":\"\xc0\xaf\"}",
	"surrogate as UTF-8":   "{\"a\":\"\xed\xa0\x80\"}",
	"lone high surrogate":  `{"a":"\ud800"}`,
	"lone low surrogate":   `{"a":"\udc00"}`,
	"swapped surrogates":   `{"a":"\udc00\ud800"}`,
	"two values":           `{} {}`,
	"nothing":              ``,
	"spaces":               " \n\t",
	"half an object":       `{"a":`,
	"half a string":        `{"a":"b`,
	"trailing comma":       `{"a":1,}`,
	"comment":              `{"a":1/*x*/}`,
	"NaN":                  `{"a":NaN}`,
	"leading zero":         `{"a":01}`,
	"plus":                 `{"a":+1}`,
	"single quotes":        `{'a':1}`,
	"control character":    "{\"a\":\"\x01\"}",
	"newline in string":    "{\"a\":\"x\ny\"}",
	"byte order mark":      "\ufeff{}",
	"too deep":             strings.Repeat("[", strictjson.MaxDepth+1) + strings.Repeat("]", strictjson.MaxDepth+1),
	"a million brackets":   strings.Repeat("[", 1_000_000),
	"number without end":   `{"a":` + strings.Repeat("1", strictjson.MaxDigits+1) + `}`,
	"fraction without end": `{"a":0.` + strings.Repeat("1", strictjson.MaxDigits) + `}`,
	"huge exponent":        `{"a":1E10000}`,
	"tiny exponent":        `[1e-10000]`,
	"closing bracket only": `}`,
	"mismatched":           `{"a":[}]`,
}

func TestRefused(t *testing.T) {
	for name, doc := range refused {
		t.Run(name, func(t *testing.T) {
			b := []byte(doc)
			kit.Fails(t, strictjson.Check(b), "", "Check accepted it")
			kit.Fails(t, kit.Err(strictjson.Decode(b)), "", "Decode accepted it")
			var v any
			kit.Fails(t, strictjson.Unmarshal(b, &v), "", "Unmarshal accepted it")
			kit.Fails(t, strictjson.Object(b, func(_, _ []byte) error { return nil }), "", "Object accepted it")
		})
	}
}

func TestNumbersKeepTheirDigits(t *testing.T) {
	const doc = `{"big":12345678901234567890.10,"exp":1E400,"neg":-0.0,"list":[1,2.50]}`
	got := kit.Must(strictjson.Decode([]byte(doc)))(t)
	want := map[string]any{
		"big": json.Number("12345678901234567890.10"), "exp": json.Number("1E400"), "neg": json.Number("-0.0"),
		"list": []any{json.Number("1"), json.Number("2.50")},
	}
	kit.Equal(t, cmp.Diff(want, got), "")
	kit.Equal(t, string(kit.Must(strictjson.Marshal(got))(t)), `{"big":12345678901234567890.10,"exp":1E400,"list":[1,2.50],"neg":-0.0}`)
}

func TestNamesMatchInExactCase(t *testing.T) {
	var v struct {
		Method string `json:"method"`
	}
	if err := strictjson.Unmarshal([]byte(`{"METHOD":"evil","Method":"evil"}`), &v); err != nil || v.Method != "" {
		t.Errorf("got %q, %v; another case must not match", v.Method, err)
	}
	kit.Fails(t, strictjson.UnmarshalClosed([]byte(`{"METHOD":"evil"}`), &v),
		"", "UnmarshalClosed accepted an unknown name")
}

func TestDepthLimitIsExact(t *testing.T) {
	ok := strings.Repeat("[", strictjson.MaxDepth) + strings.Repeat("]", strictjson.MaxDepth)
	kit.Check(t, strictjson.Check([]byte(ok)), "depth %d", strictjson.MaxDepth)
	digits := `{"a":"` + strings.Repeat("9", 5000) + `","b":[` + strings.Repeat("12345678,", 1000) + `1e-9999,false]}`
	kit.Check(t, strictjson.Check([]byte(digits)), "digits of several numbers or of a string add up")
	brackets := `"` + strings.Repeat(`[{\"`, 10_000) + `"`
	kit.Check(t, strictjson.Check([]byte(brackets)), "brackets inside a string count as depth")
}

func TestObjectMembersLiveAsLongAsTheDocument(t *testing.T) {
	doc := []byte(` { "type" : "log", "n":1.0 , "\u0066ields" : {"a":[1, 2]} } `)
	got := map[string]string{}
	var names, values [][]byte
	kit.OK(t, strictjson.Object(doc, func(name, value []byte) error {
		names, values = append(names, name), append(values, value)
		return nil
	}))
	for i := range names {
		got[string(names[i])] = string(values[i])
	}
	want := map[string]string{"type": `"log"`, "n": "1.0", "fields": `{"a":[1, 2]}`}
	kit.Equal(t, cmp.Diff(want, got), "")
}

func TestObjectStopsWhenToldTo(t *testing.T) {
	stop := errors.New("stop")
	if err := strictjson.Object([]byte(`{"a":1,"b":2}`), func(_, _ []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	kit.Fails(t, strictjson.Object([]byte(`[1]`), nil), "got array")
}

func TestMarshalIsDeterministic(t *testing.T) {
	kit.Equal(t, string(kit.Must(strictjson.Marshal(map[string]any{"b": 1, "a": []string{"<&>"}}))(t)),
		`{"a":["<&>"],"b":1}`)
}

// A document that one reader of this package accepts is accepted by all, with the same meaning.
func FuzzReadersAgree(f *testing.F) {
	for _, doc := range refused {
		f.Add([]byte(doc))
	}
	f.Add([]byte(`{"a":{"b":[1,2.5e3,"\u00e9\ud83d\ude00",true,null]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		checkErr := strictjson.Check(b)
		v, decodeErr := strictjson.Decode(b)
		kit.MustEqual(t, (checkErr == nil), (decodeErr == nil), "Check says %v, Decode says %v", checkErr, decodeErr)
		if _, isObject := v.(map[string]any); checkErr == nil {
			found := map[string]any{}
			err := strictjson.Object(b, func(name, value []byte) (err error) {
				found[string(name)], err = strictjson.Decode(value)
				return err
			})
			kit.MustEqual(t, isObject, err == nil, "Object says %v", err)
			if isObject && !reflect.DeepEqual(any(found), v) {
				t.Fatalf("Object finds %v, Decode %v", found, v)
			}
			if !json.Valid(b) {
				t.Fatal("the standard library does not call this JSON")
			}
		}
	})
}

func BenchmarkObject(b *testing.B) {
	line := []byte(`{"version":"0","type":"log","level":"info","message":"Starting step 17","fields":{"n":17}}`)
	var s strictjson.Scanner
	b.ReportAllocs()
	for b.Loop() {
		kit.OK(b, s.Object(line, func(_, _ []byte) error { return nil }))
	}
}

func BenchmarkStandardLibrary(b *testing.B) {
	line := []byte(`{"version":"0","type":"log","level":"info","message":"Starting step 17","fields":{"n":17}}`)
	b.ReportAllocs()
	for b.Loop() {
		var v struct {
			Version, Type, Level, Message string
			Fields                        json.RawMessage
		}
		kit.OK(b, json.Unmarshal(line, &v))
	}
}

func TestMembersAreThoseOfOneObjectAlone(t *testing.T) {
	m := strictjson.NewMembers("a", "b")
	kit.OK(t, m.Read([]byte(`{"c":0,"\u0061":1,"b":null}`)))
	if a, b := string(m.Get("a")), string(m.Get("b")); a != "1" || b != "null" {
		t.Errorf("got %s, %s", a, b)
	}
	if err := m.Read([]byte(`{"b":2}`)); err != nil || m.Get("a") != nil || string(m.Get("b")) != "2" {
		t.Errorf("of the next object: %v, %s, %s", err, m.Get("a"), m.Get("b"))
	}
	kit.Fails(t, m.Read([]byte(`{"a":2,"a":3}`)), "", "an object with a name twice was read")
}

func TestReadingMembersDoesNotAllocate(t *testing.T) {
	m, doc := strictjson.NewMembers("a", "b"), []byte(`{"a":{"b":[1,2]},"c":"d","b":true}`)
	allocations := testing.AllocsPerRun(100, func() {
		if m.Read(doc) != nil || m.Get("b") == nil {
			t.Fatal("not read")
		}
	})
	if allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}

func TestReplaceFindsNamesAtAnyDepthAndNothingElse(t *testing.T) {
	for doc, want := range map[string]string{
		`{}`:                             `{}`,
		`{"x":1}`:                        `{"x":0}`,
		`{"x" : {"x":[1,"}"]} ,"y":"x"}`: `{"x" : 0 ,"y":"x"}`,
		`{"a":[{"b":{"x":"\"x\":1"}},"x",["x"]],"\u0078":true}`: `{"a":[{"b":{"x":0}},"x",["x"]],"\u0078":0}`,
		" {\n\"y\": \"x\" } ": " {\n\"y\": \"x\" } ",
		`{"x":-1.5e3}`:        `{"x":0}`,
	} {
		kit.Equal(t, string(kit.Must(strictjson.Replace([]byte(doc), zeroX))(t)), want, doc)
	}
	for _, doc := range []string{``, `[]`, `"x"`, `{"x":1`, `{"x":1,"x":2}`, `{"x":1} 2`} {
		kit.Fails(t, kit.Err(strictjson.Replace([]byte(doc), zeroX)), "", doc)
	}
}

func zeroX(name []byte) []byte {
	if string(name) == "x" {
		return []byte("0")
	}
	return nil
}

func FuzzReplaceAgreesWithTheDecodedDocument(f *testing.F) {
	for _, seed := range []string{`{"x":1}`, `{"a":{"x":[{"x":2}]},"b":"x\":"}`, `{"\u0078":"\\"}`, `{"a":"x" }`, `[1]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := strictjson.Replace(doc, zeroX)
		v, bad := strictjson.Decode(doc)
		if _, object := v.(map[string]any); (err == nil) != (bad == nil && object) {
			t.Fatalf("%q: %v, but decoded %v", doc, err, bad)
		}
		if err != nil {
			return
		}
		want, _ := strictjson.Marshal(withoutX(v))
		again, err := strictjson.Decode(got)
		if text, _ := strictjson.Marshal(again); err != nil || string(text) != string(want) {
			t.Errorf("%q: %s, %v", doc, got, err)
		}
	})
}

func withoutX(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if v[name] = withoutX(v[name]); name == "x" {
				v[name] = 0
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutX(v[i])
		}
	}
	return v
}

func TestTypeErrorsUseJSONTerms(t *testing.T) {
	type part struct {
		Name  string    `json:"name"`
		List  []string  `json:"list"`
		Small int8      `json:"small"`
		Yes   bool      `json:"yes"`
		Time  time.Time `json:"time"`
		Parts []struct {
			A int `json:"a"`
		} `json:"parts"`
	}
	for text, want := range map[string]string{
		`{"name": 7}`:            "/name: expected a string, got a number",
		`{"list": "x"}`:          "/list: expected an array, got a string",
		`{"list": {"a": 1}}`:     "/list: expected an array, got an object",
		`{"yes": "true"}`:        "/yes: expected a boolean, got a string",
		`[1]`:                    "expected an object, got an array",
		`{"parts": [{"a": []}]}`: "/parts/0/a: expected a number, got an array",
		`{"nam": 7}`:             `unknown member "nam"`,
		`{"parts": [{"b": 1}]}`:  `/parts/0: unknown member "b"`,
		`{"small": 300}`:         "/small: 300: value out of range",
	} {
		var p part
		if err := strictjson.UnmarshalClosed([]byte(text), &p); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`{"time": "noon"}`, `{"time": 7}`, `{"small": 1.5}`} {
		var p part
		err := strictjson.UnmarshalClosed([]byte(text), &p)
		if err == nil || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "json:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A key may be as long as a document; it must not come back in an error.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	var into struct {
		A map[string]int `json:"a"`
	}
	_, twice := strictjson.Decode([]byte(`{"` + long + `": 1, "` + long + `": 2}`))
	for name, err := range map[string]error{
		"twice":     twice,
		"broken":    strictjson.Check([]byte(`{"` + long + `": tru}`)),
		"unknown":   strictjson.UnmarshalClosed([]byte(`{"`+long+`": 1}`), &into),
		"no number": strictjson.Unmarshal([]byte(`{"a": {"`+long+`": "x"}}`), &into),
	} {
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: %.60v", name, err)
		}
	}
}

func TestATreeIsBoundedInMemory(t *testing.T) {
	for doc, want := range map[string]string{
		"[" + strings.Repeat("1,", 400_000) + "1]":                                                "",
		"[" + strings.Repeat("1,", 600_000) + "1]":                                                "too many values",
		"[" + strings.Repeat(`{"a":1},`, 80_000) + "1]":                                           "too many values",
		"[" + strings.Repeat(`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8},`, 25_000) + "1]": "",
		`{"a":{` + strings.Repeat(`"b":1,`, strictjson.MaxMembers) + `"c":1}}`:                    "more than 500000 members",
		`{"a":1,"b":{"c":1,"c":2}}`:                                                               `duplicate object member name "c" within "/b"`,
	} {
		if _, err := strictjson.DecodeWithin([]byte(doc), strictjson.MaxTree); want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20s... of %d bytes: %v, want %q", doc, len(doc), err, want)
		}
	}
}

func TestMend(t *testing.T) {
	for doc, want := range map[string]string{
		`{"a":1,"b":{"c":2,"c":[3,{"d":1,"d":2}]},"a":{"a":1.50}}`: `{"a":{"a":1.50},"b":{"c":[3,{"d":2}]}}`,
		`{"a":{"b":1,"b":2},"a":3,"a":4}`:                          `{"a":4}`,
		`["\ud83d",{"\ud800":1}, "\ud83d\ude00", true, null]`:      "[\"\ufffd\",{\"\ufffd\":1},\"\U0001f600\",true,null]",
		"[\"\xff\", {}, [] ]":                                      "[\"\ufffd\",{},[]]",
		`{"a":1`:                                                   "", "{} {}": "", strings.Repeat("[", 300): "", "": "",
	} {
		if got, err := strictjson.Mend([]byte(doc)); (err != nil) != (want == "") || err == nil && string(got) != want {
			t.Errorf("%s: %s, %v", doc, got, err)
		}
	}
}

func FuzzMend(f *testing.F) {
	for _, doc := range refused {
		f.Add([]byte(doc))
	}
	f.Add([]byte(`{"a":{"a":1,"a":2},"b":"\ud800","a":[{}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		mended, err := strictjson.Mend(doc)
		v, bad := strictjson.Decode(doc)
		if err != nil && bad == nil {
			t.Fatalf("%q is strict, and yet: %v", doc, err)
		}
		if err != nil {
			return
		}
		again, err := strictjson.Decode(mended)
		if err != nil || bad == nil && !reflect.DeepEqual(v, again) {
			t.Fatalf("%q became %q: %v", doc, mended, err)
		}
	})
}
