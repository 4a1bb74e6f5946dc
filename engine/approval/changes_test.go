package approval_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/engine/approval"
	"toolpost/internal/kit"
	"toolpost/tool"
)

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
					call.Consent.Touches.Writes, call.Consent.Preview = []string{c.path}, preview
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

// preview reads files as a runner would.
func preview(path string, limit int64) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = tool.Errorf(tool.CodeNotFound, "there is no %s", path)
	}
	return b[:min(int64(len(b)), limit)], err
}

// A line that is cut leaves no piece of a secret.
func TestDifferenceHasNoPieceOfASecret(t *testing.T) {
	const hunter = "hunter2-hunter3-hunter4"
	w := newWorld()
	w.Approvals = approval.New(approval.Options{Store: w.store, Redact: func(doc json.RawMessage) json.RawMessage {
		return bytes.ReplaceAll(doc, []byte(hunter), []byte("[secret]"))
	}})
	w.h = w.For(nil)(w.h)
	for at := range 30 {
		id := w.asked(t, call(args(`{"path":"a","content":"`+strings.Repeat("x", 185+at)+hunter+strings.Repeat("y", 300)+`"}`), func(call *tool.Call) {
			call.Consent.Touches = tool.Touches{}
		}))
		if got := kit.Must(w.Show(t.Context(), owner, id))(t).Changes; len(got) != 1 || strings.Contains(got[0].Diff, "hunter") {
			t.Errorf("%d: %+v", at, got)
		}
	}
}
