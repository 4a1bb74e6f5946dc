package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func testInput() *input {
	return &input{
		call: &tool.Call{
			Tool: "writeFile", Session: "s1", Caller: tool.Principal{ID: "ci-7", Door: "http"},
			Args: []byte(`{"path":"a/b.txt","n":5,"big":123456789012345678901234567890,"half":0.50,"long":9007199254740993,"longer":18446744073709551615,"whole":5.0,"thousand":1e3,"deep":{"x":[1,2,3],"y":null},"tags":["a","b"],"ok":true}`),
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
		`args.big == 123456789012345678901234567890.0`: "true", `args.big > 9223372036854775807`: "true", `args.half == 0.5`: "true",
		`args.long == 9007199254740993 && args.long != 9007199254740992`: "true", `args.longer == 18446744073709551615u && args.longer > args.long`: "true",
		`args.whole + 1 == 6 && args.thousand == 1000`: "true", `double(args.n) / 2.0 == 2.5`: "true", `args.n % 2 == 1`: "true",
		`0.1 + 0.2 == 0.3`: "false", `has(args.n)`: "true", `has(args.nothing)`: "false", `has(args.deep.x)`: "true", `"n" in args && "x" in args.deep`: "true",
		`args.deep.x[0] == 1`: "true", `args["deep"]["x"][2] == 3`: "true", `args.deep.y == null`: "true", `args.n == null`: "false", `args.deep.x == [1, 2, 3]`: "true",
		`size(args.path) == 7`: "true", `args.tags.size() == 2`: "true", `size("é") == 1`: "true", `size(args) == 11`: "true",
		`"a" in args.tags`: "true", `"n" in args`: "true", `args.tags.exists(t, t == "b")`: "true", `args.tags.all(t, size(t) == 1)`: "true",
		`args.exists(k, k == "ok")`: "true", `args.tags.exists(t, args.deep.x.exists(n, n == 2) && t == "a")`: "true", `[].exists(x, x)`: "false", `[].all(x, x)`: "true",
		`args.path.matches("^a/.*[.]txt$")`: "true", `args.path.matches(r'\d')`: "false", `args.path.contains("/b")`: "true", `"x" + "y" == 'xy'`: "true",
		`paths.exists(p, p.startsWith("/w/a/"))`: "true", `writes.all(p, p.startsWith("/w/"))`: "true", `size(reads) == 1`: "true", `commands.exists(c, c[0] == "git" && "push" in c)`: "true",
		`now > timestamp("2026-11-15T00:00:00Z")`: "true", `now.getDayOfWeek() == 0`: "true", `now.getHours() == 23`: "true", `now.getHours("Asia/Tokyo") == 8`: "true",
		`now.getDayOfWeek("Asia/Tokyo") == 1`: "true", `now.getMonth() == 10 && now.getDate() == 15 && now.getFullYear() == 2026 && now.getMinutes() == 30`: "true",
		`args.ok ? args.n == 5 : false`: "true", `(1 < 2) == true`: "true", "args.n\n== 5": "true", `"\u00e9" == "é" && '\'' == "'"`: "true",
		`args.n == "5" || args.n in ["a"]`: "false", `args.path.matches(args.tags[0])`: "true", `"\xe9" == "é"`: "true", `tier < 1.5`: "true",
		`now - timestamp("2026-11-15T23:00:00Z") == duration("30m")`: "true", `now.getHours("+02:00") == 1`: "true", `args.map(k, k)[0] == "big"`: "true",
		`type(args.n) != int || args.n == 5`: "true", `type(args.path) != int || args.path == 5`: "true",
		`false && args.nothing`: "false", `args.nothing == 1 && false`: "false", `true || args.nothing`: "true", `args.nothing == 1 || true`: "true",
		// These cannot be decided.
		`args.nothing == 1`: "no field", `args.nothing`: "no field", `args.n < "5"`: "at 8: these values are of types that do not go together", `args.n`: "must be true or false",
		`args.path[0] == 1`: "no field", `args.deep.x[3] == 1`: "at 12: index out of bounds: 3", `args.deep.x[0.5] == 1`: "index value 0.5", `args.deep.x[-1] == 1`: "out of bounds", `args.n.startsWith("5")`: "go together",
		`args.tags.exists(t, t > 1)`: "at 23: these", `args.path + 1 == 2`: "go together", `args.n in args.path`: "go together", `args.half + 1 > 1`: "go together",
		`args.nothing == 1 && true`: "no field", `args.n && true`: "go together", `size(args.n) == 1`: "go together", `null < null`: "go together",
		`args.now.getHours() == 1`: "no field", `args.n.getHours() == 1`: "go together", "args.ok\n&& args.n < 'x'": "line 2, 11: these",
		`args.path.matches(args.path + "(")`: "error parsing regexp", `timestamp(caller) < now`: "invalid RFC 3339 timestamp", `now.getHours(caller) == 1`: "unknown time zone",
		`args.long + 9223372036854775807 > 1`: "integer overflow", `args.n / 0 == 1`: "division by zero",
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
		"": "it is empty", "\n ": "it is empty", "1": "it must be true or false, and is of type int", `"x"`: "true or false", "caller = 'x'": "at 8: = means nothing here; to compare, write ==", "caller.id == 'x'": "at 7: type 'string' does not support field selection",
		"calller == 'x'": "at 1: undeclared reference to 'calller' (did you mean 'caller'?)", "user == 'x'": "undeclared reference to 'user'; known are args, caller, commands, ",
		"tier == 'x'": "at 6: found no matching overload for '_==_' applied to '(int, string)'", "tier + caller == 1": "no matching overload", "caller && true": "expected type 'bool' but found 'string'", "!caller": "no matching overload", "-caller == 1": "no matching overload",
		`args.path.matches("(")`: "at 19: invalid matches argument", "args.x.unknown()": "undeclared reference to 'unknown'", "unknown(1)": "undeclared reference to 'unknown'", "size() == 1": "no matching overload for 'size' applied to '()'",
		"has(caller)": "has(args.path)", `has(args["n"])`: "has(args.path)", "caller.startsWith(1)": "no matching overload", "paths.exists(1, true)": "must be a simple name", "paths.exists(p, 1)": "expected type 'bool'", "paths.exists(p true)": `at 16: "true" is not expected here; expected ')'`,
		"(true": "missing ')'", "true)": `at 5: ")" is not expected here`, "1 + ": "it ends too early", "a b": `"b" is not expected here`, "[1, 2": "at 6: ", "'x": "at 1: \"'x\" means nothing here; text is written in quotes", `"\q" == ""`: "means nothing here", "1a == 1": "at 2: ", "true ? 1": "it ends too early; expected ':'",
		"now.getHours('Mars/Olympus') == 1": `at 14: "Mars/Olympus" is not a time zone`, "timestamp('x') < now": "at 11: invalid timestamp argument", "now - timestamp('2026-11-15T00:00:00Z') > duration('x')": "invalid duration argument", "args. == 1": "at 7: ",
		"true == 'x'": "no matching overload", "now == 1": "no matching overload", "tier in caller": "no matching overload", "caller < true": "no matching overload", "π == 1": `"π" means nothing here`, "true &&\ncaller": "at line 2, 1: expected type 'bool'",
		"args.big == 123456789012345678901234567890": "at 13: invalid int literal", "effects.writes == 1": "no matching overload",
		strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200): "recursion limit exceeded: 100", strings.Repeat("[", 200): "recursion limit", strings.Repeat("-(", 200) + "1" + strings.Repeat(")", 200) + " == 1": "recursion limit", "true " + strings.Repeat(" ", maxCondition): "longer",
	} {
		kit.Fails(t, kit.Err(parseCondition(text)), want, text, want)
	}
}

func TestAConditionThatTakesTooLongIsAnError(t *testing.T) {
	in := testInput()
	in.call.Args = []byte(`{"l":[` + strings.Repeat("1,", 2000) + `1],"s":"` + strings.Repeat("a", 5<<20) + `"}`)
	for _, text := range []string{
		`args.l.all(a, args.l.all(b, a == b))`, `args.s.matches("^(a|b)*$")`, `args.l.all(x, args.l.exists(y, y == 2) || true) && true`,
		`args.l.all(x, args.s.contains("b") || true)`, `args.l.all(x, args.s + args.s != "")`, `args.l.all(x, size(args.s) > 1)`,
		`args.l.all(x, args.l == args.l)`, `args.l.all(x, !(2 in args.l))`, `args.l.all(x, {"l": args.l} == {"l": args.l})`, `args.l.all(x, bytes(args.s) != b"")`,
	} {
		c := kit.Must(parseCondition(text))(t)
		if _, err := c.holds(in); !errors.Is(err, errCost) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`size(args.s) > 1000 && !args.s.contains("password")`, `args.l.all(x, x == 1) && !(2 in args.l)`} {
		c := kit.Must(parseCondition(text))(t)
		if holds, err := c.holds(in); !holds || err != nil {
			t.Errorf("%s: %v, %v", text, holds, err)
		}
	}
}

func TestArgumentsThatNoConditionCanRead(t *testing.T) {
	for args, want := range map[string]string{`{"n":1,"e":-1e9999}`: `the number "-1e9999" is too large to count with`, `[1]`: "not an object", `{`: "ends too early"} {
		in := testInput()
		in.call.Args = []byte(args)
		for text, undecided := range map[string]bool{"args.n == 1": true, "size(args) == 1 && true": true, "has(args.n)": true, "tier == 1 || has(args.n)": false} {
			c := kit.Must(parseCondition(text))(t)
			switch holds, err := c.holds(in); {
			case undecided && (err == nil || !strings.Contains(err.Error(), want)), !undecided && (err != nil || !holds):
				t.Errorf("%s on %s: %v, %v", text, args, holds, err)
			}
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
