package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestACommandLineIsMadeOfItsPieces(t *testing.T) {
	r := open(t, "/work", `
dir: /work/repo
command:
- git
- log
- ["{all?}", --all]
- ["{since?}--since", "{since}"]
- ["--author={author}"]
- ["--grep={words}"]
- "{{{count}}}"
- --
- "{files}"
arguments:
  all: boolean
  since: string
  author: string
  words: array
  count: {type: integer, default: 3}
  files: {type: array, items: path}
`)
	for args, want := range map[string]string{
		`{"files":[]}`:    `git log {3} --`,
		`{"files":["a"]}`: `git log {3} -- ./a`,
		`{"files":["a","b/../c/","/work/repo/x"]}`:    `git log {3} -- ./a ./c/ ./x`,
		`{"files":["-a","--","+x","@f","x=y","h:p"]}`: `git log {3} -- ./-a ./-- ./+x ./@f ./x=y ./h:p`,
		`{"files":[],"all":true,"count":7}`:           `git log --all {7} --`,
		`{"files":[],"all":false}`:                    `git log {3} --`,
		`{"files":[],"since":"May"}`:                  `git log --since May {3} --`,
		`{"files":[],"since":""}`:                     `git log {3} --`,
		`{"files":[],"since":null}`:                   `git log {3} --`,
		`{"files":[],"author":"-x; rm"}`:              `git log --author=-x; rm {3} --`,
		`{"files":[],"author":""}`:                    `git log --author= {3} --`,
		`{"files":[],"words":["a","b"]}`:              `git log --grep=a --grep=b {3} --`,
		`{"files":[],"words":[]}`:                     `git log {3} --`,
		`{"files":[],"words":[1.50,{"a":[null]}]}`:    `git log --grep=1.50 --grep={"a":[null]} {3} --`,
	} {
		p, err := r.forms[0].prepare(&tool.Call{Args: json.RawMessage(args)})
		if err != nil {
			t.Errorf("%s: %v", args, err)
		} else if got := strings.Join(p.argv, " "); got != want {
			t.Errorf("%s\n got %s\nwant %s", args, got, want)
		}
	}
}

func TestAnArgumentStaysAnArgument(t *testing.T) {
	const loose, ended = `command: [prog, -n, "{a}"]`, `command: [prog, --, "{a}"]`
	const path = "command: [prog, '{a}']\narguments: {a: path}"
	for _, c := range []struct {
		fields, value string
		code          tool.Code // empty if it is accepted
		words         string
	}{
		{loose, "plain", "", ""},
		{loose, "", "", ""},
		{loose, "a -b", "", ""},
		{loose, "-", tool.CodeInvalidInput, "the argument a begins with \"-\""},
		{loose, "-x", tool.CodeInvalidInput, `write "--" before "{a}"`},
		{loose, "--exec=id", tool.CodeInvalidInput, "could be taken for an option"},
		{loose, "+!id", tool.CodeInvalidInput, "begins with \"+\""},
		{loose, "a\x00b", tool.CodeInvalidInput, "the argument a has a NUL byte"},
		{loose, strings.Repeat("x", 128<<10), tool.CodeInvalidInput, "on stdin"},
		{ended, "-x", "", ""},
		{ended, "--", "", ""},
		{ended, "a\x00b", tool.CodeInvalidInput, "NUL"},
		{`command: [prog, "{e}{a}"]` + "\narguments: {a: string, e: {type: string, default: ''}}", "-x", tool.CodeInvalidInput, "option"},
		{`command: [prog, "x{a}"]`, "-x", "", ""},
		{`command: [prog, "-{a}"]` + "\narguments: {a: {enum: [x, -x]}}", "x", "", ""},
		{`command: [prog, "-{a}"]` + "\narguments: {a: {enum: [x, -x]}}", "-x", tool.CodeInvalidInput, "begins with \"-\""},
		{path, "-x", "", ""},
		{path, "sub/../x", "", ""},
		{path, "~/x", "", ""},
		{path, ".", "", ""},
		{path, "", tool.CodeInvalidInput, "the argument a: it is empty"},
		{path, "a\x00b", tool.CodeInvalidInput, "NUL"},
		{path, "..", tool.CodeAccessDenied, "the argument a: \"..\" is outside the working folder"},
		{path, "sub/../../x", tool.CodeAccessDenied, "outside"},
		{path, "/etc/passwd", tool.CodeAccessDenied, "outside"},
		{path, "/work", tool.CodeAccessDenied, "outside"},
		{path, "/work/repository", tool.CodeAccessDenied, "outside"},
		{path, "/work/repo/x", "", ""},
	} {
		r := open(t, "/work", "dir: repo\n"+c.fields)
		args, err := json.Marshal(map[string]string{"a": c.value})
		kit.OK(t, err)
		if _, err = r.forms[0].prepare(&tool.Call{Args: args}); c.code != "" {
			wantError(t, err, c.code, c.words)
		} else if err != nil {
			t.Errorf("%s with %q: %v", c.fields, c.value, err)
		}
	}
	two := open(t, "/work", "command: [prog, '{a}{b}']\narguments: {a: {}, b: {}}")
	_, err := two.forms[0].prepare(&tool.Call{Args: json.RawMessage(`{"a":[1,2],"b":[3,4]}`)})
	wantError(t, err, tool.CodeInvalidInput, "the argument b is a second list")
	many := open(t, "/work", "command: [prog, '{a}']\narguments: {a: array}")
	args := `{"a":[` + strings.Repeat(`"`+strings.Repeat("x", 100<<10)+`",`, 11) + `"x"]}`
	_, err = many.forms[0].prepare(&tool.Call{Args: json.RawMessage(args)})
	wantError(t, err, tool.CodeInvalidInput, "the command line would have")
}

// FuzzWord checks that a word is read exactly as it was written.
func FuzzWord(f *testing.F) {
	for _, seed := range []string{"", "x", "{a}", "--x={a}{b?}", "{{x}}", "{", "}{", "{a", "{*}", "{{{a}}}", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var w, again Word
		if w.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(w.String())); err != nil || !cmp.Equal(w.parts, again.parts, cmp.AllowUnexported(part{})) || w.String() != text {
			t.Errorf("%q became %q (%v)", text, w.String(), err)
		}
	})
}
