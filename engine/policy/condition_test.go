package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"toolpost/tool"
)

func testInput() *input {
	return &input{
		call: &tool.Call{
			Tool: "writeFile", Session: "s1", Caller: tool.Principal{ID: "ci-7", Door: "http"},
			Args: []byte(`{"path":"a/b.txt","n":5,"big":123456789012345678901234567890,"half":0.50,"deep":{"x":[1,2,3],"y":null},"tags":["a","b"],"ok":true}`),
		},
		spec: &tool.Spec{Name: "writeFile", Source: "files", Tier: 1, Effects: tool.Effects{Writes: true}},
		touches: tool.Touches{
			Reads: []string{"/w/r"}, Writes: []string{"/w/a/b.txt"}, Commands: [][]string{{"git", "push"}},
		},
		now: time.Date(2026, 11, 15, 23, 30, 0, 0, time.UTC), // a Sunday
	}
}

func TestConditions(t *testing.T) {
	for text, want := range map[string]string{
		`true`: "true", `!true`: "false", `1 < 2`: "true", `2 <= 2 && 3 >= 3`: "true", `1 > 2 || 2 != 3`: "true",
		`caller == "ci-7"`: "true", `caller.startsWith('ci-')`: "true", `door in ["http", "nats"]`: "true", `session.endsWith("2")`: "false",
		`tool == "writeFile" && source == "files"`: "true", `tier >= 1`: "true", `effects.writes && !effects.exec`: "true",
		`args.n == 5`: "true", `args.n == 5.0`: "true", `args.n + 1 == 6`: "true", `args.n * 2 - 1 == 9`: "true", `-args.n < 0`: "true",
		`args.big == 123456789012345678901234567890`: "true", `args.big == 123456789012345678901234567891`: "false", `args.half == 0.5`: "true",
		`0.1 + 0.2 == 0.3`: "true", `has(args.n)`: "true", `has(args.nothing)`: "false", `has(args.deep.x)`: "true", `has(args["n"])`: "true",
		`args.deep.x[0] == 1`: "true", `args["deep"]["x"][2] == 3`: "true", `args.deep.y == null`: "true", `args.n == null`: "false", `args.deep.x == [1, 2, 3]`: "true",
		`size(args.path) == 7`: "true", `args.tags.size() == 2`: "true", `size("é") == 1`: "true", `size(args) == 7`: "true",
		`"a" in args.tags`: "true", `"n" in args`: "true", `args.tags.exists(t, t == "b")`: "true", `args.tags.all(t, size(t) == 1)`: "true",
		`args.exists(k, k == "ok")`: "true", `args.tags.exists(t, args.deep.x.exists(n, n == 2) && t == "a")`: "true", `[].exists(x, x)`: "false", `[].all(x, x)`: "true",
		`args.path.matches("^a/.*[.]txt$")`: "true", `args.path.matches(r'\d')`: "false", `args.path.contains("/b")`: "true", `"x" + "y" == 'xy'`: "true",
		`paths.exists(p, p.startsWith("/w/a/"))`: "true", `writes.all(p, p.startsWith("/w/"))`: "true", `size(reads) == 1`: "true", `commands.exists(c, c[0] == "git" && "push" in c)`: "true",
		`now > timestamp("2026-11-15T00:00:00Z")`: "true", `now.getDayOfWeek() == 0`: "true", `now.getHours() == 23`: "true", `now.getHours("Asia/Tokyo") == 8`: "true",
		`now.getDayOfWeek("Asia/Tokyo") == 1`: "true", `now.getMonth() == 10 && now.getDate() == 15 && now.getFullYear() == 2026 && now.getMinutes() == 30`: "true",
		`args.ok ? args.n == 5 : false`: "true", `(1 < 2) == true`: "true", "args.n\n== 5": "true", `"\u00e9" == "é" && '\'' == "'"`: "true",
		`false && args.nothing`: "false", `args.nothing == 1 && false`: "false", `true || args.nothing`: "true", `args.nothing == 1 || true`: "true",
		// What cannot be decided.
		`args.nothing == 1`: "no field", `args.nothing`: "no field", `args.n == "5"`: "cannot be compared", `args.n < "5"`: "cannot be compared", `args.n`: "true or false is wanted",
		`args.path[0] == 1`: "a list is wanted", `args.deep.x[3] == 1`: "no element", `args.deep.x[0.5] == 1`: "no element", `args.deep.x[-1] == 1`: "no element", `args.n.startsWith("5")`: "a text is wanted",
		`args.tags.exists(t, t > 1)`: "cannot be compared", `args.path + 1 == 2`: "a number is wanted", `args.n in args.path`: "a list or an object is wanted", `args.n in ["a"]`: "cannot be compared",
		`args.nothing == 1 && true`: "no field", `args.n && true`: "true or false is wanted", `size(args.n) == 1`: "is wanted",
		`args.now.getHours() == 1`: "no field", `args.n.getHours() == 1`: "a time is wanted",
	} {
		c, err := parseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		holds, err := c.holds(testInput())
		got := map[bool]string{true: "true", false: "false"}[holds]
		if err != nil {
			got = err.Error()
		}
		if got != want && (want == "true" || want == "false" || err == nil && want != "" || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestConditionsThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"": "a value is wanted", "1": "true or false is wanted", `"x"`: "true or false", "calller == 'x'": "there is no calller", "caller = 'x'": "means nothing", "caller.id == 'x'": "an object is wanted",
		"tier == 'x'": "cannot be compared", "tier + caller == 1": "cannot be", "caller && true": "true or false is wanted", "!caller": "true or false", "-caller == 1": "a number is wanted",
		"args.path.matches(args.p)": "in quotes", `args.path.matches("(")`: "not a regular expression", "args.x.unknown()": "no function unknown", "unknown(1)": "no function unknown", "size() == 1": "takes 1, not 0",
		"has(caller)": "has wants a field", "caller.startsWith(1)": "a text is wanted", "paths.exists(1, true)": "a name for the element", "paths.exists(p, 1)": "true or false", "paths.exists(p true)": ", is wanted",
		"(true": ") is wanted", "true)": "is not expected", "[1, 2": "is wanted", "'x": "does not end", `"\q" == ""`: "not an escape", `"\xff" == ""`: "is a byte", "1a == 1": "is not a number", "true ? 1": ": is wanted",
		"now.getHours('Mars/Olympus') == 1": "not a time zone", "now.getHours(caller) == 1": "in quotes", "timestamp('x') < now": "is not a time", "timestamp(caller) < now": "in quotes", "args. == 1": "name of a field",
		"true == 'x'": "cannot be compared", "now == 1": "cannot be compared", "tier in caller": "is wanted", "caller < true": "cannot be compared", "null < null": "is wanted", "π == 1": "means nothing",
		strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200): "deeper", strings.Repeat("!", 200) + "true": "deeper", strings.Repeat("[", 200): "deeper", "true " + strings.Repeat(" ", maxCondition): "longer",
	} {
		if _, err := parseCondition(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

func TestAConditionThatTakesTooLongIsAnError(t *testing.T) {
	in := testInput()
	in.call.Args = []byte(`{"l":[` + strings.Repeat("1,", 2000) + `1],"s":"` + strings.Repeat("a", 5<<20) + `","e":1e9999}`)
	for _, text := range []string{
		`args.l.all(a, args.l.all(b, a == b))`, `args.s.matches("^(a|b)*$")`, `args.l.all(x, args.l.exists(y, y == 2) || true) && true`,
		`args.e * args.e * args.e == 1`, `args.l.all(x, args.s.contains("b") || true)`, `args.l.all(x, args.s + args.s != "")`,
	} {
		c, err := parseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.holds(in); err == nil {
			t.Errorf("%s was decided", text)
		} else if !errors.Is(err, errCost) && !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzCondition(f *testing.F) {
	for _, text := range []string{
		`args.tags.exists(t, t == "b") && !effects.exec`, `now.getHours("UTC") >= 8 ? true : size(paths) == 0`, `args["x"][0] + 1 < 2 * 3 - 4`, `a in [1, 'x', r"\d", null]`,
		`has(args.x) || caller.matches("^ci-[0-9]+$")`,
	} {
		f.Add(text, []byte(`{"tags":["a",1],"x":[1.5e3]}`))
	}
	f.Fuzz(func(t *testing.T, text string, args []byte) {
		c, err := parseCondition(text)
		if err != nil {
			return
		}
		in := testInput()
		in.call.Args = args
		first, err := c.holds(in)
		again, errAgain := c.holds(in)
		if first != again || (err == nil) != (errAgain == nil) {
			t.Errorf("%s: %v %v, then %v %v", text, first, err, again, errAgain)
		}
	})
}
