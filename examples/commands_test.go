package examples_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// A use is one call of the gallery.
type use struct {
	program string // without it the call is skipped, unless this is CI
	tool    string
	args    string
	want    string // in the output; empty if the call is refused
	refused tool.Code
	event   string // one of its events
}

func uses() []use {
	return []use{
		{program: "git", tool: "git_log", args: `{"count":5,"author":"Ada","paths":["data"]}`, want: "Ada Towns of three countries"},
		{program: "git", tool: "git_log", args: `{"author":"Nobody"}`, want: `[]`},
		{program: "git", tool: "git_show", args: `{}`, want: "+Bergen,Norway,291940"},
		{program: "git", tool: "git_show", args: `{"commit":"--output=x"}`, refused: tool.CodeInvalidInput},
		{program: "grep", tool: "search_text", args: `{"pattern":"norway","ignore_case":true,"names":"*.csv"}`, want: `./data/towns.csv:2:Bergen,Norway,291940`},
		{program: "grep", tool: "search_text", args: `{"pattern":"--no such text"}`, want: `[]`},
		{program: "find", tool: "find_files", args: `{"path":"data","name":"*.csv","larger_than":0}`, want: `["./data/towns.csv"]`},
		{program: "find", tool: "find_files", args: `{"name":"-delete"}`, refused: tool.CodeInvalidInput},
		{program: "jq", tool: "transform_json", args: `{"filter":".[] | {n: (.a + 1)}","document":[{"a":1},{"a":2}]}`, want: `[{"n":2},{"n":3}]`},
		{program: "sqlite3", tool: "query_towns", args: `{"sql":"select name from towns where people > 290000 order by name"}`, want: `["name","Bergen","Graz"]`},
		{program: "tar", tool: "make_archive", args: `{"archive":"out/data.tar.gz","paths":["data"]}`, want: `"./data/towns.csv"`, event: `"mediaType":"application/gzip"`},
		{program: "tar", tool: "make_archive", args: `{"archive":"out/data.tar.gz","paths":["../elsewhere"]}`, refused: tool.CodeAccessDenied},
		{program: "diff", tool: "compare_files", args: `{"old":"data/towns.csv","new":"data/empty.csv"}`, want: `-Graz,Austria,302749`},
		{program: "wc", tool: "count_lines", args: `{"files":["data/towns.csv","data/empty.csv"]}`, want: `4  4 81 ./data/towns.csv`},
		{program: "sort", tool: "sort_lines", args: `{"text":"b;2\na;10\nb;2","separator":";","column":2,"numeric":true,"unique":true}`, want: `["b;2","a;10"]`},
		{program: "sha256sum", tool: "checksums", args: `{"folder":"data"}`, want: `./data/towns.csv`, event: `"total":3,"message":"./data/towns.csv"`},
	}
}

// TestTheGalleryOfCommandsWorks copies the gallery, makes the files that it needs, and uses all of it.
func TestTheGalleryOfCommandsWorks(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := gallery(t)
	cfg := kit.Must(node.Load(filepath.Join(dir, config.FileName)))(t)
	kit.Equal(t, len(cfg.Sources), 10, "sources of the gallery")
	var log bytes.Buffer
	n := kit.Must(node.Open(t.Context(), cfg, node.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	defer func() {
		kit.Check(t, n.Close(kit.Context(t)))
	}()
	var used []string
	for _, u := range uses() {
		used = append(used, u.tool)
		t.Run(u.tool, func(t *testing.T) { u.call(t, n) })
	}
	for spec, err := range n.Catalog().Specs(t.Context(), tool.Principal{ID: "local"}) {
		if err == nil && spec.Protocol == "command" && !slices.Contains(used, spec.Name) {
			t.Errorf("nobody uses %s", spec.Name)
		}
	}
}

func (u use) call(t *testing.T, n *node.Node) {
	if _, err := exec.LookPath(u.program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing; `make setup` installs it", u.program)
		}
		t.Skipf("%s is missing; `make setup` installs it", u.program)
	}
	var events tooltest.Collect
	result, err := n.Handler().Invoke(t.Context(), &tool.Call{
		Tool: u.tool, Args: json.RawMessage(u.args), Caller: tool.Principal{ID: "local"},
	}, &events)
	if u.refused != "" {
		kit.Refused(t, err, u.refused, "", u.args, result)
		return
	}
	if err != nil || !result.OK {
		t.Fatalf("%s: %+v, %v", u.args, result, err)
	}
	text := string(result.Output)
	if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(u.want), " ")) {
		t.Errorf("%s gives %s, without %s", u.args, text, u.want)
	}
	if u.event != "" && !slices.ContainsFunc(events.Events(), func(e tool.Event) bool { return strings.Contains(string(e.Data), u.event) }) {
		t.Errorf("%s: no event has %s: %+v", u.args, u.event, events.Events())
	}
}

// gallery copies the gallery and adds what people usually have: a repository, a database.
func gallery(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kit.OK(t, os.CopyFS(dir, os.DirFS("commands")))
	t.Setenv("HOME", dir)
	for _, script := range []string{
		"mkdir out && : >data/empty.csv",
		"command -v sqlite3 || { : >data/towns.db; exit 0; }; sqlite3 data/towns.db 'create table towns(name, country, people integer)' '.import --csv --skip 1 data/towns.csv towns'",
		"git init -q && git add data && git -c user.name=Ada -c user.email=ada@example.org commit -qm 'Towns of three countries'",
	} {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	return dir
}
