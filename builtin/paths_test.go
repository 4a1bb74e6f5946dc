package builtin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/config"
)

// Two roots with files of the same names, and some that only one of them has.
func twoCodebases(t *testing.T) (dir, url string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"one/lib/a.py": "import lib.b\n\n\ndef handler_of_requests():\n    return 'root one'\n", "one/lib/b.py": "def other():\n    return 'root one'\n",
		"two/lib/a.py": "import lib.b\n\n\ndef handler_of_requests():\n    return 'root two'\n", "two/lib/b.py": "def other():\n    return 'root two'\n",
		"one/requirements.txt": "# root one\nrequests\n", "two/requirements.txt": "# root two\nrequests\n",
		"one/lib/requirements.txt": "# root one\nrequests\n", "two/lib/requirements.txt": "# root two\nrequests\n", "two/only/requirements.txt": "# root two\nrequests\n",
		"two/only/c.py": "import lib.b\n\n\ndef alone_in_its_folder():\n    return 'root two'\n", "one/top.py": "def top():\n    return 'root one'\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(`
sources: [{name: files, protocol: builtin, roots: [{path: one, write: true}, {path: two, write: true}], code: {rate: -1}}]
doors: {nats: {listen: "127.0.0.1:0"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	return dir, serve(t, cfg)
}

func TestPathsOfAnswersCanBeUsedInTheNextRequestAsTheyAre(t *testing.T) {
	dir, url := twoCodebases(t)
	var requests bytes.Buffer
	add := func(subject, request, root string) {
		fmt.Fprintf(&requests, `{"subject": %q, "request": %s, "root": %q}`+"\n", subject, strings.ReplaceAll(request, "DIR", dir), root)
	}
	for subject, args := range map[string]string{
		"tools.code.grep": `"pattern": "root"`, "tools.code.search": `"query": "handler of requests"`, "tools.execute.findSymbol": `"name": "o"`,
		"tools.execute.findReferences": `"name": "b"`, "tools.execute.listSymbols": `"limit": 100`, "tools.execute.getDependencies": `"limit": 100`,
		"tools.execute.dependencyGraph": `"level": "file"`,
	} {
		for where, root := range map[string]string{
			``: "root", `, "codebase_id": "one"`: "root one", `, "codebase_id": "two"`: "root two", `, "codebaseId": "two"`: "root two",
			`, "path": "lib"`: "root one", `, "path": "/lib"`: "root one", `, "path": "./lib/"`: "root one", `, "path": "DIR/two/lib"`: "root two",
			`, "path": "only"`: "root two", `, "path": "/only"`: "root two", `, "path": "lib", "codebase_id": "two"`: "root two",
			`, "path": "/lib", "codebase_id": "two"`: "root two", `, "path": "/", "codebase_id": "two"`: "root two", `, "path": "/"`: "root one",
			`, "path": ".", "codebase_id": "two"`: "root two", `, "path": "lib/a.py", "codebase_id": "two"`: "root two", `, "path": "/lib/a.py"`: "root one",
			`, "path": "/lib/a.py", "codebase_id": "two"`: "root two", `, "path": "DIR/two/lib/a.py"`: "root two",
		} {
			add(subject, "{"+args+where+"}", root)
		}
	}
	for request, root := range map[string]string{
		`{}`: "root one", `{"recursive": true}`: "root one", `{"path": "lib"}`: "root one", `{"path": "/lib"}`: "root one", `{"path": "."}`: "root one", `{"path": "only"}`: "root two",
		`{"path": "/only"}`: "root two", `{"path": "DIR/two", "recursive": true}`: "root two", `{"path": "DIR/two/"}`: "root two",
	} {
		add("tools.file.list", request, root)
	}
	for request, root := range map[string]string{
		`{"pattern": "*.py"}`: "root one", `{"pattern": "*.py", "path": "/lib"}`: "root one", `{"pattern": "*.py", "path": "only"}`: "root two", `{"pattern": "*.py", "path": "DIR/two"}`: "root two",
	} {
		add("tools.execute.globFiles", request, root)
	}
	for request, root := range map[string]string{
		`{}`: "root", `{"codebase_id": "one"}`: "root one", `{"codebase_id": "two"}`: "root two", `{"codebase_id": "two", "pattern": "*.py"}`: "root two",
	} {
		add("tools.code.list", request, root)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "testdata/paths.py", url, token)
	cmd.Stdin = &requests
	out, err := cmd.CombinedOutput()
	if lines := strings.Count(string(out), "\n"); err != nil || lines != 1 || !strings.HasSuffix(string(out), " paths were used\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A client asks over NATS as the known one does: an answer is {data, error}.
func (p *peer) data(subject, request string) (list []map[string]any, problem any) {
	p.t.Helper()
	answer, _ := p.ask(subject, request).(map[string]any)
	data, _ := answer["data"].([]any)
	for _, one := range data {
		list = append(list, one.(map[string]any))
	}
	return list, answer["error"]
}

func (p *peer) write(files map[string]string) {
	p.t.Helper()
	for name, text := range files {
		path := filepath.Join(p.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			p.t.Fatal(err)
		}
	}
}

func TestASearchLeavesOutWhatIsLessSimilarThanItIsTold(t *testing.T) {
	p := newPeer(t)
	p.write(map[string]string{
		"src/handler.ts": "async function handler(req, res) {\n  return res.send(req.body)\n}\n",
		"src/paint.ts":   "function mixColours(red, green) {\n  return red + green\n}\n",
	})
	all, problem := p.data("tools.code.search", `{"query": "async function handler", "codebase_id": "my-proj"}`)
	if len(all) < 2 || problem != nil {
		t.Fatalf("%v, %v", all, problem)
	}
	best, worst := all[0]["similarity"].(float64), all[len(all)-1]["similarity"].(float64)
	if best <= worst {
		t.Fatalf("all are as similar: %v", all)
	}
	for least, want := range map[float64]int{0: len(all), worst: len(all), (best + worst) / 2: 1, best: 1, 1: 0} {
		if best == 1 && least == 1 {
			want = 1
		}
		some, problem := p.data("tools.code.search", fmt.Sprintf(`{"query": "async function handler", "codebase_id": "my-proj", "min_similarity": %v}`, least))
		if problem != nil || len(some) != want {
			t.Errorf("%v: %d hits, want %d: %v %v", least, len(some), want, some, problem)
		}
		for _, h := range some {
			if h["similarity"].(float64) < least {
				t.Errorf("%v: %v", least, h)
			}
		}
	}
	for _, bad := range []string{"-0.1", "1.1", `"0.7"`} {
		if _, problem := p.data("tools.code.search", `{"query": "x", "min_similarity": `+bad+`}`); !strings.HasPrefix(fmt.Sprint(problem), "InvalidInput: ") {
			t.Errorf("%s: %v", bad, problem)
		}
	}
	if _, problem := p.data("tools.code.search", `{"query": "x", "max_similarity": 1}`); !strings.HasPrefix(fmt.Sprint(problem), "InvalidInput: ") {
		t.Errorf("a field that nobody knows: %v", problem)
	}
	if some, problem := p.data("tools.code.search", `{"query": "async function handler", "min_similarity": null}`); problem != nil || len(some) != len(all) {
		t.Errorf("null: %v %v", some, problem)
	}
}

func TestTheFilesOfACodebaseAreListedWhereOneIsNamed(t *testing.T) {
	p := newPeer(t)
	p.write(map[string]string{
		"lib/a.ex": "defmodule A do\nend\n", "src/b.ts": "let b = 1\n", "src/sub/c.ts": "let c = 1\n", ".gitignore": "build\n", "build/d.ts": "", ".hidden": "", ".env": "A=1\n",
	})
	for request, want := range map[string]string{
		`{}`: "DIR", `{"codebase_id": "my-proj"}`: "lib/a.ex src/b.ts src/sub/c.ts", `{"codebaseId": "my-proj"}`: "lib/a.ex src/b.ts src/sub/c.ts",
		`{"codebase_id": "my-proj", "language": "typescript"}`: "src/b.ts src/sub/c.ts", `{"codebase_id": "my-proj", "language": "Elixir"}`: "lib/a.ex",
		`{"codebase_id": "my-proj", "pattern": "*.ts"}`: "src/b.ts src/sub/c.ts", `{"codebase_id": "my-proj", "pattern": "src/*.ts"}`: "src/b.ts",
		`{"codebase_id": "my-proj", "language": null, "pattern": null}`: "lib/a.ex src/b.ts src/sub/c.ts", `{"codebase_id": null}`: "DIR",
		`{"pattern": "*.ex"}`: "lib/a.ex", `{"codebase_id": "my-proj", "path": "/src/sub"}`: "/src/sub/c.ts", `{"path": "DIR/src/sub"}`: "DIR/src/sub/c.ts",
		`{"codebase_id": "my-proj", "language": "cobol"}`: "",
	} {
		list, problem := p.data("tools.code.list", request)
		var paths []string
		for _, one := range list {
			paths = append(paths, one["path"].(string))
			if strings.Contains(request, `"my-proj"`) && (one["type"] != "file" || one["size"].(float64) <= 0) {
				t.Errorf("%s: %v", request, one)
			}
		}
		slices.Sort(paths)
		if got := strings.Join(paths, " "); got != want || problem != nil {
			t.Errorf("%s: %q, want %q (%v)", request, got, want, problem)
		}
	}
	for request, want := range map[string]string{
		`{"codebase_id": "other"}`: "NotFound: no codebase", `{"codebase_id": "my-proj", "path": "/etc"}`: "AccessDenied: /etc is not allowed",
		`{"codebase_id": "my-proj", "depth": 1}`: "InvalidInput: ",
	} {
		if _, problem := p.data("tools.code.list", request); !strings.HasPrefix(fmt.Sprint(problem), want) {
			t.Errorf("%s: %v", request, problem)
		}
	}
}

// What starts with a slash and is below no root is a path of the codebase only where that has it; nothing is made there.
func TestNothingIsMadeWhereAPathOnlyLooksLikeOneOfTheCodebase(t *testing.T) {
	p := newPeer(t)
	p.write(map[string]string{"lib/a.ex": "x\n"})
	for subject, requests := range map[string][]string{
		"tools.file.write":         {`{"path": "/lib/new.ex", "content": "x"}`, `{"path": "/etc/passwd", "content": "x"}`, `{"path": "/new.ex", "content": "x"}`},
		"tools.execute.makeFolder": {`{"path": "/lib/new"}`},
		"tools.execute.moveFile":   {`{"from": "/lib/a.ex", "to": "/lib/b.ex"}`, `{"from": "lib/a.ex", "to": "/a.ex"}`},
		"tools.file.delete":        {`{"path": "/lib/none.ex"}`, `{"path": "/"}`},
		"tools.file.read":          {`{"path": "/etc/passwd"}`, `{"path": "/../lib/a.exs"}`, `{"path": "/.env"}`},
		"tools.file.list":          {`{"path": "/"}`, `{"path": "/etc"}`, `{"path": "//"}`},
		"tools.execute.globFiles":  {`{"pattern": "*", "path": "/"}`},
		"tools.execute.editFile":   {`{"path": "/etc/passwd", "old": "x", "new": "y"}`},
	} {
		for _, request := range requests {
			answer, _ := p.ask(subject, request).(map[string]any)
			if !strings.HasPrefix(fmt.Sprint(answer["error"]), "AccessDenied: ") {
				t.Errorf("%s %s: %v", subject, request, answer)
			}
		}
	}
	if answer, _ := p.ask("tools.file.write", `{"path": "/lib/a.ex", "content": "changed"}`).(map[string]any); answer["error"] != nil {
		t.Errorf("a file of the codebase: %v", answer)
	}
	if text, _ := os.ReadFile(filepath.Join(p.dir, "lib/a.ex")); string(text) != "changed" {
		t.Errorf("it has %q", text)
	}
}

// A policy that closes a folder is not to be asked what is in it, in whatever way a path is written.
func TestAPathOfTheCodebaseDoesNotTellWhatIsInAClosedFolder(t *testing.T) {
	p := newPeer(t, `policy: {rules: [{name: closed, effect: deny, paths: [offered/closed]}]}`)
	p.write(map[string]string{"closed/there.txt": "x\n", "open/there.txt": "x\n"})
	for _, subject := range []string{"tools.file.read", "tools.file.delete", "tools.execute.statFile", "tools.file.list", "tools.code.list"} {
		said := map[string]string{}
		for _, path := range []string{"/closed/there.txt", "/closed/none.txt", "closed/there.txt", "closed/none.txt"} {
			answer, _ := p.ask(subject, `{"path": "`+path+`"}`).(map[string]any)
			said[path] = strings.NewReplacer("there", "X", "none", "X").Replace(fmt.Sprint(answer["error"]))
		}
		if said["/closed/there.txt"] != said["/closed/none.txt"] || said["closed/there.txt"] != said["closed/none.txt"] || !strings.HasPrefix(said["/closed/none.txt"], "AccessDenied: ") {
			t.Errorf("%s tells: %q", subject, said)
		}
	}
	if answer, _ := p.ask("tools.file.read", `{"path": "/open/there.txt"}`).(map[string]any); answer["data"] != "x\n" {
		t.Errorf("a folder that is open: %v", answer)
	}
}
