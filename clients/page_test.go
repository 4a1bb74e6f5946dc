package clients_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// A program is a program in docs/clients.md and its output, in which "..." matches anything.
type program struct {
	line           int
	language, text string
	prints         *regexp.Regexp
}

var block = regexp.MustCompile("(?s)```(python|ts)\n(.*?)```\n\n```text\n(.*?)```\n")

func programs(t *testing.T) (list []program) {
	t.Helper()
	page := kit.Must(os.ReadFile("../docs/clients.md"))(t)
	for _, m := range block.FindAllSubmatchIndex(page, -1) {
		part := func(n int) string { return string(page[m[2*n]:m[2*n+1]]) }
		prints := strings.ReplaceAll(regexp.QuoteMeta(part(3)), `\.\.\.`, ".*")
		list = append(list, program{
			line: strings.Count(string(page[:m[0]]), "\n") + 1, language: part(1), text: part(2),
			prints: regexp.MustCompile("^" + prints + "$"),
		})
	}
	if shown := strings.Count(string(page), "\n```python") + strings.Count(string(page), "\n```ts"); len(list) != shown {
		t.Fatalf("of %d programs on the page, %d say what they print", shown, len(list))
	}
	return list
}

func testPage(t *testing.T, bin string) {
	t.Helper()
	node := requireNode(t)
	dir := t.TempDir()
	lab := kit.Must(os.ReadFile("testdata/served/lab.py"))(t)
	new(world).run(t, dir, bin, "init")
	config := kit.Must(os.ReadFile(filepath.Join(dir, "toolpost.yaml")))(t)
	asking := "sources:\n  - {name: introduce, protocol: narratoria, command: [python3, -IS, lab.py, greeter], input: {type: object}}"
	kit.Write(t, filepath.Join(dir, "toolpost.yaml"), strings.Replace(string(config), "sources:", asking, 1))
	kit.Write(t, filepath.Join(dir, "lab.py"), string(lab))
	server := served.Start(t, bin, dir)
	w := &world{env: append(os.Environ(), "TOOLPOST_URL="+server.URL(), "TOOLPOST_TOKEN="+served.Token,
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+absolute(t, "python/src"))}
	list, built := programs(t), builtPackage(t, w, node)
	for i, p := range list {
		if p.language == "ts" {
			kit.Write(t, filepath.Join(built, "examples", fmt.Sprintf("page%d.ts", i)), p.text)
		}
	}
	w.run(t, built, node, tsc(t), "-p", "examples")
	for i, p := range list {
		words := []string{"python3", "-c", p.text}
		if p.language == "ts" {
			words = []string{node, fmt.Sprintf("examples/page%d.js", i)}
		}
		if got := w.run(t, built, words...); !p.prints.MatchString(got) {
			t.Errorf("line %d: the program printed\n%s", p.line, got)
		}
	}
}
