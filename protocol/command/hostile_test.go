package command

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/hostile"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// programs are command lines with an argument v in every kind of place. They run without walls, which these tests do not
// cover.
func programs() map[string]string {
	return map[string]string{
		"git log":      `{tool: p, command: [git, log, --oneline, "--author={v}"]}`,
		"git show":     `{tool: p, command: [git, show, --stat, "{v}", --]}`,
		"git grep":     `{tool: p, command: [git, grep, -n, -e, "{v}", --, .]}`,
		"git ls-files": `{tool: p, command: [git, ls-files, --, "{v}"], arguments: {v: path}}`,
		"grep":         `{tool: p, command: [grep, -r, "--regexp={v}", .]}`,
		"find":         `{tool: p, command: [find, "{v}", -maxdepth, 1, -type, f], arguments: {v: path}}`,
		"find -name":   `{tool: p, command: [find, ., -name, "{v}"]}`,
		"cat":          `{tool: p, command: [cat, "{v}"], arguments: {v: path}}`,
		"head":         `{tool: p, command: [head, -n, 2, "{v}"], arguments: {v: path}}`,
		"wc":           `{tool: p, command: [wc, -l, "{v}"], arguments: {v: {type: array, items: path}}}`,
		"sed":          `{tool: p, command: [sed, -n, -e, 1p, "{v}"], arguments: {v: path}}`,
		"awk":          `{tool: p, command: [awk, '{{print FILENAME}}', "{v}"], arguments: {v: path}}`,
		"sort":         `{tool: p, command: [sort, "--field-separator={v}", notes.txt]}`,
		"cut":          `{tool: p, command: [cut, "--delimiter={v}", -f1, notes.txt]}`,
		"tr":           `{tool: p, command: [tr, "{v}", x], stdin: "{v}"}`,
		"date":         `{tool: p, command: [date, "--date={v}"]}`,
		"sh":           `{tool: p, command: [sh, -c, 'printf %s "$1"', sh, "{v}"]}`,
		"tar":          `{tool: p, command: [tar, -cf, /dev/null, --, "{v}"], arguments: {v: path}}`,
		"cp":           `{tool: p, command: [cp, --, notes.txt, "{v}"], arguments: {v: path}}`,
		"touch":        `{tool: p, command: [touch, "{v}"], arguments: {v: path}}`,
		"echo":         `{tool: p, command: [/bin/echo, -n, "{v}"]}`,
		"xargs":        `{tool: p, command: [xargs, -0, /bin/echo], stdin: "{v}"}`,
	}
}

// A ground is a folder with content, and with something beside it.
type ground struct {
	hostile.Place
	t *testing.T
}

const secretText = "the text that nobody reads"

func newGround(t *testing.T) *ground {
	t.Helper()
	top := t.TempDir()
	g := &ground{t: t, Place: hostile.Place{
		Top: top, Root: filepath.Join(top, "root"), Outside: filepath.Join(top, "outside"), Canary: filepath.Join(top, "outside/canary"),
	}}
	g.write("outside/secret.txt", secretText)
	g.write("outside/sub/secret.txt", secretText)
	g.write("rootbeside/secret.txt", secretText)
	g.write("root/notes.txt", "a public note\n")
	g.write("root/sub/deep/a.txt", "public\n")
	t.Setenv("HOME", g.Outside)
	g.sh(g.Root, "git init -q && git add . && git -c user.name=Ada -c user.email=ada@example.org commit -qm one")
	return g
}

func (g *ground) write(name, text string) {
	g.t.Helper()
	path := filepath.Join(g.Top, name)
	kit.Write(g.t, path, text)
}

func (g *ground) sh(dir, script string) {
	g.t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		g.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// values returns the corpus: 2,000 values and more.
func (g *ground) values() []string {
	g.t.Helper()
	words := kit.Must(hostile.Words("../../builtin/shell/escapes_test.go", g.Place))(g.t)
	all := append(words, hostile.Commands(g.Place)...)
	for i, path := range hostile.Paths(g.Place) {
		if i%17 == 0 {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) < 2000 {
		g.t.Fatalf("the corpus has %d values", len(all))
	}
	return all
}

// outside returns everything beside the folder: names, contents and times.
func (g *ground) outside() map[string]string {
	g.t.Helper()
	seen := map[string]string{}
	kit.OK(g.t, filepath.WalkDir(g.Top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == g.Root:
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			seen[path] = fmt.Sprint(info.ModTime(), info.Size())
		} else {
			seen[path] = ""
		}
		return err
	}))
	return seen
}

func (g *ground) open(program string) *Runner {
	g.t.Helper()
	return open(g.t, g.Top, "dir: root\nwalls: {off: true}\ntools: ["+program+"]")
}

func callOf(r *Runner, value string) *tool.Call {
	args := map[string]any{"v": value}
	if about := r.forms[0].about["v"]; about.Items != nil {
		args["v"] = []string{value, "notes.txt"}
	}
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return &tool.Call{Tool: "p", Args: b}
}

// TestNoValueBecomesMoreThanAnArgument makes the command line of every program with every value. A value is refused, or is
// in its place in the template: every word of the source is present, and a value neither looks like an option before the end
// of the options nor, if it is a path, leads out of the folder.
func TestNoValueBecomesMoreThanAnArgument(t *testing.T) {
	g := newGround(t)
	taken, refused := 0, 0
	for name, program := range programs() {
		r := g.open(program)
		for _, value := range g.values() {
			p, err := r.forms[0].prepare(callOf(r, value))
			if err != nil {
				if code := tool.CodeOf(err); code != tool.CodeInvalidInput && code != tool.CodeAccessDenied || !strings.Contains(err.Error(), "argument v") {
					t.Errorf("%s with %q: %v", name, value, err)
				}
				refused++
				continue
			}
			taken++
			kit.Equal(t, becomes(r.forms[0], p.argv, value), "", name, value, p.argv)
		}
	}
	if t.Logf("%d taken, %d refused", taken, refused); taken < 10_000 || refused < 5_000 {
		t.Error("the corpus does not have both kinds of values any more")
	}
}

// becomes returns what a value has become on a command line, if it is not an argument. It does not use the code that made
// the command line.
func becomes(f *form, argv []string, value string) string {
	ended := false
	for _, w := range words(f.Command) {
		text, literal := w.literal()
		switch {
		case len(argv) == 0:
			return "takes words of the source away"
		case literal && argv[0] != text:
			return "changes a word of the source"
		case literal:
			ended = ended || text == "--"
			argv = argv[1:]
			continue
		}
		for range len(argv) - len(f.rest(w)) {
			element := argv[0]
			rest, glued := strings.CutPrefix(element, w.before())
			path := f.about["v"].path()
			switch {
			case !glued:
				return "is not where it should be"
			case w.before() == "" && !ended && element != "" && strings.Contains("-+", element[:1]):
				return "becomes an option"
			case path && (!strings.HasPrefix(rest, "./") || !filepath.IsLocal(rest)):
				return "becomes a path outside"
			case !path && rest != value:
				return "becomes something else"
			}
			argv = argv[1:]
		}
	}
	if len(argv) > 0 {
		return "becomes more than one word"
	}
	return ""
}

// rest returns the words of a command after w.
func (f *form) rest(w Word) []Word {
	all := words(f.Command)
	i := slices.IndexFunc(all, func(one Word) bool { return one.String() == w.String() })
	return all[i+1:]
}

// TestHostileValuesThroughRealPrograms runs the programs: nothing outside their folder is read or changed, and no other
// program is run. Options with visible effects go through all of the programs, other values through some; many rounds take
// everything through all.
func TestHostileValuesThroughRealPrograms(t *testing.T) {
	tooltest.NoLeaks(t)
	g := newGround(t)
	before, values, all := g.outside(), g.values(), programs()
	names := slices.Sorted(maps.Keys(all))
	every := rounds.Of(len(names)*10, 1)
	ran := 0
	for i, name := range names {
		r := g.open(all[name])
		for j, value := range values {
			option := strings.HasPrefix(value, "-") && strings.Contains(value, g.Canary)
			if ((i+j)%every == 0 || option) && g.attempt(r, name, value) {
				ran++
			}
		}
		if after := g.outside(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("%s changed what is outside:\n%v\n%v", name, before, after)
		}
	}
	t.Logf("%d calls ran", ran)
}

// attempt makes a call, and reports whether it ran.
func (g *ground) attempt(r *Runner, name, value string) bool {
	ctx := kit.Context(g.t)
	var sink tooltest.Collect
	result, err := r.Invoke(ctx, callOf(r, value), &sink)
	said := fmt.Sprint(err)
	if result != nil {
		said = string(result.Output) + fmt.Sprint(result.Failure)
	}
	for _, e := range sink.Events() {
		said += string(e.Data)
	}
	if strings.Contains(said, secretText) {
		g.t.Errorf("%s with %q read what is outside: %.300s", name, value, said)
	}
	return result != nil
}

// TestCorpusWorksWithoutGuards shows what its values do if nothing is refused: as literal words of the command
// line, and in the text of a shell.
func TestCorpusWorksWithoutGuards(t *testing.T) {
	g := newGround(t)
	values := g.values()
	for _, c := range []struct {
		value string
		argv  func(value string) []string
	}{
		{"--output=" + g.Canary, func(v string) []string { return []string{"git", "show", v} }},
		{"; touch " + g.Canary + " #", func(v string) []string { return []string{"sh", "-c", "echo " + v} }},
		{"$(touch " + g.Canary + ")", func(v string) []string { return []string{"sh", "-c", `echo "` + v + `"`} }},
		{g.Canary, func(v string) []string { return []string{"touch", v} }},
		{"--filter=touch " + g.Canary, func(v string) []string { return []string{"split", v, "notes.txt"} }},
	} {
		if !slices.Contains(values, c.value) {
			t.Errorf("%q is not in the corpus", c.value)
		}
		cmd := exec.Command(c.argv(c.value)[0], c.argv(c.value)[1:]...)
		cmd.Dir = g.Root
		out, _ := cmd.CombinedOutput() // a later failure does not matter
		if os.Remove(g.Canary) != nil {
			t.Errorf("%q does nothing: %s", c.argv(c.value), out)
		}
	}
}

// TestALinkInTheFolderLeadsNowhere is about links, which only the walls can stop: examining the path is not enough.
func TestALinkInTheFolderLeadsNowhere(t *testing.T) {
	g := newGround(t)
	g.sh(g.Root, "ln -s ../outside dirlink && ln -s "+g.Outside+" abslink && ln -s ../outside/secret.txt filelink && ln -s / rootlink")
	r := open(t, g.Top, "dir: root\ntools: ["+programs()["cat"]+"]")
	for _, path := range []string{"filelink", "dirlink/secret.txt", "abslink/secret.txt", "rootlink" + g.Outside + "/secret.txt"} {
		g.attempt(r, "cat", path)
	}
	wantOutput(t, invokeAs(t, r, callOf(r, "notes.txt")), `"a public note\n"`)
}

func invokeAs(t *testing.T, r *Runner, c *tool.Call) outcome {
	t.Helper()
	result, err := r.Invoke(t.Context(), c, tool.Discard)
	return outcome{result: result, err: err}
}
