package file

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// call runs a tool with its arguments as JSON and returns its output as JSON.
func (w *world) call(name, args string) (string, error) {
	out, err := invoke(w.runner, &tool.Spec{Name: name}, json.RawMessage(args))
	return string(out), err
}

func TestTheContractsAnswersAreGiven(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ name, args, want string }{
		{writeName, `{"path":"file.txt","content":"content to write"}`, `{"bytes_written":16}`},
		{readName, `{"path":"file.txt"}`, `"content to write"`},
		{listName, `{"path":".","recursive":true,"pattern":"*.txt"}`, `[{"path":"./file.txt","size":16,"type":"file"},{"path":"./notes.txt","size":6,"type":"file"}]`},
		{deleteName, `{"path":"file.txt"}`, `{"deleted":true}`},
		{writeName, `{"path":"b","content":"AP8=","encoding":"base64"}`, `{"bytes_written":2}`},
		{readName, `{"path":"b"}`, `{"encoding":"base64","content":"AP8="}`},
		{editName, `{"path":"notes.txt","old":"hello","new":"good bye"}`, `{"replacements":1,"bytes_written":9}`},
		{moveName, `{"from":"notes.txt","to":"x/y.txt"}`, `{"moved":true}`},
		{readName, `{"path":"x/y.txt"}`, `"good bye\n"`},
		{folderName, `{"path":"p/q"}`, `{"created":true}`},
		{folderName, `{"path":"p/q"}`, `{"created":false}`},
		{globName, `{"pattern":"**/*.{go,txt}"}`, `["sub/deep/a.go","x/y.txt"]`},
		{writeName, `{"path":"log","content":"a","append":true}`, `{"bytes_written":1}`},
		{writeName, `{"path":"log","content":"bc","append":true}`, `{"bytes_written":2}`},
		{readName, `{"path":"log"}`, `"abc"`},
	} {
		kit.Equal(t, kit.Must(w.call(c.name, c.args))(t), c.want, c.name, c.args)
	}
}

func TestStatTellsTypeSizeModeAndTime(t *testing.T) {
	w := newWorld(t)
	when := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	kit.OK(t, os.Chtimes(filepath.Join(w.root, "notes.txt"), when, when))
	want := `{"path":"./notes.txt","size":6,"type":"file","mode":"644","modified":"2020-01-02T03:04:05Z"}`
	kit.Equal(t, kit.Must(w.call(statName, `{"path":"./notes.txt"}`))(t), want)
}

func TestAnEditSaysHowOftenTheOldTextIsThere(t *testing.T) {
	w := newWorld(t)
	w.write("root/f", "a b a b a")
	for _, c := range []struct{ args, reason, says string }{
		{`{"path":"f","old":"z","new":""}`, "no_match", "does not contain"},
		{`{"path":"f","old":"a","new":"x"}`, "ambiguous", "3 times"},
		{`{"path":"f","old":"a","new":"x","expected":2}`, "ambiguous", "3 times, and 2 was expected"},
		{`{"path":"f","old":"a b a b","new":"x","expected":2,"replace_all":true}`, "ambiguous", "once, and 2"},
		{`{"path":"f","old":"","new":"x"}`, "", "old is empty"},
	} {
		_, err := w.call(editName, c.args)
		if tool.CodeOf(err) != tool.CodeInvalidInput || tool.AsError(err).Reason != c.reason || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	kit.Equal(t, w.readFile(filepath.Join(w.root, "f")), "a b a b a", "it was changed")
	for args, want := range map[string]string{
		`{"path":"f","old":"a","new":"x","expected":3}`: "x b x b x", `{"path":"f","old":"b","new":"","replace_all":true}`: "a  a  a", `{"path":"f","old":" b a b ","new":"$1"}`: "a$1a",
	} {
		w.write("root/f", "a b a b a")
		if _, err := w.call(editName, args); err != nil || w.readFile(filepath.Join(w.root, "f")) != want {
			t.Errorf("%s: %q, %v", args, w.readFile(filepath.Join(w.root, "f")), err)
		}
	}
}

func TestWritesOverTheLimitAreRefused(t *testing.T) {
	w := newWorld(t)
	w.open(Options{MaxFile: 8}, workspace.RootOptions{Path: "root", Write: true})
	for _, args := range []string{
		writeName + ` {"path":"x","content":"123456789"}`,
		writeName + ` {"path":"notes.txt","content":"123","append":true}`,
		editName + ` {"path":"notes.txt","old":"l","new":"123","replace_all":true}`,
	} {
		name, args, _ := strings.Cut(args, " ")
		if _, err := w.call(name, args); tool.CodeOf(err) != tool.CodeInvalidInput || tool.AsError(err).Reason != "too_large" {
			t.Errorf("%s: %v; want too_large", args, err)
		}
	}
}

func TestAnEditCannotGrowAFileBeyondMemory(t *testing.T) {
	w := newWorld(t)
	w.write("root/f", strings.Repeat("a", 1<<20))
	args, err := json.Marshal(map[string]any{"path": "f", "old": "a", "new": strings.Repeat("b", 1<<20), "replace_all": true})
	kit.OK(t, err)
	kit.Refused(t, kit.Err(w.call(editName, string(args))), tool.CodeInvalidInput, "", "a terabyte")
}

func TestBadChangesAreInvalidInput(t *testing.T) {
	w := newWorld(t)
	for _, c := range []string{
		`writeFile {"path":"x","content":"=","encoding":"base64"}`, `writeFile {"path":"x","content":"","encoding":"hex"}`,
		`writeFile {"path":"x","content":"","mode":"9"}`, `writeFile {"path":"x","content":"","mode":"4755"}`, `writeFile {"path":"x","content":"","mode":"-1"}`,
		`writeFile {"path":"x","content":"","append":true,"create_only":true}`, `writeFile {"path":"x"  "content":""}`, `writeFile {"path":"x/","content":""}`,
		`deleteFile {}`, `deleteFile {"path":"."}`, `moveFile {"from":"notes.txt"}`, `makeFolder {"path":""}`, `globFiles {"pattern":""}`, `globFiles {}`,
	} {
		name, args, _ := strings.Cut(c, " ")
		call := &tool.Call{Tool: name, Spec: &tool.Spec{Name: name}, Args: json.RawMessage(args)}
		kit.Refused(t, kit.Err(w.runner.Invoke(t.Context(), call, tool.Discard)), tool.CodeInvalidInput, "", c)
	}
}

func TestConcurrentAppendsAreAllKept(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 5 {
				kit.Check(t, kit.Err(w.call(writeName, `{"path":"new/log","content":"x","append":true}`)))
			}
		})
	}
	wg.Wait()
	kit.Equal(t, w.readFile(filepath.Join(w.root, "new/log")), strings.Repeat("x", 30))
}

func TestWritingToolsNeedAWritableRoot(t *testing.T) {
	w := newWorld(t)
	names := func() (names []string) {
		specs := kit.Must(w.runner.Tools(t.Context()))(t)
		for _, s := range specs {
			names = append(names, s.Name)
			if (s.Name == deleteName) != (s.Tier == tool.MaxTier) || s.Name == writeName && s.Tier != 1 ||
				s.Effects.Writes != (s.Tier > 0) || !json.Valid(s.Input) || !json.Valid(s.Output) || len(s.Aliases) != 1 {
				t.Errorf("%s: %+v", s.Name, s)
			}
		}
		return names
	}
	all := []string{deleteName, editName, globName, listName, folderName, moveName, readName, statName, writeName}
	kit.Equal(t, cmp.Diff(all, names()), "")
	w.open(Options{}, workspace.RootOptions{Path: "root"})
	kit.Equal(t, cmp.Diff([]string{globName, listName, readName, statName}, names()), "")
	kit.Refused(t, kit.Err(w.call(writeName, `{"path":"x","content":""}`)), tool.CodeNotFound, "", "writeFile")
}

func TestTouchesNamesThePathsOfACall(t *testing.T) {
	w := newWorld(t)
	w.write("second/x", "")
	w.open(Options{}, workspace.RootOptions{Path: "root", Write: true}, workspace.RootOptions{Path: "second"})
	in := func(paths ...string) (abs []string) {
		for _, p := range paths {
			abs = append(abs, filepath.Join(w.top, p))
		}
		return abs
	}
	for _, c := range []struct {
		name, args string
		want       tool.Touches
	}{
		{readName, `{"path":"sub/../a.txt"}`, tool.Touches{Reads: in("root/a.txt"), MayRead: in("second/a.txt")}},
		{readName, `{"path":"x"}`, tool.Touches{Reads: in("second/x"), MayRead: in("root/x")}},
		{writeName, `{"path":"x","content":""}`, tool.Touches{Writes: in("second/x"), MayWrite: in("root/x")}},
		{writeName, `{"path":"/new","content":""}`, tool.Touches{Writes: in("root/new"), MayWrite: in("second/new")}},
		{readName, `{"path":"` + w.root + `/a"}`, tool.Touches{Reads: in("root/a")}},
		{listName, `{}`, tool.Touches{Reads: in("root"), MayRead: in("second")}},
		{readName, `{"path":"/sub/../notes.txt"}`, tool.Touches{Reads: in("root/notes.txt"), MayRead: in("second/notes.txt")}},
		{writeName, `{"path":"` + w.root + `/a","content":""}`, tool.Touches{Writes: in("root/a")}},
		{editName, `{"path":"` + w.root + `/a","old":"a","new":""}`, tool.Touches{Reads: in("root/a"), Writes: in("root/a")}},
		{moveName, `{"from":"` + w.root + `/a","to":"` + w.root + `/b"}`, tool.Touches{Reads: in("root/a"), Writes: in("root/a", "root/b")}},
	} {
		got, err := w.runner.Touches(&tool.Call{Spec: &tool.Spec{Name: c.name}, Args: json.RawMessage(c.args)})
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s %s: %v\n%s", c.name, c.args, err, diff)
		}
	}
	for args, want := range map[string]tool.Touches{
		`{"path":"../x"}`: {}, `{"path":"/"}`: {}, `{"path":1}`: {}, `{`: {},
		// for policy to judge, whether or not it exists
		`{"path":"/etc/passwd"}`: {Reads: in("root/etc/passwd"), MayRead: in("second/etc/passwd")},
	} {
		got, err := w.runner.Touches(&tool.Call{Spec: named(readName), Args: json.RawMessage(args)})
		if diff := cmp.Diff(want, got); err == nil || diff != "" {
			t.Errorf("%s: %v\n%s", args, err, diff)
		}
	}
}

func TestGlobSkipsIgnoredFiles(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{".gitignore", "a.go", "out/b.go", ".hidden.go", ".env", "sub/c.go"} {
		w.write("root/"+name, "out/\n")
	}
	for args, want := range map[string]string{
		`{"pattern":"*.go"}`:                               "a.go sub/c.go sub/deep/a.go",
		`{"pattern":"*.go","ignored":true}`:                "a.go out/b.go sub/c.go sub/deep/a.go",
		`{"pattern":"*.go","hidden":true}`:                 ".hidden.go a.go sub/c.go sub/deep/a.go",
		`{"pattern":"sub/*.go"}`:                           "sub/c.go",
		`{"pattern":"*.go","path":"sub"}`:                  "sub/c.go sub/deep/a.go",
		`{"pattern":"!*.go"}`:                              "notes.txt",
		`{"pattern":".env","hidden":true}`:                 "",
		`{"pattern":"../outside/*","path":"sub"}`:          "",
		`{"pattern":"**","path":"sub/deep","hidden":true}`: "sub/deep/a.go",
	} {
		out, err := w.call(globName, args)
		var got []string
		if err == nil {
			err = json.Unmarshal([]byte(out), &got)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %s, %v; want %s", args, got, err, want)
		}
	}
	entries, err := w.list(map[string]any{"recursive": true, "ignore": true})
	if err != nil || slices.ContainsFunc(entries, func(e entry) bool { return strings.HasPrefix(e.Path, "out") }) {
		t.Errorf("list with ignore: %v, %v", entries, err)
	}
}
