package jsonc

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"toolpost/wire/strictjson"
)

func parse(t interface{ Fatalf(string, ...any) }, text string) *Doc {
	d, err := Parse([]byte(text), true)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return d
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
		got, err := parse(t, c.before).Set(json.RawMessage("1"), "s", "m")
		if err != nil || string(got.Text()) != c.after {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got.Text(), c.after)
		}
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
		got, err := parse(t, c.before).Remove("m")
		if err != nil || string(got.Text()) != c.after {
			t.Errorf("%s: %v\n%q\nwant\n%q", c.name, err, got.Text(), c.after)
		}
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
		"{\"a\": 1,,}":                    "line 1, column 10",
		"\n\n{\"s\": }":                   "line 3, column 7",
		"{\"a\": 1 // no newline at end}": "line 1",
	} {
		_, err := Parse([]byte(text), true)
		if bad, ok := errors.AsType[*SyntaxError](err); !ok || !strings.Contains(bad.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"{} // x", "{\"a\": 1,}", "/**/{}"} {
		if _, err := Parse([]byte(text), false); err == nil {
			t.Errorf("%q is not JSON", text)
		}
	}
	_, err := parse(t, `{"s": [1]}`).Set(entry, "s", "m")
	if err == nil || !strings.Contains(err.Error(), `line 1, column 7: expected "s" to be an object, got array`) {
		t.Error(err)
	}
}

// written draws a value as somebody might have written it, with remarks and commas where JSONC has them.
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

func value(t interface{ Fatalf(string, ...any) }, d *Doc) map[string]any {
	v, err := strictjson.Decode(d.Plain())
	if err != nil {
		t.Fatalf("%v in\n%s", err, d.Text())
	}
	return v.(map[string]any)
}

func TestAChangeTouchesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := writtenObject(3).Draw(t, "document")
		d := parse(t, text)
		want := value(t, d)
		if inner, ok := want["s"].(map[string]any); want["s"] != nil && !ok {
			if _, err := d.Set(entry, "s", "m"); err == nil {
				t.Fatalf("%q was set in what is no object", text)
			}
			return
		} else if want["s"] == nil && d.Get("s") != nil { // null
			return
		} else if ok {
			delete(inner, "m")
		} else {
			want["s"] = map[string]any{}
		}
		set, err := d.Set(entry, "s", "m")
		if err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		if got := string(set.Get("s", "m")); !strings.Contains(got, "as") {
			t.Fatalf("%q: %s", text, got)
		}
		gone, err := set.Remove("s", "m")
		if err != nil {
			t.Fatalf("%v when taken out of\n%s", err, set.Text())
		}
		if got := value(t, gone); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became\n%s\nand then\n%s", text, set.Text(), gone.Text())
		}
		for _, remark := range []string{"remark", "/* , } */"} {
			if strings.Count(text, remark) < strings.Count(string(gone.Text()), remark) {
				t.Fatalf("a remark was doubled: %q, %q", text, gone.Text())
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"{}", "{\"a\": 1, // x\n}", "{\"s\": {\"m\": [1,],},}", "/*", "\"", "{\"\\\"", "\ufeff{}", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text, true)
		if err != nil {
			return
		}
		if err := strictjson.CheckObject(d.Plain()); err != nil {
			t.Fatal(err)
		}
		before := value(t, d)
		if before["s"] != nil {
			return
		}
		set, err := d.Set(entry, "s2", "m")
		if err != nil {
			t.Skip()
		}
		gone, err := set.Remove("s2")
		if err != nil {
			t.Fatalf("%q: %v", set.Text(), err)
		}
		delete(before, "s2")
		if got := value(t, gone); !reflect.DeepEqual(got, before) {
			t.Fatalf("%q: %v", text, got)
		}
	})
}
