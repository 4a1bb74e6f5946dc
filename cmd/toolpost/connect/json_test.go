package connect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tailscale/hujson"
	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

var remarks = jsonFormat{comments: true}

type failing interface{ Fatalf(string, ...any) }

func parse(t failing, text string) hujson.Value {
	root, _, err := remarks.parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return root
}

func without(t failing, text []byte, key, name string, emptied bool) []byte {
	out, err := remarks.remove(text, key, name, emptied)
	if err != nil {
		t.Fatalf("%v when taken out of\n%s", err, text)
	}
	return out
}

var entry = json.RawMessage(`{"command":"/bin/x","args":["as","mcp"]}`)

func TestAMemberIsAddedInTheLayoutOfTheRest(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"nothing", "", "{\n  \"s\": {\n    \"m\": 1\n  }\n}\n"},
		{"empty", "{}\n", "{\n  \"s\": {\n    \"m\": 1\n  }\n}\n"},
		{"others", "{\n  \"a\": 1\n}\n", "{\n  \"a\": 1,\n  \"s\": {\n    \"m\": 1\n  }\n}\n"},
		{"tabs", "{\n\t\"a\": 1\n}", "{\n\t\"a\": 1,\n\t\"s\": {\n\t\t\"m\": 1\n\t}\n}"},
		{"four", "{\n    \"s\": {\n        \"a\": {}\n    }\n}", "{\n    \"s\": {\n        \"a\": {},\n        \"m\": 1\n    }\n}"},
		{"empty inner", "{\n  \"s\": {}\n}", "{\n  \"s\": {\n    \"m\": 1\n  }\n}"},
		{"one line", `{"s": {"a": 1}, "z": 2}`, `{"s": {"a": 1, "m": 1}, "z": 2}`},
		{"windows", "{\r\n  \"a\": 1\r\n}\r\n", "{\r\n  \"a\": 1,\r\n  \"s\": {\r\n    \"m\": 1\r\n  }\r\n}\r\n"},
		{
			"remarks", "{\n  // top\n  \"s\": {\n    \"a\": 1 // one\n    /* end */\n  }, // s\n}\n",
			"{\n  // top\n  \"s\": {\n    \"a\": 1, // one\n    /* end */\n    \"m\": 1\n  }, // s\n}\n",
		},
		{
			"trailing comma", "{\n  \"s\": {\n    \"a\": 1, // one\n  },\n}\n",
			"{\n  \"s\": {\n    \"a\": 1, // one\n    \"m\": 1,\n  },\n}\n",
		},
		{"only a remark", "{\n  // nothing yet\n}\n", "{\n  // nothing yet\n  \"s\": {\n    \"m\": 1\n  }\n}\n"},
		{"byte order mark", "\ufeff{}", "\ufeff{\n  \"s\": {\n    \"m\": 1\n  }\n}"},
		{"no remark", "{\n  \"a\": \"http://x/*\"\n}", "{\n  \"a\": \"http://x/*\",\n  \"s\": {\n    \"m\": 1\n  }\n}"},
		{"replaced", "{\"s\": {\"m\": [2, // two\n 3]}}", `{"s": {"m": 1}}`},
	} {
		kit.Equal(t, string(put(parse(t, c.before), "s", "m", json.RawMessage("1"))), c.after, c.name)
	}
}

func TestAMemberIsTakenOutWithItsCommaAlone(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"alone", "{\n  \"m\": {\n    \"x\": 1\n  }\n}\n", "{}\n"},
		{"last", "{\n  \"a\": 1,\n  \"m\": 2\n}", "{\n  \"a\": 1\n}"},
		{"first", "{\n  \"m\": 2,\n  \"a\": 1\n}", "{\n  \"a\": 1\n}"},
		{"middle", "{\n  \"a\": 1,\n  \"m\": 2,\n  \"b\": 3\n}", "{\n  \"a\": 1,\n  \"b\": 3\n}"},
		{"one line", `{"a": 1, "m": 2, "b": 3}`, `{"a": 1, "b": 3}`},
		{"one line, last", `{"a": 1, "m": 2}`, `{"a": 1}`},
		{"trailing comma", "{\n  \"a\": 1,\n  \"m\": 2,\n}", "{\n  \"a\": 1,\n}"},
		{"remarks", "{\n  \"a\": 1, // one\n  \"m\": 2 // two\n}", "{\n  \"a\": 1 // one\n  // two\n}"},
		{"behind a remark", "{ // first\n  \"m\": 2, \"a\": 1}", "{ // first\n  \"a\": 1}"},
		{"behind a remark, last", "{\"a\": 1, // first\n\"m\": 2}", "{\"a\": 1 // first\n}"},
		{"a far comma", "{\n  \"m\": 2 /* x */ ,\n  \"a\": 1\n}", "{\n  /* x */ \n  \"a\": 1\n}"},
		{"not there", "{\n  \"a\": 1\n}", "{\n  \"a\": 1\n}"},
	} {
		// It is one level down, like the entries of clients.
		before, after := `{"s": `+strings.TrimSpace(c.before)+"}", `{"s": `+strings.TrimSpace(c.after)+"}"
		kit.Equal(t, string(without(t, []byte(before), "s", "m", false)), after, c.name)
	}
}

func TestABrokenDocumentIsRefusedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"a\": 1\n  \"b\": 2\n}":    "line 3, column 3",
		"{\n  \"a\": 1,\n  \"a\": 2\n}":   "line 3, column 3",
		"{\n  /* no end\n  \"a\": 1\n}":   "line 2, column 3",
		"[1]":                             "line 1, column 1: expected a JSON object, got array",
		"{\"a\": 1} {}":                   "line 1",
		"{\"a\": \"x\ny\"}":               "line 1",
		"{\"a\": '1'}":                    "line 1, column 7",
		"{\"a\": \"\xff\"}":               "line 1",
		strings.Repeat(`{"a":`, 300):      "",
		"{\"a\": 1,,}":                    "line 1, column 9",
		"\n\n{\"s\": }":                   "line 3, column 7",
		"{\"a\": 1 // no newline at end}": "line 1",
	} {
		_, _, err := remarks.parse([]byte(text))
		kit.Fails(t, err, want, text)
	}
	for _, text := range []string{"{} // x", "{\"a\": 1,}", "/**/{}"} {
		if _, _, err := (jsonFormat{}).parse([]byte(text)); err == nil {
			t.Errorf("%q is not JSON", text)
		}
	}
	if _, _, err := remarks.parse(bytes.Repeat([]byte("["), 32<<20)); err == nil || !strings.Contains(err.Error(), "levels") {
		t.Error(err)
	}
}

// written draws a value as a person might have written it, with comments and commas as JSONC allows.
func written(depth int) *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", " ", "\n", "\n  ", " // a \"remark\", {\n", "/* , } */", "\t"})
	return rapid.Custom(func(t *rapid.T) string {
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		if depth == 0 && kind > 2 {
			kind = 0
		}
		s := func() string { return space.Draw(t, "space") }
		switch kind {
		case 0:
			return "12"
		case 1:
			return `"a // \" , }"`
		case 2:
			return "null"
		case 3:
			var items []string
			for range rapid.IntRange(0, 3).Draw(t, "items") {
				items = append(items, s()+written(depth-1).Draw(t, "item")+s())
			}
			return "[" + strings.Join(items, ",") + commaMaybe(t, len(items)) + s() + "]"
		}
		return writtenObject(depth).Draw(t, "object")
	})
}

func commaMaybe(t *rapid.T, items int) string {
	if items > 0 && rapid.Bool().Draw(t, "trailing") {
		return ","
	}
	return ""
}

func writtenObject(depth int) *rapid.Generator[string] {
	space := rapid.SampledFrom([]string{"", " ", "\n", "\n  ", " // a \"remark\", {\n", "/* , } */", "\r\n"})
	return rapid.Custom(func(t *rapid.T) string {
		s := func() string { return space.Draw(t, "space") }
		var members []string
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "s", "m", `\u0062`}), 0, 4, rapid.ID).Draw(t, "names") {
			members = append(members, fmt.Sprintf(`%s"%s"%s:%s%s%s`, s(), name, s(), s(), written(depth-1).Draw(t, "value"), s()))
		}
		return "{" + strings.Join(members, ",") + commaMaybe(t, len(members)) + s() + "}"
	})
}

func value(t failing, text []byte) map[string]any {
	v, err := remarks.decode(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

func TestAChangeTouchesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := writtenObject(3).Draw(t, "document")
		want := value(t, []byte(text))
		switch inner := want["s"].(type) {
		case map[string]any:
			delete(inner, "m")
		default: // an error of checkKey
			return
		case nil:
			if _, null := want["s"]; null {
				return
			}
			want["s"] = map[string]any{}
		}
		set := put(parse(t, text), "s", "m", entry)
		if got := entryOf(value(t, set), "s", "m"); !Ours(got) {
			t.Fatalf("%q: %s", text, got)
		}
		gone := without(t, set, "s", "m", false)
		if got := value(t, gone); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became\n%s\nand then\n%s", text, set, gone)
		}
		for _, remark := range []string{"remark", "/* , } */"} {
			if strings.Count(text, remark) < strings.Count(string(gone), remark) {
				t.Fatalf("a remark was doubled: %q, %q", text, gone)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"{}", "{\"a\": 1, // x\n}", "{\"s\": {\"m\": [1,],},}", "/*", "\"", "{\"\\\"", "\ufeff{}", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root, plain, err := remarks.parse(text)
		if err != nil {
			return
		}
		kit.OK(t, strictjson.CheckObject(plain))
		before := value(t, text)
		if _, there := before["s2"]; there {
			return
		}
		gone := without(t, put(root, "s2", "m", entry), "s2", "m", true)
		if got := value(t, gone); !reflect.DeepEqual(got, before) {
			t.Fatalf("%q: %v", text, got)
		}
	})
}
