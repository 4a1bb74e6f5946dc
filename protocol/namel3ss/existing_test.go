package namel3ss

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A typical app: no tools.yaml, terms of older apps, names of several words, and one tool that cannot be run.
func TestAppsThatExist(t *testing.T) {
	tooltest.NoLeaks(t)
	root := write(t, map[string]string{
		"app.ai": `spec is "1.0"
tool "get data from a web address":
  description is "Gets data."
  implemented using Python
  input:
    web address is string
    "most tries" is optional int
  output:
    data is json
tool "call the server":
  implemented using http
tool "summarise":
  implemented using python
  input:
    text is text
  output:
    start is text
tool "bound":
  description is "Not this one."
  implemented using python
  input:
  output:
    said is text
tool "2 + 2":
  implemented using python
  input:
  output:
tool "js":
  implemented using Node
  input:
  output:
tool "clash":
  implemented using node
  input:
  output:
`,
		".namel3ss/tools.yaml":                 "tools:\n  bound: {kind: Python, entry: 'other:run', description: Bound.}\n  clash: {kind: python, entry: 'other:run'}\n  odd: {runner: cloud}\n",
		"tools/get_data_from_a_web_address.py": "def run(web_address, most_tries=3):\n    return {'data': [web_address, most_tries]}\n",
		"tools/summarise.py":                   "def helper(p):\n    return 0\nasync def summarise(payload):\n    return {'start': payload['text'][:3]}\n",
		"tools/tool_2_2.py":                    "from math import floor as run\n",
		"other.py":                             "def run(p):\n    return {'said': 'other'}\n",
	})
	for _, mode := range modes() {
		r := open(t, root, Options{Mode: mode})
		for _, c := range []struct{ tool, args, want string }{
			{"get data from a web address", `{"web address":"x"}`, `{"data":["x",3]}`},
			{"get data from a web address", `{"web address":"x","most tries":5}`, `{"data":["x",5]}`},
			{"summarise", `{"text":"abcdef"}`, `{"start":"abc"}`},
			{"bound", `{}`, `{"said":"other"}`},
		} {
			if res := must(t, r, c.tool, c.args); string(res.Output) != c.want {
				t.Errorf("%s: %s %s gave %s", mode, c.tool, c.args, res.Output)
			}
		}
		if res, err := call(r, "2 + 2", `{}`, tool.Discard); err != nil || res.OK || res.Failure.Reason != "TypeError" { // raised by floor: it was found
			t.Errorf("%+v, %v", res, err)
		}
		for name, want := range map[string]string{
			"call the server": `implemented using "http", which cannot be run here`, "odd": "runner is one of", "js": "tools/js.py",
			"clash": "implemented using node in app.ai, but bound as python",
		} {
			kit.Fails(t, r.Unavailable(name), want, name)
		}
	}
	specs, _ := open(t, root, Options{}).Tools(t.Context())
	seen := map[string]*tool.Spec{}
	for _, s := range specs {
		seen[s.Name] = s
	}
	const in = `{"type":"object","properties":{"web address":{"type":"string"},"most tries":{"type":"number"}},"required":["web address"],"additionalProperties":false}`
	if s := seen["get data from a web address"]; s.Description != "Gets data." || string(s.Input) != in || seen["bound"].Description != "Bound." || len(specs) != 8 {
		t.Errorf("%d: %+v", len(specs), s)
	}
}

// How a function takes its arguments depends on the function and its declaration, never on the arguments.
func TestFunctionsTakeTheirFieldsByNameOrThePayload(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = `
import functools

def one(payload): return payload
def other(data): return data
def field(values): return values
def whole(payload, context=None): return [payload, context]
def fields(values, percentile=95): return [values, percentile]
def both(values, percentile): return [values, percentile]
def keywords(*, values, percentile=95): return [values, percentile]
def anything(**kwargs): return kwargs
def first(values, **kwargs): return [values, kwargs]
def before(values, /, percentile=95): return [values, percentile]
def nothing(): return "nothing"
def several(*args): return args
def words(most_tries=1, **kwargs): return [most_tries, kwargs]
async def later(values, percentile=95): return [values, percentile]

class Tool:
    def __init__(self, factor): self.factor = factor
    def __call__(self, values, percentile=95): return [self.factor, values, percentile]
    def method(self, values, percentile=95): return [self.factor, values, percentile]
    @classmethod
    def made(cls, payload): return payload
instance, method, made = Tool(2), Tool(3).method, Tool.made
partial = functools.partial(fields, percentile=50)

def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs): return function(*args, **kwargs)
    return wrapper
wrapped = logged(fields)
`
	declared := config.JSON(`{"type":"object","properties":{"values":{},"percentile":{},"most tries":{}}}`)
	given := `{"values":[1],"percentile":50}`
	for _, mode := range modes() {
		root := write(t, map[string]string{"code.py": code})
		for _, c := range []struct {
			entry string
			input config.JSON // nil if nothing is declared
			args  string
			want  string // the reason if it fails
		}{
			{"one", nil, given, given}, {"one", declared, given, given}, {"one", declared, `{"payload":1}`, `{"payload":1}`},
			{"other", nil, `{"data":1}`, `{"data":1}`}, {"other", declared, given, given},
			{"field", nil, given, given}, {"field", declared, `{"values":[1]}`, `[1]`}, {"field", declared, given, "TypeError"},
			{"whole", nil, given, `[` + given + `,null]`}, {"whole", declared, given, `[` + given + `,null]`},
			{"fields", nil, `{"values":[1]}`, `[[1],95]`}, {"fields", declared, given, `[[1],50]`},
			{"fields", nil, `{"values":[1],"more":1}`, "TypeError"}, {"fields", nil, `{}`, "TypeError"},
			{"both", nil, given, `[[1],50]`}, {"both", declared, `{"values":[1]}`, "TypeError"},
			{"keywords", nil, given, `[[1],50]`}, {"keywords", declared, `{"values":[1]}`, `[[1],95]`}, {"keywords", declared, `{}`, "TypeError"},
			{"anything", nil, given, given}, {"anything", declared, given, given}, {"anything", nil, `{"a b":1}`, `{"a b":1}`},
			{"first", declared, given, `[[1],{"percentile":50}]`},
			{"before", declared, given, `[[1],50]`}, {"before", nil, `{"values":[1]}`, `[[1],95]`}, {"before", declared, `{"percentile":5}`, "TypeError"},
			{"nothing", nil, `{}`, `"nothing"`}, {"nothing", nil, `{"a":1}`, "TypeError"},
			{"several", nil, given, `[` + given + `]`},
			{"words", declared, `{"most tries":2}`, `[2,{}]`}, {"words", nil, `{"a b":2}`, `[{"a b":2},{}]`}, {"words", declared, `{"most_tries":2}`, `[2,{}]`},
			{"later", declared, given, `[[1],50]`},
			{"instance", declared, given, `[2,[1],50]`}, {"method", nil, given, `[3,[1],50]`}, {"made", nil, given, given},
			{"partial", declared, `{"values":[1]}`, `[[1],50]`}, {"wrapped", declared, given, `[[1],50]`},
		} {
			if mode == modeWarm && !slices.Contains([]string{"one", "fields", "keywords", "later", "before"}, c.entry) {
				continue // it is the same code, and each run starts an interpreter
			}
			r := open(t, root, Options{Mode: mode, Tool: "t", Entry: "code:" + c.entry, Input: c.input})
			res, err := call(r, "t", c.args, tool.Discard)
			switch {
			case err != nil:
				t.Errorf("%s: %s(%s): %v", mode, c.entry, c.args, err)
			case res.OK && string(res.Output) != c.want, !res.OK && res.Failure.Reason != c.want:
				t.Errorf("%s: %s(%s), declared %v: %s, %+v; want %s", mode, c.entry, c.args, c.input != nil, res.Output, res.Failure, c.want)
			}
		}
	}
}

// Return values that JSON cannot represent become JSON, or an error that names their type.
func TestValuesOfPythonBecomeJSONOrAClearError(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = `
import datetime, decimal, uuid
from decimal import Decimal
def run(p):
    return eval(p["do"], globals())
`
	both(t, code, func(t *testing.T, r *Runner) {
		for do, want := range map[string]string{
			`[Decimal("1.5"), Decimal("2"), Decimal("2.00"), Decimal("-0.1"), Decimal("1e3")]`: `[1.5,2,2,-0.1,1000]`,
			`datetime.date(2026, 1, 2)`: `"2026-01-02"`,
			`[datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), datetime.time(3, 4, 5)]`: `["2026-01-02T03:04:05+00:00","03:04:05"]`,
			`{"s": {3, 1, 2}, "f": frozenset("ba"), "m": {1, "a"}, "n": {Decimal(2), Decimal(1)}}`:           `{"s":[1,2,3],"f":["a","b"],"m":["a",1],"n":[1,2]}`,
			`uuid.UUID(int=0)`: `"00000000-0000-0000-0000-000000000000"`,
			`(1, [2], None)`:   `[1,[2],null]`,
			`[b"x"]`:           `TypeError: the result has a value of type bytes, which JSON has no word for; return text`,
			`Decimal("NaN")`:   `ValueError: `, `{datetime.date(2026, 1, 2): 1}`: `TypeError: keys must be str`,
			`datetime.timedelta(1)`: `TypeError: the result has a value of type timedelta`,
		} {
			args, _ := json.Marshal(map[string]string{"do": do})
			res, err := call(r, "t", string(args), tool.Discard)
			if err != nil {
				t.Errorf("%s: %v", do, err)
				continue
			}
			got := string(res.Output)
			if !res.OK {
				got = res.Failure.Reason + ": " + res.Failure.Message
			}
			if got != want && (res.OK || !strings.HasPrefix(got, want)) {
				t.Errorf("%s: got %s, want %s", do, got, want)
			}
		}
	})
}

func TestValuesOfJavaScriptBecomeJSON(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, appfile.KindNode, obedience(t), Options{})
	for do, want := range map[string]string{
		`({s: new Set([2, 1]), m: new Map([["a", 1]])})`: `{"s":[2,1],"m":{"a":1}}`,
		`[new Date(0)]`: `["1970-01-01T00:00:00.000Z"]`,
	} {
		if res := tell(t, r, do, tool.Guarantees{}, tool.Discard); !res.OK || string(res.Output) != want {
			t.Errorf("%s: %s, %+v", do, res.Output, res.Failure)
		}
	}
}
