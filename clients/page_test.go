package clients_test

import (
	"fmt"
	"os"
	"os/exec"
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
	new(world).run(t, dir, bin, "init", "--sample", "adventure")
	config := kit.Must(os.ReadFile(filepath.Join(dir, "toolpost.yaml")))(t)
	asking := "sources:\n  - {name: introduce, protocol: narratoria, command: [python3, -IS, lab.py, greeter], input: {type: object}}"
	kit.Write(t, filepath.Join(dir, "toolpost.yaml"), strings.Replace(string(config), "sources:", asking, 1))
	kit.Write(t, filepath.Join(dir, "lab.py"), string(lab))
	server := served.Start(t, bin, dir)
	w := &world{env: append(os.Environ(), "TOOLPOST_URL="+server.URL(), "TOOLPOST_TOKEN="+served.Token,
		"PYTHONDONTWRITEBYTECODE=1")}
	list, project := programs(t), w.install(t)
	kit.Write(t, filepath.Join(project, "tsconfig.json"), `{"extends": "./clients/typescript/tsconfig.json", "include": ["page*"], "exclude": [],
		"compilerOptions": {"rootDir": ".", "outDir": ".", "declaration": false}}`)
	for i, p := range list {
		if p.language == "ts" {
			kit.Write(t, filepath.Join(project, fmt.Sprintf("page%d.mts", i)), p.text)
		}
	}
	w.run(t, project, node, tsc(t), "-p", ".")
	for i, p := range list {
		words := []string{filepath.Join(project, "own/bin/python3"), "-c", p.text}
		if p.language == "ts" {
			words = []string{node, fmt.Sprintf("page%d.mjs", i)}
		}
		if got := w.run(t, project, words...); !p.prints.MatchString(got) {
			t.Errorf("line %d: the program printed\n%s", p.line, got)
		}
	}
	w.run(t, project, "npm", "pack", "./clients/typescript")
	packed := kit.Must(filepath.Glob(filepath.Join(project, "toolpost-*.tgz")))(t)
	kit.Equal(t, len(packed), 1, packed)
	other := t.TempDir()
	w.run(t, other, "npm", "install", packed[0])
	got := w.run(t, other, node, "--input-type=module", "-e", `import { Toolpost } from "toolpost"; console.log(typeof Toolpost)`)
	kit.Equal(t, got, "function\n")
}

// install runs the commands of the page that install the clients, in an empty folder with a Python of its own and a copy of
// the clients. No registry can be reached: the clients need none.
func (w *world) install(t *testing.T) (project string) {
	t.Helper()
	project = t.TempDir()
	for _, part := range []string{"python", "typescript"} {
		kit.OK(t, os.CopyFS(filepath.Join(project, "clients", part), os.DirFS(part)))
	}
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import venv, ensurepip").Run(); err != nil && os.Getenv("CI") != "true" {
		t.Skip("python3 cannot make an environment with pip; on Debian, python3-venv brings that")
	}
	w.run(t, project, "python3", "-m", "venv", "own")
	w.env = append(w.env, "PATH="+filepath.Join(project, "own/bin")+":"+os.Getenv("PATH"), "HOME="+project,
		"PIP_INDEX_URL=http://127.0.0.1:1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "npm_config_registry=http://127.0.0.1:1",
		"npm_config_fetch_retries=0", "npm_config_update_notifier=false")
	page := kit.Must(os.ReadFile("../docs/clients.md"))(t)
	commands := regexp.MustCompile("(?m)^(pip|npm) install .*$").FindAllString(string(page), -1)
	kit.Equal(t, len(commands), 2, commands)
	for _, command := range commands {
		w.run(t, project, "sh", "-c", command)
	}
	return project
}
