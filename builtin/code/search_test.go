package code

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/codesearch"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func shopFiles() map[string]string {
	return map[string]string{
		"src/handler.ts": "import { log } from './log';\n\nasync function handler(req, res) {\n  log(req);\n  res.end();\n}\n",
		"src/log.ts":     "export function log(line: string) {\n  console.error(line);\n}\n",
		"cart.go":        "package shop\n\nimport \"example.org/shop/money\"\n\nconst maxItems = 10\n\n// Total adds up the prices of everything in the basket.\nfunc (c *Cart) Total() money.Amount {\n\tsum := money.Zero\n\treturn sum.Add(c.prices...)\n}\n",
		"money/money.go": "package money\n\n// Zero is nothing.\nvar Zero Amount\n\ntype Amount struct {\n\tcents int64\n}\n\nfunc (a Amount) Add(more ...Amount) Amount {\n\treturn a\n}\n",
		"go.mod":         "module example.org/shop\n\ngo 1.26\n\nrequire example.org/dep v1.2.3\n",
		"package.json":   `{"name":"web","dependencies":{"left-pad":"1.0.0"}}`,
		".env":           "BASKET_TOTAL_PRICES_SECRET=handler\n",
		"ignored/x.go":   "package x\n\nfunc basketPrices() {\n\tprices()\n}\n",
		".gitignore":     "ignored\n",
	}
}

// hits searches and returns the answer.
func (b *bench) hits(args object, change ...func(*tool.Call)) []codesearch.Hit {
	b.Helper()
	var list []codesearch.Hit
	b.answer("searchCode", args, &list, change...)
	return list
}

func (b *bench) answer(name string, args, into any, change ...func(*tool.Call)) {
	b.Helper()
	r, err := b.call(name, args, change...)
	if err != nil {
		b.Fatalf("%s %v: %v", name, args, err)
	}
	if err := json.Unmarshal(r.Output, into); err != nil {
		b.Fatal(err)
	}
}

func TestSearchAnswersAsTheContractPrintsIt(t *testing.T) {
	b := over(t, codesearch.Options{}, shopFiles())
	got := b.hits(object{"query": "async function handler", "limit": 10, "codebase_id": "main"})
	if len(got) == 0 || got[0].Path != "src/handler.ts" || got[0].Line != 3 || !strings.HasPrefix(got[0].Snippet, "async function handler(req, res) {") || got[0].Similarity <= 0 || got[0].Similarity > 1 {
		t.Errorf("got %+v", got)
	}
}

func TestSearchFindsByMeaningAndKeepsUp(t *testing.T) {
	b := over(t, codesearch.Options{}, shopFiles())
	if got := b.hits(object{"query": "add up the prices in the basket"}); len(got) == 0 || got[0].Name != "Total" || got[0].Path != "cart.go" || got[0].Line != 7 || got[0].EndLine != 11 {
		t.Errorf("got %+v", got)
	}
	write(t, b.dir, map[string]string{"cart.go": "package shop\n\nfunc shipParcel() {\n\tpack()\n\tsend()\n}\n", "new/more.py": "def wrap_gift(paper):\n    return paper.fold()\n"})
	kit.OK(t, os.Remove(filepath.Join(b.dir, "src/log.ts")))
	if got := b.hits(object{"query": "ship a parcel"}); len(got) == 0 || got[0].Name != "shipParcel" {
		t.Errorf("a change was not seen: %+v", got)
	}
	if got := b.hits(object{"query": "wrapping gifts"}); len(got) == 0 || got[0].Name != "wrap_gift" {
		t.Errorf("a new file was not seen: %+v", got)
	}
	for _, h := range b.hits(object{"query": "log line basket", "limit": 100}) {
		if h.Path == "src/log.ts" || h.Name == "Total" {
			t.Errorf("what is gone was found: %+v", h)
		}
	}
}

func TestSearchGivesNothingThatIsSensitiveOrIgnored(t *testing.T) {
	b := over(t, codesearch.Options{}, shopFiles())
	for _, h := range b.hits(object{"query": "basket total prices secret handler", "limit": 100}) {
		if strings.Contains(h.Path, ".env") || strings.Contains(h.Path, "ignored") || strings.Contains(h.Snippet, "SECRET") {
			t.Errorf("got %+v", h)
		}
	}
	kit.OK(t, filepath.WalkDir(b.state, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), ".env") {
			t.Errorf("%s knows of the sensitive file", path)
		}
		return err
	}))
}

func TestSearchGivesNothingThatPolicyDenies(t *testing.T) {
	b := over(t, codesearch.Options{}, shopFiles())
	scoped := func(c *tool.Call) { c.Scope = denies{filepath.Join(b.dir, "src/handler.ts")} }
	b.hits(object{"query": "handler"}) // the index has it
	for _, h := range b.hits(object{"query": "async function handler", "limit": 100}, scoped) {
		if h.Path == "src/handler.ts" {
			t.Errorf("got %+v", h)
		}
	}
	var defs []codesearch.Definition
	b.answer("findSymbol", object{"name": "handler"}, &defs, scoped)
	var refs []codesearch.Reference
	b.answer("findReferences", object{"name": "log"}, &refs, scoped)
	for _, r := range refs {
		if r.Path == "src/handler.ts" {
			t.Errorf("got %+v", r)
		}
	}
	var list []codesearch.Definition
	b.answer("listSymbols", object{}, &list, scoped)
	for _, d := range append(defs, list...) {
		if d.Path == "src/handler.ts" {
			t.Errorf("got %+v", d)
		}
	}
	var g codesearch.Graph
	b.answer("dependencyGraph", object{"level": "file"}, &g, scoped)
	for _, n := range g.Nodes {
		if strings.Contains(n.ID, "handler.ts") {
			t.Errorf("got %+v", g)
		}
	}
}

// A file that a call may not see is not in the codebase for it: not even as the target of an import.
func TestImportOfADeniedFileIsNotResolved(t *testing.T) {
	b := over(t, codesearch.Options{}, shopFiles())
	scoped := func(c *tool.Call) { c.Scope = denies{"src/log.ts"} }
	var list []codesearch.Dependencies
	b.answer("getDependencies", object{"path": "src/handler.ts"}, &list, scoped)
	if len(list) != 1 || len(list[0].Imports) != 1 || list[0].Imports[0].Path != "" {
		t.Errorf("got %+v", list)
	}
	var g codesearch.Graph
	b.answer("dependencyGraph", object{"level": "file"}, &g, scoped)
	for _, n := range g.Nodes {
		if strings.Contains(n.ID, "log.ts") {
			t.Errorf("got %+v", g)
		}
	}
}

func TestSearchArguments(t *testing.T) {
	b := over(t, codesearch.Options{Rate: -1}, shopFiles())
	paths := func(args object) string {
		seen := map[string]bool{}
		var list []string
		for _, h := range b.hits(args) {
			if !seen[h.Path] {
				seen[h.Path] = true
				list = append(list, h.Path)
			}
		}
		return strings.Join(list, " ")
	}
	kit.Equal(t, paths(object{"query": "money amount", "path": "money"}), "money/money.go", "in a folder")
	kit.Equal(t, paths(object{"query": "money amount", "path": "/money"}),
		"/money/money.go", "in a folder that starts at the codebase")
	kit.Equal(t, paths(object{"query": "money total", "path": "cart.go"}), "cart.go", "in a file")
	kit.Equal(t, paths(object{"query": "log a line", "globs": []string{"*.ts", "!handler.ts"}}),
		"src/log.ts", "by globs")
	if got := b.hits(object{"query": "money", "limit": 1}); len(got) != 1 {
		t.Errorf("one: %+v", got)
	}
	for name, args := range map[string]object{
		"no query": {"query": "  "}, "limit": {"query": "x", "limit": 101}, "negative": {"query": "x", "limit": -1}, "a bad glob": {"query": "x", "globs": []string{"[a"}},
		"long": {"query": strings.Repeat("ab ", 3000)},
	} {
		kit.Refused(t, kit.Err(b.call("searchCode", args)), tool.CodeInvalidInput, "", name)
	}
	for path, code := range map[string]tool.Code{"none": tool.CodeNotFound, "../x": tool.CodeAccessDenied, ".env": tool.CodeAccessDenied} {
		for _, name := range []string{"searchCode", "findSymbol", "findReferences", "listSymbols", "getDependencies", "dependencyGraph"} {
			args := object{"path": path}
			switch name {
			case "searchCode":
				args["query"] = "x"
			case "findSymbol", "findReferences":
				args["name"] = "x"
			}
			kit.Refused(t, kit.Err(b.call(name, args)), code, "", name, path)
		}
	}
}

func TestSearchCountsAsExpensive(t *testing.T) {
	b := over(t, codesearch.Options{Rate: 2}, shopFiles())
	b.hits(object{"query": "money"})
	b.hits(object{"query": "money"})
	kit.Refused(t, kit.Err(b.call("searchCode", object{"query": "money"})), tool.CodeQuotaExceeded, "")
}

func TestSearchLooksIntoTheCallersCodebasesOnly(t *testing.T) {
	mine, other := t.TempDir(), t.TempDir()
	write(t, mine, map[string]string{"a.go": "package a\n\nfunc openVault() {\n\tturnKey()\n}\n"})
	write(t, other, map[string]string{"b.go": "package b\n\nfunc openVault() {\n\tturnKey()\n}\n"})
	b := overRoots(t, codesearch.Options{}, workspace.RootOptions{Path: mine, Codebase: "mine"}, workspace.RootOptions{Path: other, Codebase: "other", Callers: tool.Globs{"bob"}})
	if got := b.hits(object{"query": "open the vault"}); len(got) != 1 || got[0].Path != "a.go" {
		t.Errorf("ada got %+v", got)
	}
	kit.Refused(t, kit.Err(b.call("searchCode", object{"query": "open", "codebase_id": "other"})),
		tool.CodeNotFound, "", "ada")
	bob := func(c *tool.Call) { c.Caller.ID = "bob" }
	if got := b.hits(object{"query": "open the vault"}, bob); len(got) != 2 || got[0].Similarity != got[1].Similarity {
		t.Errorf("bob got %+v", got)
	}
	if got := b.hits(object{"query": "open the vault", "codebaseId": "other"}, bob); len(got) != 1 || got[0].Path != filepath.Join(other, "b.go") {
		t.Errorf("bob got %+v", got)
	}
}

func TestSymbolsAreFoundListedAndReferred(t *testing.T) {
	b := over(t, codesearch.Options{}, shopFiles())
	var defs []codesearch.Definition
	show := func() string {
		var list []string
		for _, d := range defs {
			list = append(list, fmt.Sprintf("%s:%d %s %s", d.Path, d.Line, d.Kind, d.Name))
		}
		return strings.Join(list, "; ")
	}
	for _, c := range []struct {
		tool string
		args object
		want string
	}{
		{"findSymbol", object{"name": "Amount"}, "money/money.go:6 type Amount"},
		{"findSymbol", object{"name": "maxItems"}, "cart.go:5 variable maxItems"},
		{"findSymbol", object{"name": "o", "kind": "function", "path": "src"}, "src/log.ts:1 function log"},
		{"findSymbol", object{"name": "Items", "kind": "type"}, ""},
		{"listSymbols", object{"path": "money"}, "money/money.go:4 variable Zero; money/money.go:6 type Amount; money/money.go:10 function Add"},
		{"listSymbols", object{"path": "src/log.ts", "kind": "function"}, "src/log.ts:1 function log"},
		{"listSymbols", object{"limit": 1}, "cart.go:5 variable maxItems"},
	} {
		defs = nil
		b.answer(c.tool, c.args, &defs)
		kit.Equal(t, show(), c.want, c.tool, c.args)
	}
	var refs []codesearch.Reference
	b.answer("findReferences", object{"name": "Zero"}, &refs)
	var got []string
	for _, r := range refs {
		got = append(got, fmt.Sprintf("%s:%d:%d %s %v", r.Path, r.Line, r.Column, r.Content, r.Defines))
	}
	kit.Equal(t, cmp.Diff([]string{"cart.go:9:15 sum := money.Zero false", "money/money.go:4:5 var Zero Amount true"}, got), "")
}

func TestDependenciesOfProjectsAndFiles(t *testing.T) {
	b := over(t, codesearch.Options{}, shopFiles())
	for _, c := range []struct {
		tool string
		args object
		want string
	}{
		{"getDependencies", object{}, `[{"path":"go.mod","ecosystem":"go","module":"example.org/shop","dependencies":[{"name":"example.org/dep","version":"v1.2.3"}]},{"path":"package.json","ecosystem":"npm","module":"web","dependencies":[{"name":"left-pad","version":"1.0.0"}]}]`},
		{"getDependencies", object{"path": "go.mod"}, `[{"path":"go.mod","ecosystem":"go","module":"example.org/shop","dependencies":[{"name":"example.org/dep","version":"v1.2.3"}]}]`},
		{"getDependencies", object{"path": "src/handler.ts"}, `[{"path":"src/handler.ts","imports":[{"name":"./log","line":1,"path":"src/log.ts"}]}]`},
		{"dependencyGraph", object{}, `{"nodes":[{"id":"."},{"id":"money"}],"edges":[{"from":".","to":"money","count":1}]}`},
		{"dependencyGraph", object{"level": "file", "path": "src"}, `{"nodes":[{"id":"src/handler.ts"},{"id":"src/log.ts"}],"edges":[{"from":"src/handler.ts","to":"src/log.ts","count":1}]}`},
	} {
		r, err := b.call(c.tool, c.args)
		if err != nil {
			t.Errorf("%s %v: %v", c.tool, c.args, err)
			continue
		}
		kit.Equal(t, cmp.Diff(c.want, string(r.Output)), "", c.tool, c.args)
	}
	write(t, b.dir, map[string]string{"package.json": "{"})
	var list []codesearch.Dependencies
	b.answer("getDependencies", object{"path": "package.json"}, &list)
	if len(list) != 1 || list[0].Error == "" {
		t.Errorf("a broken manifest: %+v", list)
	}
}

// service is an embeddings service that knows two directions, and a reranker that prefers long texts.
func service(t *testing.T, broken *atomic.Bool) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Input     []string
			Documents []string
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || broken.Load() {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		if req.Documents != nil {
			var results []object
			for i, d := range req.Documents {
				results = append(results, object{"index": i, "relevance_score": float64(len(d)) / 10_000})
			}
			_ = json.NewEncoder(w).Encode(object{"results": results})
			return
		}
		var data []object
		for i, text := range req.Input {
			v := []float64{1, 0, 0}
			if strings.Contains(text, "money") || strings.Contains(text, "coins") {
				v = []float64{0, 1, 0}
			}
			data = append(data, object{"index": i, "embedding": v})
		}
		_ = json.NewEncoder(w).Encode(object{"data": data})
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAServiceMakesVectorsAndItsFailureIsSaid(t *testing.T) {
	var broken atomic.Bool
	s := service(t, &broken)
	b := over(t, codesearch.Options{Search: codesearch.SearchOptions{Embeddings: &codesearch.ServiceOptions{URL: s.URL, Dimensions: 3}}}, shopFiles())
	// The connections to the service must be closed before the leak check.
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	if got := b.hits(object{"query": "coins"}); len(got) == 0 || !strings.Contains(got[0].Snippet, "money") {
		t.Errorf("got %+v", got)
	}
	broken.Store(true)
	write(t, b.dir, map[string]string{"new.go": "package shop\n\nfunc refundCustomer() {\n\tpayBack()\n}\n"})
	r, err := b.call("searchCode", object{"query": "refund customer"})
	if err != nil || !strings.Contains(r.Summary, "failed") {
		t.Fatalf("got %+v, %v", r, err)
	}
	var got []codesearch.Hit
	if err := json.Unmarshal(r.Output, &got); err != nil || len(got) == 0 || got[0].Name != "refundCustomer" {
		t.Errorf("words alone find it: %+v, %v", got, err)
	}
	broken.Store(false)
	if r, err := b.call("searchCode", object{"query": "refund customer"}); err != nil || strings.Contains(r.Summary, "failed") {
		t.Errorf("it recovered: %+v, %v", r, err)
	}
}

func TestARerankerPutsHitsIntoItsOrder(t *testing.T) {
	var broken atomic.Bool
	s := service(t, &broken)
	b := over(t, codesearch.Options{Search: codesearch.SearchOptions{Reranker: &codesearch.ServiceOptions{URL: s.URL}}}, shopFiles())
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	got := b.hits(object{"query": "money amount", "limit": 3})
	for i := 1; i < len(got); i++ {
		if len(got[i-1].Snippet) < len(got[i].Snippet) {
			t.Errorf("not in its order: %+v", got)
		}
	}
	broken.Store(true)
	if r, err := b.call("searchCode", object{"query": "money amount"}); err != nil || !strings.Contains(r.Summary, "failed") || !strings.Contains(string(r.Output), "money.go") {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestServicesAreChecked(t *testing.T) {
	ws := kit.Must(workspace.Open(t.TempDir(), workspace.Options{}))(t)
	defer ws.Close()
	for name, o := range map[string]codesearch.SearchOptions{
		"no url":        {Embeddings: &codesearch.ServiceOptions{Dimensions: 3}},
		"no dimensions": {Embeddings: &codesearch.ServiceOptions{URL: "http://127.0.0.1:1"}},
		"no token":      {Reranker: &codesearch.ServiceOptions{URL: "http://127.0.0.1:1", TokenEnv: "TOOLPOST_TEST_NO_SUCH_VARIABLE"}},
	} {
		kit.Refused(t, kit.Err(New(ws, codesearch.Options{Search: o}, t.TempDir(), nil)), tool.CodeInvalidInput, "", name)
	}
}
