package codesearch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/codesearch/meaning"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

const logTS = "export function log(line: string) {\n  console.error(line);\n}\n"

// over opens a library on a folder with files.
func over(t *testing.T, files map[string]string) (*Library, string) {
	t.Helper()
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	write(t, dir, files)
	ws, err := workspace.Open(dir, workspace.Options{Roots: []workspace.RootOptions{{Path: dir, Codebase: "main"}}})
	kit.OK(t, err)
	l := kit.Must(Open(ws, Options{}, t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() {
		kit.Check(t, errors.Join(l.Close(), ws.Close()))
	})
	return l, dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		kit.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
	}
}

// Programs that embed the library use it without any tool in front.
func TestALibraryAnswersEveryKindOfQuestion(t *testing.T) {
	l, dir := over(t, map[string]string{
		"go.mod": "module example.org/shop\n", "cart.go": "package shop\n\nimport \"example.org/shop/money\"\n\nvar _ = money.Zero\n",
		"money/money.go": "package money\n\n// Zero is an empty purse.\nfunc Zero() int { return 0 }\n",
	})
	ctx, c := t.Context(), &tool.Call{Caller: tool.Principal{ID: "ada"}}
	if got := l.Codebases(c); len(got) != 1 || got[0].ID != "main" {
		t.Errorf("codebases: %+v", got)
	}
	if got, err := l.Files(ctx, c, FileQuery{Pattern: "*.go", Where: Where{Path: "money"}}); err != nil || len(got) != 1 || got[0].Path != "money/money.go" {
		t.Errorf("files: %+v, %v", got, err)
	}
	var told int
	lines, stats, err := l.Grep(ctx, Call{Call: c}, GrepQuery{Pattern: "Zero"}, func(some []Line) error { told += len(some); return nil })
	if err != nil || len(lines) != 3 || told != 3 || stats.Matches != 3 || lines[0].Path != "cart.go" {
		t.Errorf("grep: %+v, %d told, %+v, %v", lines, told, stats, err)
	}
	if got, err := l.Search(ctx, Call{Call: c}, SearchQuery{Query: "empty purse", Limit: 1}); err != nil || len(got.Hits) != 1 || got.Hits[0].Name != "Zero" {
		t.Errorf("search: %+v, %v", got, err)
	}
	if got, more, err := l.Find(ctx, Call{Call: c}, FindQuery{Name: "Zero"}); err != nil || more || len(got) != 1 || got[0].Line != 4 {
		t.Errorf("find: %+v, %v, %v", got, more, err)
	}
	if got, more, err := l.References(ctx, Call{Call: c}, ReferencesQuery{Name: "Zero", Limited: Limited{Limit: 1}}); err != nil || !more || len(got) != 1 {
		t.Errorf("references: %+v, %v, %v", got, more, err)
	}
	if got, _, err := l.Symbols(ctx, Call{Call: c}, SymbolsQuery{Limited: Limited{Where: Where{Path: "money"}}}); err != nil || len(got) != 1 {
		t.Errorf("symbols: %+v, %v", got, err)
	}
	if got, _, err := l.Dependencies(ctx, Call{Call: c}, Limited{Where: Where{Path: "cart.go"}}); err != nil || len(got) != 1 || got[0].Imports[0].Path != "money" {
		t.Errorf("dependencies: %+v, %v", got, err)
	}
	if got, err := l.Graph(ctx, Call{Call: c}, GraphQuery{}); err != nil || len(got.Edges) != 1 || got.Edges[0] != (Edge{".", "money", 1}) {
		t.Errorf("graph: %+v, %v", got, err)
	}
	if got, _, err := l.Locate(c, Where{Path: "money"}); err != nil || len(got) != 1 ||
		!strings.HasSuffix(got[0], filepath.Base(dir)+"/money") {
		t.Errorf("locate: %v, %v", got, err)
	}
}

func TestInvalidQueryIsRefused(t *testing.T) {
	l, _ := over(t, map[string]string{"a.go": "package a\n"})
	ctx, c := t.Context(), &tool.Call{}
	for name, ask := range map[string]func(context.Context) error{
		"a context of 101": func(ctx context.Context) error {
			_, _, err := l.Grep(ctx, Call{Call: c}, GrepQuery{Pattern: "a", Before: 101}, nil)
			return err
		},
		"no pattern": func(ctx context.Context) error {
			_, _, err := l.Grep(ctx, Call{Call: c}, GrepQuery{Pattern: "("}, nil)
			return err
		},
		"an empty query": func(ctx context.Context) error { _, err := l.Search(ctx, Call{Call: c}, SearchQuery{}); return err },
		"no name":        func(ctx context.Context) error { _, _, err := l.Find(ctx, Call{Call: c}, FindQuery{}); return err },
		"too many": func(ctx context.Context) error {
			_, _, err := l.Dependencies(ctx, Call{Call: c}, Limited{Limit: 1001})
			return err
		},
	} {
		kit.Refused(t, ask(ctx), tool.CodeInvalidInput, "", name)
	}
}

// A file may change between the index lookup and the reading of the file.
func TestSnippetIsOmittedIfTheFileChanged(t *testing.T) {
	l, dir := over(t, map[string]string{"src/log.ts": logTS, "src/handler.ts": "handler()\n"})
	c := &tool.Call{Caller: tool.Principal{ID: "ada"}}
	list := kit.Must(targets(l.ws.View(c), Where{}))(t)
	w := &scoped{target: list[0]}
	lines := strings.Split(logTS, "\n")
	h := meaning.Hit{Path: "src/log.ts", Line: 1, Last: 3, Hash: meaning.Hash([]byte(strings.Join(lines[:3], "\n")))}
	if text, ok := w.snippet(h); !ok || !strings.HasPrefix(text, "export function log") {
		t.Fatalf("got %q, %v", text, ok)
	}
	write(t, dir, map[string]string{"src/log.ts": "export function lag(line: string) {\n  console.error(line);\n}\n"})
	if text, ok := w.snippet(h); ok {
		t.Errorf("the lines are others: %q", text)
	}
	path := filepath.Join(dir, "src/log.ts")
	kit.OK(t, errors.Join(os.Remove(path), os.Symlink("handler.ts", path)))
	kit.Fails(t, kit.Err(w.read("src/log.ts")), "", "a link was followed")
}

// Building an index takes a while: every caller that waits for it gets its progress, including those that wait for an
// update begun by another.
func TestWaitingCallersSeeIndexProgress(t *testing.T) {
	release := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		http.Error(w, "over", http.StatusTeapot)
	}))
	defer service.Close()
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("f%d.go", i)] = fmt.Sprintf("package a\n\n// F%d adds.\nfunc F%d() int { return %d }\n", i, i, i)
	}
	l, _ := over(t, files)
	var err error
	embeddings := &ServiceOptions{URL: service.URL, Model: "m", Dimensions: 8, Timeout: time.Minute}
	if l.embedder, err = embeddings.service("embeddings"); err != nil {
		t.Fatal(err)
	}
	told := make(chan tool.Progress)
	out := tool.SinkFunc(func(ev tool.Event) error {
		var p tool.Progress
		err := strictjson.Unmarshal(ev.Data, &p)
		told <- p
		return err
	})
	ended := make(chan struct{})
	for range 2 {
		go func() {
			_, _ = l.Search(t.Context(), Call{Call: &tool.Call{}, Out: out}, SearchQuery{Query: "adds"})
			ended <- struct{}{}
		}()
	}
	for seen := (tool.Progress{}); seen.Total == 0; seen = <-told {
		if seen.Message != "" && (seen.Message != "indexing main" || seen.Progress > 40) {
			t.Fatalf("%+v", seen)
		}
	}
	if p := <-told; p.Total != 40 || p.Progress > 40 {
		t.Errorf("%+v", p)
	}
	close(release)
	for range 2 {
		for done := false; !done; {
			select {
			case <-told:
			case <-ended:
				done = true
			}
		}
	}
}
