package code

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/codesearch"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A bench has the tools over folders of a test.
type bench struct {
	*testing.T
	tools *Tools
	dir   string // the first root
	state string // the data of the tools
}

// over makes tools over a folder with files; a name that ends with a slash is a folder.
func over(t *testing.T, o codesearch.Options, files map[string]string) *bench {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	return overRoots(t, o, workspace.RootOptions{Path: dir, Codebase: "main"})
}

func overRoots(t *testing.T, o codesearch.Options, roots ...workspace.RootOptions) *bench {
	t.Helper()
	tooltest.NoLeaks(t)
	ws := kit.Must(workspace.Open(t.TempDir(), workspace.Options{Roots: roots}))(t)
	state := t.TempDir()
	tools := kit.Must(New(ws, o, state, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() {
		kit.Check(t, tools.Close(context.Background()))
		ws.Close()
	})
	return &bench{t, tools, roots[0].Path, state}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		kit.OK(t, err)
	}
}

// call calls a tool and returns its result.
func (b *bench) call(name string, args any, change ...func(*tool.Call)) (*tool.Result, error) {
	b.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.Fatal(err)
	}
	c := &tool.Call{Tool: name, Args: raw, Spec: &tool.Spec{Name: name}, Caller: tool.Principal{ID: "ada"}}
	for _, f := range change {
		f(c)
	}
	return b.tools.Invoke(b.Context(), c, tool.Discard)
}

type object = map[string]any

// grep greps and returns the answer as path:line:content.
func (b *bench) grep(args object, change ...func(*tool.Call)) []string {
	b.Helper()
	r, err := b.call("grepCode", args, change...)
	if err != nil {
		b.Fatal(err)
	}
	return shownLines(b.T, r)
}

func shownLines(t *testing.T, r *tool.Result) []string {
	t.Helper()
	var lines []codesearch.Line
	kit.OK(t, json.Unmarshal(r.Output, &lines))
	shown := []string{}
	for _, l := range lines {
		shown = append(shown, fmt.Sprintf("%s:%d:%s", l.Path, l.Line, l.Content))
	}
	return shown
}

// want compares an answer.
func (b *bench) want(args object, lines ...string) {
	b.Helper()
	if diff := cmp.Diff(append([]string{}, lines...), b.grep(args)); diff != "" {
		b.Errorf("%v: (-want +got)\n%s", args, diff)
	}
}

// refuse expects an error.
func (b *bench) refuse(code tool.Code, says string, args object) {
	b.Helper()
	_, err := b.call("grepCode", args)
	if tool.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), says) {
		b.Errorf("%v: %v, want %s with %q", args, err, code, says)
	}
}

func TestGrepAnswersAsTheContractPrintsIt(t *testing.T) {
	b := over(t, codesearch.Options{}, map[string]string{"lib/my_controller.ex": "defmodule MyController do\nend\n", "test/x.ex": "defmodule XController\n"})
	r, err := b.call("grepCode", json.RawMessage(`{"pattern": "defmodule.*Controller", "path": "/lib", "ignore_case": false}`))
	kit.OK(t, err)
	kit.Equal(t, string(r.Output), `[{"path":"/lib/my_controller.ex","line":1,"content":"defmodule MyController do"}]`)
}

func TestGrepArguments(t *testing.T) {
	b := over(t, codesearch.Options{}, map[string]string{
		"a.go": "package a\nfunc Foo() {}\n\nvar x = foo\n", "b/b.go": "// Foo\n", "b/b.txt": "Foo\n", ".hidden/c": "Foo\n", "out/d": "Foo\n",
		".gitignore": "out\n", "bin": "\x00Foo\n", ".env": "Foo=1\n", "b/long.txt": strings.Repeat("x", 5000) + "Needle" + strings.Repeat("y", 5000), "bad": "Fo\xffo Fjord\n", "crlf.txt": "Fjord\r\n",
	})
	b.arguments()
	b.indexed("main")
	b.arguments()
	r, err := b.call("grepCode", object{"pattern": "Foo"})
	if err != nil || !r.Trace.Details["grep"].(codesearch.GrepStats).Indexed {
		t.Errorf("the index was not asked: %+v, %v", r, err)
	}
}

// arguments greps with each kind of arguments, over the files of the previous test.
func (b *bench) arguments() {
	b.want(object{"pattern": "Foo"}, "a.go:2:func Foo() {}", "b/b.go:1:// Foo", "b/b.txt:1:Foo")
	b.want(object{"pattern": "foo", "ignore_case": true, "path": "a.go"}, "a.go:2:func Foo() {}", "a.go:4:var x = foo")
	b.want(object{"pattern": "foo", "ignoreCase": true, "path": b.dir + "/b"}, b.dir+"/b/b.go:1:// Foo", b.dir+"/b/b.txt:1:Foo")
	b.want(object{"pattern": "Foo", "globs": []string{"*.go"}}, "a.go:2:func Foo() {}", "b/b.go:1:// Foo")
	b.want(object{"pattern": "Foo", "globs": []string{"!b"}}, "a.go:2:func Foo() {}")
	b.want(object{"pattern": "Foo", "path": "b", "globs": []string{"!*.go"}}, "b/b.txt:1:Foo")
	b.want(object{"pattern": "Foo", "globs": []string{"b/*.txt", "{x,a}.go"}}, "a.go:2:func Foo() {}", "b/b.txt:1:Foo")
	b.want(object{"pattern": "Foo", "hidden": true, "path": "."}, "./.hidden/c:1:Foo", "./a.go:2:func Foo() {}", "./b/b.go:1:// Foo", "./b/b.txt:1:Foo")
	b.want(object{"pattern": "Foo", "path": ".hidden"}, ".hidden/c:1:Foo")
	b.want(object{"pattern": "Foo", "path": "out"}, "out/d:1:Foo")
	b.want(object{"pattern": "Foo", "ignored": true, "globs": []string{"out/**"}}, "out/d:1:Foo")
	b.want(object{"pattern": "Foo", "limit": 1}, "a.go:2:func Foo() {}")
	b.want(object{"pattern": "Foo", "codebase_id": "main", "limit": 1}, "a.go:2:func Foo() {}")
	b.want(object{"pattern": "Fjord$"}, "bad:1:Fo\uFFFDo Fjord", "crlf.txt:1:Fjord")
	b.want(object{"pattern": "nowhere"})
	for _, l := range b.grep(object{"pattern": "Needle"}) {
		if !strings.HasPrefix(l, "b/long.txt:1:…x") || !strings.HasSuffix(l, "y…") || !strings.Contains(l, "Needle") || len(l) > 1100 {
			b.Errorf("a long line is shown as %q", l)
		}
	}
}

func TestGrepGivesLinesAroundAMatch(t *testing.T) {
	b := over(t, codesearch.Options{}, map[string]string{"f": "1\n2\nx\n4\nx\n6"})
	r := kit.Must(b.call("grepCode", object{"pattern": "x", "context_before": 2, "context_after": 1}))(t)
	want := `[{"path":"f","line":3,"content":"x","before":["1","2"],"after":["4"]},{"path":"f","line":5,"content":"x","before":["x","4"],"after":["6"]}]`
	kit.Equal(t, string(r.Output), want)
}

func TestGrepSaysWhenThereIsMore(t *testing.T) {
	b := over(t, codesearch.Options{MaxLines: 3}, map[string]string{"f": strings.Repeat("x\n", 10)})
	for _, limit := range []int{2, 3, 100} {
		r := kit.Must(b.call("grepCode", object{"pattern": "x", "limit": limit}))(t)
		if got := len(shownLines(t, r)); got != min(limit, 3) || !strings.Contains(r.Summary, "there are more") {
			t.Errorf("limit %d: %d lines, %q", limit, got, r.Summary)
		}
	}
}

func TestGrepStreamsInTheOrderOfThePaths(t *testing.T) {
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("d%02d/f%d", i%20, i)] = "x\n"
	}
	b := over(t, codesearch.Options{}, files)
	var events []string
	c := &tool.Call{Args: []byte(`{"pattern": "x", "stream": true}`), Spec: &tool.Spec{Name: "grepCode"}}
	r := kit.Must(b.tools.Invoke(t.Context(), c, tool.SinkFunc(func(e tool.Event) error {
		var o tool.Output
		err := json.Unmarshal(e.Data, &o)
		events = append(events, strings.Split(strings.TrimSpace(o.Text), "\n")...)
		return err
	})))(t)
	byPath := func(a, b string) int {
		return strings.Compare(strings.TrimSuffix(a, ":1:x"), strings.TrimSuffix(b, ":1:x"))
	}
	if lines := shownLines(t, r); !slices.Equal(events, lines) || !slices.IsSortedFunc(lines, byPath) || len(lines) != 200 {
		t.Errorf("%d events and %d lines", len(events), len(lines))
	}
	gone := fmt.Errorf("nobody listens")
	if _, err := b.tools.Invoke(t.Context(), c, tool.SinkFunc(func(tool.Event) error { return gone })); !strings.Contains(fmt.Sprint(err), "nobody listens") {
		t.Errorf("a sink that fails gives %v", err)
	}
}

func TestGrepRefuses(t *testing.T) {
	b := over(t, codesearch.Options{}, map[string]string{"f": "x\n", ".env": "x\n"})
	b.refuse(tool.CodeInvalidInput, "malformed", object{"pattern": "("})
	b.refuse(tool.CodeInvalidInput, "line break", object{"pattern": `a\nb`})
	b.refuse(tool.CodeInvalidInput, "too large", object{"pattern": strings.Repeat("[a-z]{1000}", 25)})
	b.refuse(tool.CodeInvalidInput, "1 to 1000", object{"pattern": strings.Repeat("x", 1001)})
	b.refuse(tool.CodeInvalidInput, "arguments", object{"pattern": "x", "unknown": 1})
	b.refuse(tool.CodeInvalidInput, "malformed", object{"pattern": "x", "globs": []string{"["}})
	b.refuse(tool.CodeInvalidInput, "context", object{"pattern": "x", "context_before": 1000})
	b.refuse(tool.CodeNotFound, "nope", object{"pattern": "x", "path": "nope"})
	b.refuse(tool.CodeNotFound, "no codebase", object{"pattern": "x", "codebase_id": "nope"})
	b.refuse(tool.CodeAccessDenied, "/etc", object{"pattern": "x", "path": "/etc"})
	b.refuse(tool.CodeAccessDenied, "outside", object{"pattern": "x", "path": "../x"})
	b.refuse(tool.CodeAccessDenied, ".env", object{"pattern": "x", "path": ".env"})
}

func TestACallerSeesItsOwnCodebases(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	write(t, one, map[string]string{"f": "x one\n"})
	write(t, two, map[string]string{"f": "x two\n"})
	b := overRoots(t, codesearch.Options{}, workspace.RootOptions{Path: one, Codebase: "one", Callers: tool.Globs{"ada"}}, workspace.RootOptions{Path: two, Codebase: "two"})
	as := func(id string) func(*tool.Call) { return func(c *tool.Call) { c.Caller.ID = id } }
	for range 2 { // the second time perhaps with an index
		if got, want := b.grep(object{"pattern": "x"}), []string{"f:1:x one", two + "/f:1:x two"}; !slices.Equal(got, want) {
			t.Errorf("ada sees %q, want %q", got, want)
		}
		if got, want := b.grep(object{"pattern": "x"}, as("bob")), []string{"f:1:x two"}; !slices.Equal(got, want) {
			t.Errorf("bob sees %q, want %q", got, want)
		}
		kit.Refused(t, kit.Err(b.call("grepCode", object{"pattern": "x", "codebase_id": "one"}, as("bob"))),
			tool.CodeNotFound, "", "bob greps in one")
		b.indexed("one")
		b.indexed("two")
	}
	r, err := b.call("listCodebases", object{}, as("bob"))
	if err != nil || strings.Contains(string(r.Output), "one") || !strings.Contains(string(r.Output), `"codebase_id":"two"`) {
		t.Errorf("bob's codebases: %s, %v", r.Output, err)
	}
}

// indexed brings the index of a codebase up to date.
func (b *bench) indexed(codebase string) {
	b.Helper()
	if err := b.tools.library.Refresh(b.Context(), &tool.Call{Caller: tool.Principal{ID: "ada"}}, codebase); err != nil {
		b.Fatal(err)
	}
}

func TestExpensiveOperationsAreCounted(t *testing.T) {
	b := over(t, codesearch.Options{Rate: 2}, map[string]string{"f": "x\n"})
	b.want(object{"pattern": "x"}, "f:1:x")
	b.want(object{"pattern": "x"}, "f:1:x")
	_, err := b.call("grepCode", object{"pattern": "x"})
	var details struct {
		Retry int `json:"retry_after_ms"`
	}
	if e := tool.AsError(err); tool.CodeOf(err) != tool.CodeQuotaExceeded || json.Unmarshal(e.Details, &details) != nil || details.Retry < 1 {
		t.Errorf("the third search of two gives %v", err)
	}
	if _, err := b.call("grepCode", object{"pattern": "x"}, func(c *tool.Call) { c.Caller.ID = "bob" }); err != nil {
		t.Errorf("another caller: %v", err)
	}
	kit.Check(t, kit.Err(b.call("listCodebases", object{})), "what is not expensive")
}

func TestTouchesNamesTheFolderOfAGrep(t *testing.T) {
	b := over(t, codesearch.Options{}, map[string]string{"lib/f": "x\n"})
	for args, want := range map[string]string{
		`{"pattern":"x"}`:                  b.dir,
		`{"pattern":"x","path":"lib"}`:     b.dir + "/lib",
		`{"pattern":"x","path":"/lib/"}`:   b.dir + "/lib",
		`{"pattern":"x","path":"/../..x"}`: b.dir + "/..x",
	} {
		got, err := b.tools.Touches(&tool.Call{Args: []byte(args), Spec: &tool.Spec{Name: "grepCode"}})
		if err != nil || !slices.Equal(got.Reads, []string{want}) || len(got.Writes)+len(got.Commands) > 0 {
			t.Errorf("%s: %v, %v, want %s", args, got, err, want)
		}
	}
}

// denies is a scope that denies some paths.
type denies []string

func (d denies) Path(abs string, _ bool) error {
	for _, part := range d {
		if strings.HasSuffix(abs, part) {
			return tool.Errorf(tool.CodeAccessDenied, "%s is not for you", abs)
		}
	}
	return nil
}

func TestGrepSkipsFilesThatPolicyDenies(t *testing.T) {
	b := over(t, codesearch.Options{}, map[string]string{"open/f": "secret x\n", "closed/f": "secret x\n", "open/no": "secret x\n", "closed/deep/f": "secret x\n"})
	scoped := func(c *tool.Call) { c.Scope = denies{"/closed", "/no"} }
	want := []string{"open/f:1:secret x"}
	kit.EqualSlices(t, b.grep(object{"pattern": "secret"}, scoped), want, "without an index")
	b.indexed("main")
	kit.EqualSlices(t, b.grep(object{"pattern": "secret"}, scoped), want, "with an index")
	if got := b.grep(object{"pattern": "secret"}); len(got) != 4 {
		t.Errorf("without a scope: %q", got)
	}
}

func TestAFolderThatBecameALinkIsNotFollowed(t *testing.T) {
	b := over(t, codesearch.Options{}, map[string]string{"sub/a/f": "token\n"})
	b.want(object{"pattern": "token"}, "sub/a/f:1:token")
	b.indexed("main")
	kit.OK(t, os.Rename(filepath.Join(b.dir, "sub/a"), filepath.Join(b.dir, "sub/z")))
	kit.OK(t, os.Symlink("z", filepath.Join(b.dir, "sub/a")))
	b.want(object{"pattern": "token"}, "sub/z/f:1:token")
	b.want(object{"pattern": "token", "path": "sub"}, "sub/z/f:1:token")
	b.want(object{"pattern": "token", "path": "sub/a"}, "sub/a/f:1:token") // a call that names the link gets its target
}

func TestALimitCountsForAllCodebasesTogether(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	write(t, one, map[string]string{"f": "x\n"})
	write(t, two, map[string]string{"f": "x\nx\n"})
	b := overRoots(t, codesearch.Options{}, workspace.RootOptions{Path: one, Codebase: "one"}, workspace.RootOptions{Path: two, Codebase: "two"})
	for limit, more := range map[int]bool{1: true, 2: true, 3: false} {
		r := kit.Must(b.call("grepCode", object{"pattern": "x", "limit": limit}))(t)
		st := r.Trace.Details["grep"].(codesearch.GrepStats)
		if n := len(shownLines(t, r)); n != limit || st.Matches != n || st.More != more {
			t.Errorf("limit %d: %d lines, %+v", limit, n, st)
		}
	}
}
