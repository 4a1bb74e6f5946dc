package command

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// source reads a source from a config in dir.
func source(dir, fields string) (*Runner, error) {
	text := "sources:\n- name: prog\n  protocol: command\n" + indent(fields)
	cfg, err := config.Parse(filepath.Join(dir, config.FileName), []byte(text))
	if err != nil {
		return nil, err
	}
	r, err := Open(context.Background(), cfg.Sources[0], slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return r.(*Runner), nil
}

func indent(fields string) (text string) {
	for line := range strings.Lines(strings.Trim(fields, "\n")) {
		text += "  " + line
	}
	return text + "\n"
}

func open(t testing.TB, dir, fields string) *Runner {
	t.Helper()
	return kit.Must(source(dir, fields))(t)
}

// An outcome is the complete outcome of a call.
type outcome struct {
	result *tool.Result
	err    error
	events []tool.Event
}

func invoke(t testing.TB, r *Runner, args string) outcome {
	t.Helper()
	ctx := kit.Context(t)
	var sink tooltest.Collect
	result, err := r.Invoke(ctx, &tool.Call{ID: "call-1", Tool: r.forms[0].Name, Args: json.RawMessage(args)}, &sink)
	return outcome{result, err, sink.Events()}
}

// run calls the one tool of a source in an empty folder.
func run(t testing.TB, fields, args string) outcome {
	t.Helper()
	return invoke(t, open(t, t.TempDir(), fields), args)
}

func (o outcome) of(kind tool.Kind) (data []string) {
	for _, e := range o.events {
		if e.Kind == kind {
			data = append(data, string(e.Data))
		}
	}
	return data
}

func wantOutput(t *testing.T, got outcome, want string) {
	t.Helper()
	if got.err != nil || !got.result.OK || string(got.result.Output) != want {
		t.Errorf("got %+v, %v; want the output %s", got.result, got.err, want)
	}
}

// wantError expects an error of that code whose message contains all of these words.
func wantError(t *testing.T, err error, code tool.Code, words ...string) {
	t.Helper()
	if tool.CodeOf(err) != code {
		t.Errorf("got %v; want code %s", err, code)
		return
	}
	for _, w := range words {
		kit.Contains(t, err.Error(), w)
	}
}

// The standard tools are programs that know nothing of toolpost.
func TestRunnerConforms(t *testing.T) {
	const fields = `
tools:
- {tool: echo, command: [cat], stdin: "{*}", output: json, input: {type: object}}
- {tool: fail, command: [sh, -c, 'printf %s "$1" >&2; exit 1', sh, "{message}"]}
- {tool: hang, command: [sh, -c, 'echo hanging >&2; exec sleep 600']}
- {tool: flood, command: [sh, -c, 'exec yes "$(printf %01024d 0)" >&2']}
- {tool: crash, command: [sh, -c, 'kill -ABRT $$']}
- tool: events
  command: [sh, -c, 'i=1; while [ $i -le "$1" ]; do echo "event $i"; i=$((i + 1)); done >&2', sh, "{count}"]
  arguments: {count: integer}
- tool: spawn
  command: [sh, -c, 'for i in $(seq "$1"); do if [ "$3" = true ]; then setsid sleep "$2" & else sleep "$2" & fi; done;
    echo "{{\"started\":$1}}"; if [ "$4" = true ]; then wait; fi', sh, "{children}", "{sleep}", "{setsid}", "{hang}"]
  arguments: {children: integer, sleep: string, setsid: {type: boolean, default: false}, hang: {type: boolean, default: false}}
  output: json
`
	tooltest.Run(t, tooltest.Subject{New: func(t testing.TB) tool.Handler { return open(t, t.TempDir(), fields) }})
}

func TestAConfiguredToolIsPublishedAsItIsDeclared(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, `
tool: log
title: Commits
description: Lists commits.
command: [git, log, -n, "{count}", ["--author={author}"], --, "{files}"]
arguments:
  count: {type: integer, default: 10, description: how many}
  author: string
  files: {type: array, items: path}
output: lines
effects: {reads: true}
tier: 1
timeout: 3s
`)
	specs, err := r.Tools(t.Context())
	want := []*tool.Spec{{
		Name: "log", Title: "Commits", Description: "Lists commits.",
		Input: []byte(`{"type":"object","properties":{"count":{"type":"integer","default":10,"description":"how many"},"author":{"type":"string"},` +
			`"files":{"type":"array","items":{"type":"string","minLength":1,"format":"path"}}},"required":["files"],"additionalProperties":false}`),
		Output:  []byte(`{"type":"array","items":{"type":"string"}}`),
		Effects: tool.Effects{Reads: true}, Tier: 1, TierFrom: tool.TierConfig, Timeout: 3 * time.Second,
		Walls: "reads " + dir + "; changes nothing; network none; 512 MiB; 128 processes",
		Held:  tool.Guarantees{NoNetwork: true, NoEnvWrite: true, Sandbox: true},
		Room:  &tool.Room{Base: dir, Reads: []string{dir}, Memory: 512 << 20, Tasks: 128},
	}}
	if d := cmp.Diff(want, specs); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	touches, err := r.Touches(&tool.Call{Tool: "log", Args: json.RawMessage(`{"files":["a.txt","sub/b"],"author":"Ada"}`)})
	if d := cmp.Diff(tool.Touches{
		Reads:    []string{filepath.Join(dir, "a.txt"), filepath.Join(dir, "sub/b")},
		Commands: [][]string{{"git", "log", "-n", "10", "--author=Ada", "--", "./a.txt", "./sub/b"}},
	}, touches); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestOutputIsReadAsTheSourceSays(t *testing.T) {
	const say = `command: [printf, "%b", "{text}"]` + "\n"
	for _, c := range []struct{ output, text, want string }{
		{"text", `a\nb\n`, `"a\nb\n"`},
		{"text", ``, `""`},
		{"text", `a\0377b é`, `"a` + "\uFFFD" + `b é"`},
		{"lines", `a\r\n\nb`, `["a","","b"]`},
		{"lines", ``, `[]`},
		{"json", `{"n":1.50}\n`, "{\"n\":1.50}\n"},
		{"jsonl", `{"n":1.50}\n\n[2]\n`, `[{"n":1.50},[2]]`},
	} {
		t.Run(c.output+" "+c.text, func(t *testing.T) {
			got := run(t, say+"output: "+c.output, fmt.Sprintf(`{"text":%q}`, c.text))
			wantOutput(t, got, c.want)
		})
	}
	got := run(t, say+"output: lines", `{"text":"one\\ntwo\\n"}`)
	kit.Equal(t, cmp.Diff([]string{`{"stream":"stdout","text":"one\n"}`, `{"stream":"stdout","text":"two\n"}`}, got.of(tool.KindOutput)), "")
	for output, words := range map[string][]string{
		"json":                    {"prog", "as json"},
		"jsonl":                   {"as jsonl", "line 2", `not JSON`},
		"text\nmax_output: 12":    {"longer than 12 bytes", "max_output"},
		"lines\nmax_output: 12":   {"longer than 12 bytes", "max_output"},
		"json\nmax_output: 12":    {"longer than 12 bytes", "max_output"},
		"jsonl\nmax_output: 1000": {"line 2"},
	} {
		got := run(t, say+"output: "+output, `{"text":"{}\\nnot JSON at all\\n"}`)
		wantError(t, got.err, tool.CodeProtocol, words...)
	}
}

// A program that never stops writing is stopped, whatever the format of its output.
func TestAFloodOnStdoutIsEnded(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, output := range []string{"text", "lines", "json"} {
		got := run(t, "command: [yes]\nmax_output: 100000\noutput: "+output, `{}`)
		wantError(t, got.err, tool.CodeProtocol, "longer than 100000 bytes", "max_output")
	}
}

func TestExitCodesAreMapped(t *testing.T) {
	const fields = `
command: [sh, -c, 'echo out; echo "$2" >&2; exit "$1"', sh, "{code}", "{says}"]
exits:
- {code: 1, ok: true, message: nothing matched}
- {code: 2, reason: BadPattern, message: the pattern is wrong}
- {code: 3, reason: Mute}
`
	for _, c := range []struct {
		args, reason, message string
		ok                    bool
	}{
		{`{"code":"0","says":"fine"}`, "", "", true},
		{`{"code":"1","says":""}`, "", "nothing matched", true},
		{`{"code":"2","says":"two\nlines"}`, "BadPattern", "the pattern is wrong: two\nlines", false},
		{`{"code":"2","says":""}`, "BadPattern", "the pattern is wrong", false},
		{`{"code":"3","says":""}`, "Mute", "prog failed with exit status 3 and did not say why", false},
		{`{"code":"7","says":"oops"}`, "", "oops", false},
	} {
		got := run(t, fields, c.args)
		if got.err != nil || got.result.OK != c.ok || string(got.result.Output) != `"out\n"` {
			t.Errorf("%s: %+v, %v", c.args, got.result, got.err)
			continue
		}
		reason, message := "", got.result.Summary
		if f := got.result.Failure; f != nil {
			reason, message = f.Reason, f.Message
		}
		if reason != c.reason || message != c.message {
			t.Errorf("%s: %q, %q", c.args, reason, message)
		}
	}
	got := run(t, "command: [sh, -c, 'echo last words >&2; kill -SEGV $$']", `{}`)
	wantError(t, got.err, tool.CodeCrash, "SIGSEGV", "last words")
	got = run(t, "command: [no-such-program-at-all]", `{}`)
	wantError(t, got.err, tool.CodeUnavailable, "no-such-program-at-all")
}

func TestFailureMessageOmitsProgressLines(t *testing.T) {
	const progress = "\nprogress: '(?P<done>\\d+)/(?P<total>\\d+)'"
	for words, want := range map[string]string{
		`printf "1/2\r2/2\nno paper\n  in tray 1\n"`: "no paper\n  in tray 1",
		`echo 1/2`: "prog failed with exit status 1 and did not say why",
	} {
		got := run(t, "command: [sh, -c, '"+words+" >&2; exit 1']"+progress, `{}`)
		if got.err != nil || got.result.Failure == nil || got.result.Failure.Message != want {
			t.Errorf("%s: %+v, %v", words, got.result, got.err)
		}
	}
}

func TestStandardErrorIsLogAndStandardInputIsAnArgument(t *testing.T) {
	got := run(t, "command: [sh, -c, 'echo hello >&2; cat']\nstdin: 'Dear {name},\n\n{body}'", `{"name":"Ada","body":"-n; rm \u0000"}`)
	wantOutput(t, got, `"Dear Ada,\n-n; rm \u0000"`)
	kit.Equal(t, cmp.Diff([]string{`{"level":"info","message":"hello","fields":{"stream":"stderr"}}`}, got.of(tool.KindLog)), "")
	wantOutput(t, run(t, "command: [cat]\nstdin: '{*}'\ninput: {type: object}", `{"b":1.50,"a":[null]}`), `"{\"b\":1.50,\"a\":[null]}"`)
	wantOutput(t, run(t, "command: [cat]\nstdin: ['{body}']", `{}`), `""`)
	wantOutput(t, run(t, "command: [cat]\nstdin: ['{body}']", `{"body":"x"}`), `"x"`)
	wantOutput(t, run(t, "command: [cat]\nstdin: '{list}'\narguments: {list: array}", `{"list":[1,"x"]}`), `"[1,\"x\"]"`)
	wantOutput(t, run(t, "command: [cat]", `{}`), `""`)
}

func TestProgressIsReadFromLines(t *testing.T) {
	for name, c := range map[string]struct {
		fields, args string
		want         []string
		logs         int
	}{
		"percent, drawn again and again": {
			`command: [sh, -c, 'printf "\rGet 10%%\rGet 55.5%%\r\nnot it\n" >&2']` + "\n" + `progress: '(?P<message>\w+) (?P<percent>[\d.]+)%'`,
			`{}`, []string{`{"progress":10,"total":100,"message":"Get"}`, `{"progress":55.5,"total":100,"message":"Get"}`}, 1,
		},
		"done and total, on stdout": {
			`command: [printf, '1,000/2,000\r3/4\nx']` + "\n" + `progress: {match: '(?P<done>[\d,]+)/(?P<total>[\d,]+)'}`,
			`{}`, []string{`{"progress":1000,"total":2000}`, `{"progress":3,"total":4}`}, 0,
		},
		"lines": {
			`command: [printf, 'a\n\nb\nc']` + "\nprogress: lines", `{}`,
			[]string{`{"progress":1,"message":"a"}`, `{"progress":2,"message":"b"}`}, 0,
		},
		"lines, of a list": {
			"command: [printf, '%s\\n', '{files}']\narguments: {files: array}\nprogress: {lines: true, total: files}", `{"files":["a","b"]}`,
			[]string{`{"progress":1,"total":2,"message":"a"}`, `{"progress":2,"total":2,"message":"b"}`}, 0,
		},
		"what is no number is no progress": {
			`command: [sh, -c, 'echo nan% >&2']` + "\n" + `progress: '(?P<percent>\w+)%'`, `{}`, nil, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, c.fields, c.args)
			if got.err != nil || !got.result.OK {
				t.Fatalf("%+v, %v", got.result, got.err)
			}
			kit.Equal(t, cmp.Diff(c.want, got.of(tool.KindProgress)), "")
			if logs := got.of(tool.KindLog); len(logs) != c.logs {
				t.Errorf("logged: %s", logs)
			}
		})
	}
}

func TestFilesThatItMakesAreAssets(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"old.txt": "old", "kept.txt": "kept", "toolpost.yaml": "x", "state/key": "a key"} {
		path := filepath.Join(dir, name)
		kit.Write(t, path, text)
	}
	r := open(t, dir, `
command: [sh, -c, 'echo new >new.txt; echo changed >old.txt; echo "<svg/>" >"$1"; echo no >"$1.no"; mkdir dir.txt; ln -s /etc/passwd away.txt', sh, "{name}"]
arguments: {name: path}
assets: ["*.txt", "{name}", "none/*"]
walls: {write: [.]}
`)
	got := invoke(t, r, `{"name":"a[1].svg"}`)
	if got.err != nil || !got.result.OK {
		t.Fatalf("%+v, %v", got.result, got.err)
	}
	want := []string{
		fmt.Sprintf(`{"assetId":"a[1].svg","kind":"image","mediaType":"image/svg+xml","path":%q}`, filepath.Join(dir, "a[1].svg")),
		fmt.Sprintf(`{"assetId":"new.txt","kind":"text","mediaType":"text/plain","path":%q}`, filepath.Join(dir, "new.txt")),
		fmt.Sprintf(`{"assetId":"old.txt","kind":"text","mediaType":"text/plain","path":%q}`, filepath.Join(dir, "old.txt")),
	}
	kit.Equal(t, cmp.Diff(want, slicesWithout(got.of(tool.KindAsset), "away.txt")), "")
	wantError(t, invoke(t, r, `{"name":"../x.svg"}`).err, tool.CodeAccessDenied, "name", "outside the working folder")
}

func slicesWithout(all []string, word string) (rest []string) {
	for _, one := range all {
		if !strings.Contains(one, word) {
			rest = append(rest, one)
		}
	}
	return rest
}

// A link that a program leaves is followed with the program's rights, not with ours.
func TestLinkedAssetCannotLeaveTheFolder(t *testing.T) {
	top := t.TempDir()
	secret := filepath.Join(top, "secret.txt")
	kit.OK(t, os.WriteFile(secret, []byte("the secret"), 0o600))
	dir := filepath.Join(top, "root")
	kit.OK(t, os.MkdirAll(filepath.Join(dir, ".toolpost"), 0o755))
	kit.OK(t, os.WriteFile(filepath.Join(dir, ".toolpost/token"), []byte("the secret"), 0o600))
	r := open(t, dir, "command: [sh, -c, 'ln -s ../secret.txt a.txt; ln -s .toolpost/token b.txt; ln -s /proc/self/environ c.txt']\n"+
		"assets: ['*.txt']\nwalls: {write: [.]}")
	got := invoke(t, r, `{}`)
	if got.err != nil || !got.result.OK || len(got.of(tool.KindAsset)) > 0 || len(got.of(tool.KindError)) != 3 {
		t.Errorf("%+v, %v: %s, %s", got.result, got.err, got.of(tool.KindAsset), got.of(tool.KindError))
	}
}

func TestAMistakeInTheConfigIsFoundBeforeACall(t *testing.T) {
	for fields, words := range map[string][]string{
		`description: x`:                                       {"command begins with the program"},
		`command: ["{program}"]`:                               {"an argument cannot choose what is run"},
		`command: [[git], log]`:                                {"command begins with the program"},
		`command: [git, {count}]`:                              {"put it in quotes"},
		`command: [git, "{count"]`:                             {"brace", "twice"},
		`command: [git, [--all]]`:                              {"[--all]", "names no argument"},
		`command: [git, []]`:                                   {"empty list"},
		`command: [git, "{all?}"]`:                             {"must be in a list"},
		"command: [git, '{a}']\narguments: {b: string}":        {"{a} is not an argument"},
		"command: [git]\nstdin: '{a}'\narguments: {b: string}": {"stdin", "{a} is not an argument"},
		"command: [git, '{a}']\ninput: {type: object, properties: {a: {}}}": {"{a} need not be given"},
		"command: [git, '{a}']\narguments: {a: strin}":                      {"strin"},
		"command: [git, '{a}']\narguments: {a: 7}":                          {"the argument a", "expected a type"},
		"command: [git]\narguments: {'a b': string}":                        {`"a b" cannot be the name`},
		"command: [git]\narguments: {}\ninput: {}":                          {"write one of them"},
		`command: [git, "-{flags}"]`:                                        {"lets {flags} choose an option"},
		`command: [git, "--{flags}=1"]`:                                     {"lets {flags} choose an option"},
		`command: [head, "-n{count}"]`:                                      {"-n{count}", "short option", "--name={count}"},
		`command: [sh, -c, "grep {x}"]`:                                     {"that sh runs", `sh, "{x}"`},
		`command: [nice, -n, 5, bash, -ec, "grep {x}"]`:                     {"that bash runs"},
		`command: [/usr/bin/python3.12, -c, "{x}"]`:                         {"that python3.12 runs"},
		`command: [node, "--eval={x}"]`:                                     {"that node runs"},
		`command: [awk, -v, a=1, "{x}"]`:                                    {"that awk runs"},
		`command: [sed, -n, "s/{x}/y/"]`:                                    {"that sed runs"},
		`command: [sed, -e, "{x}", f]`:                                      {"that sed runs"},
		`command: [env, A=1, "{x}"]`:                                        {"that env runs"},
		`command: [env, "{x}"]`:                                             {"that env runs"},
		`command: [sh, -a, "{x}"]`:                                          {"that sh runs"},
		`command: [python3, "{x}"]`:                                         {"that python3 runs"},
		`command: [xargs, -n, 1, "{x}"]`:                                    {"that xargs runs"},
		`command: [sed, "--expression=s/{x}/y/", f]`:                        {"that sed runs"},
		`command: [sed, "-es/{x}/y/", f]`:                                   {"that sed runs"},
		`command: [sed, -e, 1p, -e, "{x}", f]`:                              {"that sed runs"},
		`command: [sed, 1p, f, -e, "{x}"]`:                                  {"that sed runs"},
		`command: [perl, -e, "1;", -e, "{x}"]`:                              {"that perl runs"},
		`command: [node, "--eval=f('{x}')"]`:                                {"that node runs"},
		`command: [bash, -euo, pipefail, -c, "{x}"]`:                        {"that bash runs"},
		`command: [bash, -c, --, "{x}"]`:                                    {"that bash runs"},
		`command: [bash, -c, -e, "{x}"]`:                                    {"that bash runs"},
		`command: [busybox, sh, -c, "{x}"]`:                                 {"that sh runs"},
		`command: [busybox, "{x}"]`:                                         {"that busybox runs"},
		`command: [setsid, -f, "{x}"]`:                                      {"that setsid runs"},
		`command: [timeout, 5, "{x}"]`:                                      {"that timeout runs"},
		`command: [timeout, -k, 1, 5, sh, -c, "{x}"]`:                       {"that sh runs"},
		`command: [ssh, -p, 22, host, grep, -e, "{x}"]`:                     {"that ssh runs"},
		`command: [watch, -n, 1, ls, "{x}"]`:                                {"that watch runs"},
		"command: [git]\ntier: 4":                                           {"tier must be"},
		"command: [git]\noutput: xml":                                       {"text, lines, json or jsonl"},
		"command: [git]\nexits: [{code: 300}]":                              {"from 0 to 255"},
		"command: [git]\nexits: [{code: 1, ok: true, reason: x}]":           {"a success has no reason"},
		"command: [git]\nprogress: '(\\d+)%'":                               {"needs a group", "percent"},
		"command: [git]\nprogress: '(?P<much>\\d+)'":                        {`"much" means nothing`},
		"command: [git]\nprogress: '('":                                     {"missing closing"},
		"command: [git]\nprogress: {match: x, lines: true}":                 {"write one of them"},
		"command: [git]\nprogress: {lines: true, total: n}":                 {`"n", which there is not`},
		"command: [git]\nassets: [../x]":                                    {"outside the working folder"},
		"command: [git]\nassets: [/tmp/x]":                                  {"outside the working folder"},
		"command: [git]\nassets: ['[']":                                     {"is not a pattern"},
		"command: [git]\nassets: ['{x}']":                                   {"is not an argument"},
		"command: [git]\nassets: [x]\ncontainer: {image: debian}":           {"files of a container"},
		"command: [git]\ntools: [{tool: a, command: [git]}]":                {"command belongs to one tool"},
		"tools: [{command: [git]}]":                                         {"needs a name"},
		"tools: [{tool: a, command: [git]}, {tool: a, command: [git]}]":     {`two tools are called "a"`},
		"tools: [{tool: a, command: [git]}, {tool: b, command: ['{x}']}]":   {"b: command begins"},
	} {
		_, err := source(t.TempDir(), fields)
		if err == nil {
			t.Errorf("taken: %s", fields)
			continue
		}
		for _, w := range words {
			kit.Contains(t, err.Error(), w, fields)
		}
	}
}

// These look like mistakes but are not.
func TestHarmlessCommandLinesAreAccepted(t *testing.T) {
	for _, command := range []string{
		`[sh, -c, 'grep -e "$1" notes.txt', sh, "{x}"]`, `[python3, tool.py, -c, "{x}"]`, `[python3, -m, json.tool, "{x}"]`, `[node, cli.js, -p, "{x}"]`,
		`[awk, -v, "a={x}", '{{print a}}']`, `[awk, '{{print}}', "{x}"]`, `[sed, -n, -e, 1p, "{x}"]`, `[nice, -n, "{x}", git, status]`, `[grep, -e, "{x}"]`, `[env, "A={x}", git, log, "{y}"]`,
		`[sed, ["{x?}", -n], -e, 1p, notes.txt]`, `[git, log, "-n{n}"]`, `[cc, "-I{dir}"]`, `[sort, "-{{x}}"]`,
		`[python3, -c, 'f()', -c, "{x}"]`, `[bash, -euo, pipefail, -c, 'f "$1"', bash, -c, "{x}"]`, `[timeout, "{x}", git, log, "{y}"]`,
		`[perl, -ne, print, "{x}"]`, `[sed, --expression=1p, "{x}"]`, `[ssh, -p, "{x}", "{y}", uptime]`, `[watch, -n, "{x}", ls]`,
	} {
		fields := "command: " + command
		if strings.Contains(command, "{n}") || strings.Contains(command, "{dir}") {
			fields += "\narguments: {n: integer, dir: path}"
		}
		kit.Check(t, kit.Err(source(t.TempDir(), fields)), command)
	}
}

// An argument cannot leave the folder that the config puts before it.
func TestArgumentCannotLeaveItsFolder(t *testing.T) {
	const fields = `command: [echo, "notes/{name}.md", "--out=../out/{name}", "{name}"]`
	for _, name := range []string{"../x", "a/../../x", "..//x", "../..", "x/.."} {
		if got := run(t, fields, fmt.Sprintf(`{"name":%q}`, name)); got.err == nil || !strings.Contains(got.err.Error(), "leads out of the folder") {
			t.Errorf("%s: %v", name, got.err)
		}
	}
	for _, name := range []string{"x", "a/b", "a..b", "...", ".x"} {
		if got := run(t, fields, fmt.Sprintf(`{"name":%q}`, name)); got.err != nil {
			t.Errorf("%s: %v", name, got.err)
		}
	}
}
