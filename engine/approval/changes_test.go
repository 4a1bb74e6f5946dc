package approval_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/engine/approval"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// What is in a private file is not kept: neither under its name, nor by a link to its folder.
func TestPrivateFilesAreNotShown(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.Mkdir(filepath.Join(dir, "state"), 0o700))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "state", "token"), []byte("hunter3"), 0o600))
	kit.OK(t, os.Symlink("state", filepath.Join(dir, "link")))
	w := newWorld()
	w.Approvals = approval.New(approval.Options{Store: w.store, Private: func(path string) bool {
		return strings.HasPrefix(path, filepath.Join(dir, "state"))
	}})
	w.h = w.For(nil)(w.h)
	for _, name := range []string{"state/token", "link/token", "state/new"} {
		id := w.asked(t, call(args(`{"path":"`+name+`","content":"mine"}`), func(call *tool.Call) {
			call.Consent.Touches.Writes = []string{filepath.Join(dir, name)}
		}))
		kit.Equal(t, len(kit.Must(w.Show(t.Context(), owner, id))(t).Changes), 0, name)
	}
}

// Approvers see what a call would change in a file; without a file of text there is no difference.
func TestApproversSeeTheDifference(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		kit.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	long := strings.Repeat("x\n", 500)
	list := file("list", "a\nb\nc\nd\ne\nf\ng\n")
	for name, c := range map[string]struct{ path, args, kind, diff string }{
		"content":         {list, `{"path":"list","content":"a\nB\nc\nd\ne\nF\ng\n"}`, "change", "@@ line 1 @@\n a\n-b\n+B\n c\n d\n e\n-f\n+F\n g"},
		"an edit":         {list, `{"path":"list","old":"g","new":"G\n"}`, "change", "@@ line 4 @@\n d\n e\n f\n-g\n+G\n+"},
		"an addition":     {list, `{"path":"list","content":"h\n","append":true}`, "change", "@@ line 5 @@\n e\n f\n g\n+h"},
		"a new file":      {filepath.Join(dir, "new"), `{"path":"new","content":"n"}`, "create", "@@ line 1 @@\n+n"},
		"a deletion":      {file("old", "o\n\n"), `{"path":"old"}`, "delete", "@@ line 1 @@\n-o\n-"},
		"a long file":     {file("long", long), `{"path":"long","content":""}`, "change", "@@ line 1 @@\n" + strings.Repeat("-x\n", 200) + "... 300 more lines"},
		"a file of bytes": {file("bytes", "a\x00"), `{"path":"bytes","content":"x"}`, "", ""},
		"a folder":        {dir, `{"path":"."}`, "", ""},
		"no file of ours": {"", `{"path":"theirs","old":"a","new":"b"}`, "change", "@@ line 1 @@\n-a\n+b"},
		"no file":         {"", `{"n":1}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			made := call(args(c.args), func(call *tool.Call) {
				call.Spec.Effects.Destructive = true
				if call.Consent.Touches = (tool.Touches{}); c.path != "" {
					call.Consent.Touches.Writes = []string{c.path}
				}
			})
			id := w.asked(t, made)
			a := kit.Must(w.Show(t.Context(), owner, id))(t)
			got := append(a.Changes, approval.Change{})[0]
			kit.Equal(t, got.Kind, c.kind)
			kit.Equal(t, got.Diff, c.diff)
		})
	}
}
