package builtin_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/internal/kit"
)

// twoCodebases serves two roots with files of the same names, and some that only one of them has.
func twoCodebases(t *testing.T, ambiguous func(dir string) string) (dir, url string) {
	t.Helper()
	dir = kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	for name, text := range map[string]string{
		"one/lib/a.py": "import lib.b\n\n\ndef handler_of_requests():\n    return 'root one'\n", "one/lib/b.py": "def other():\n    return 'root one'\n",
		"two/lib/a.py": "import lib.b\n\n\ndef handler_of_requests():\n    return 'root two'\n", "two/lib/b.py": "def other():\n    return 'root two'\n",
		"one/requirements.txt": "# root one\nrequests\n", "two/requirements.txt": "# root two\nrequests\n",
		"one/lib/requirements.txt": "# root one\nrequests\n", "two/lib/requirements.txt": "# root two\nrequests\n", "two/only/requirements.txt": "# root two\nrequests\n",
		"two/only/c.py": "import lib.b\n\n\ndef alone_in_its_folder():\n    return 'root two'\n", "one/top.py": "def top():\n    return 'root one'\n",
	} {
		path := filepath.Join(dir, name)
		kit.Write(t, path, text)
	}
	// The first root contains a folder whose path reads like that of a root itself.
	same := filepath.Join(dir, "one", ambiguous(dir), "same.py")
	kit.OK(t, errors.Join(os.MkdirAll(filepath.Dir(same), 0o755),
		os.WriteFile(same, []byte("def b():\n    return 'root one'\n"), 0o644)))
	cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(`
sources: [{name: files, protocol: builtin, roots: [{path: one, write: true}, {path: two, write: true}], code: {rate: -1}, shell: {allow: [ls, cat]}}]
doors: {nats: {listen: "127.0.0.1:0"}}
`)))(t)
	return dir, serve(t, cfg)
}

func TestPathsFromAnswersWorkInTheNextRequest(t *testing.T) {
	for name, ambiguous := range map[string]func(string) string{
		"plain":     func(string) string { return "sub" },
		"ambiguous": func(dir string) string { return dir + "/two/lib" },
	} {
		t.Run(name, func(t *testing.T) { usePaths(t, ambiguous) })
	}
}

func usePaths(t *testing.T, ambiguous func(dir string) string) {
	dir, url := twoCodebases(t, ambiguous)
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
		`{"language": "python"}`: "root",
	} {
		add("tools.code.list", request, root)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/paths.py", url, token)
	cmd.Stdin = &requests
	out, err := cmd.CombinedOutput()
	if lines := strings.Count(string(out), "\n"); err != nil || lines != 1 || !strings.HasSuffix(string(out), " paths were used\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// data makes a request over NATS like the known client: an answer is {data, error}.
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
		kit.OK(p.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
	}
}

func TestSearchHonoursMinimumSimilarity(t *testing.T) {
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

// The client of the contract asks for "all indexed code files", with any of codebase_id, language and pattern, or none.
func TestCodeListFiltersAreOptional(t *testing.T) {
	p := newPeer(t)
	const all = "/lib/a.ex /src/b.ts /src/sub/c.ts"
	p.write(map[string]string{
		"lib/a.ex": "defmodule A do\nend\n", "src/b.ts": "let b = 1\n", "src/sub/c.ts": "let c = 1\n", ".gitignore": "build\n", "build/d.ts": "", ".hidden": "", ".env": "A=1\n",
	})
	for request, want := range map[string]string{
		`{}`: all, `{"codebase_id": "my-proj"}`: all, `{"codebaseId": "my-proj"}`: all, `{"language": null, "codebase_id": null}`: all,
		`{"codebase_id": "my-proj", "language": "typescript"}`: "/src/b.ts /src/sub/c.ts", `{"language": "Elixir"}`: "/lib/a.ex",
		`{"codebase_id": "my-proj", "pattern": "*.ts"}`:     "/src/b.ts /src/sub/c.ts",
		`{"codebase_id": "my-proj", "pattern": "src/*.ts"}`: "/src/b.ts",
		`{"pattern": "*.ex"}`:                               "/lib/a.ex", `{"path": "src/sub"}`: "src/sub/c.ts",
		`{"codebase_id": "my-proj", "path": "/src/sub"}`: "/src/sub/c.ts", `{"path": "DIR/src/sub"}`: "DIR/src/sub/c.ts",
		`{"codebase_id": "my-proj", "language": "cobol"}`: "",
	} {
		list, problem := p.data("tools.code.list", request)
		var paths []string
		for _, one := range list {
			paths = append(paths, one["path"].(string))
			if one["type"] != "file" || one["size"].(float64) <= 0 || one["language"] == "" {
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

// A path that starts with a slash and is below no root is a path of the codebase if the codebase has its first folder. So
// new files can be written by the same form of path as existing ones.
func TestSlashPathResolvesInsideTheCodebase(t *testing.T) {
	p := newPeer(t)
	p.write(map[string]string{"lib/a.ex": "x\n"})
	for subject, requests := range map[string][]string{
		"tools.file.write": {`{"path": "/etc/passwd", "content": "x"}`, `{"path": "/none/new.ex", "content": "x"}`,
			`{"path": "/.env", "content": "x"}`},
		"tools.execute.makeFolder": {`{"path": "/etc/new"}`},
		"tools.execute.moveFile":   {`{"from": "lib/a.ex", "to": "/etc/a.ex"}`},
		"tools.file.delete":        {`{"path": "/etc/none.ex"}`, `{"path": "/"}`},
		"tools.file.read":          {`{"path": "/etc/passwd"}`, `{"path": "/../etc/passwd"}`, `{"path": "/.env"}`},
		"tools.file.list":          {`{"path": "/"}`, `{"path": "/etc"}`, `{"path": "//"}`},
		"tools.execute.globFiles":  {`{"pattern": "*", "path": "/"}`},
		"tools.execute.editFile":   {`{"path": "/etc/passwd", "old": "x", "new": "y"}`},
		"tools.shell.exec": {`{"command": "ls", "args": ["/etc"]}`, `{"command": "ls", "cwd": "/etc"}`,
			`{"command": "ls", "args": ["/etc/passwd"]}`},
	} {
		for _, request := range requests {
			answer, _ := p.ask(subject, request).(map[string]any)
			if !strings.HasPrefix(fmt.Sprint(answer["error"]), "AccessDenied: ") {
				t.Errorf("%s %s: %v", subject, request, answer)
			}
		}
	}
	for _, c := range []struct{ subject, request, want string }{
		{"tools.file.write", `{"path": "/lib/a.ex", "content": "changed"}`, `{"bytes_written": 7}`},
		{"tools.file.write", `{"path": "/lib/new.ex", "content": "new"}`, `{"bytes_written": 3}`},
		{"tools.file.write", `{"path": "/lib/deep/er/new.ex", "content": "deep"}`, `{"bytes_written": 4}`},
		{"tools.file.write", `{"path": "/top.ex", "content": "top"}`, `{"bytes_written": 3}`},
		{"tools.file.list", `{"path": "/lib", "recursive": true, "pattern": "*.ex"}`,
			`[{"path": "/lib/a.ex", "size": 7, "type": "file"}, {"path": "/lib/deep/er/new.ex", "size": 4, "type": "file"}, {"path": "/lib/new.ex", "size": 3, "type": "file"}]`},
		{"tools.file.list", `{"path": "lib/deep"}`, `[{"path": "lib/deep/er", "size": 0, "type": "directory"}]`},
		{"tools.file.list", `{"path": "DIR/lib/deep/"}`, `[{"path": "DIR/lib/deep/er", "size": 0, "type": "directory"}]`},
		{"tools.file.read", `{"path": "/top.ex"}`, `"top"`},
		{"tools.execute.makeFolder", `{"path": "/lib/made"}`, `{"created": true}`},
		{"tools.execute.moveFile", `{"from": "/top.ex", "to": "/lib/made/top.ex"}`, `{"moved": true}`},
		{"tools.file.delete", `{"path": "/lib/made/top.ex"}`, `{"deleted": true}`},
		{"tools.shell.exec", `{"command": "ls", "args": ["/lib/deep/er"], "cwd": "/lib"}`,
			`{"stdout": "new.ex\n", "stderr": "", "exit_code": 0}`},
		{"tools.shell.exec", `{"command": "ls", "cwd": "/lib/deep"}`, `{"stdout": "er\n", "stderr": "", "exit_code": 0}`},
		{"tools.shell.exec", `{"command": "grep", "args": ["-c", "/lib", "/lib/new.ex"]}`,
			`{"stdout": "0\n", "stderr": "", "exit_code": 1}`},
		{"tools.shell.exec", `{"command": "head", "args": ["--bytes=2", "/lib/new.ex"]}`, `{"stdout": "ne", "stderr": "", "exit_code": 0}`},
		{"tools.shell.exec", `{"command": "cp", "args": ["/lib/new.ex", "/lib/copy.ex"]}`, `{"stdout": "", "stderr": "", "exit_code": 0}`},
		{"tools.shell.exec", `{"command": "cp", "args": ["/lib/new.ex", "--target-directory=/lib/made"]}`,
			`{"stdout": "", "stderr": "", "exit_code": 0}`},
		{"tools.shell.exec", `{"command": "ls", "args": ["/lib/made"]}`, `{"stdout": "new.ex\n", "stderr": "", "exit_code": 0}`},
		{"tools.file.read", `{"path": "/lib/copy.ex"}`, `"new"`},
	} {
		answer, _ := p.ask(c.subject, c.request).(map[string]any)
		if diff := cmp.Diff(parse(t, c.want), answer["data"]); diff != "" || answer["error"] != nil {
			t.Errorf("%s %s: %v\n%s", c.subject, c.request, answer["error"], diff)
		}
	}
	for subject, request := range map[string]string{
		"tools.file.read": `{"path": "/lib/none.ex"}`, "tools.file.delete": `{"path": "/lib/none.ex"}`,
		"tools.file.list": `{"path": "/lib/none"}`,
	} {
		if answer, _ := p.ask(subject, request).(map[string]any); !strings.HasPrefix(fmt.Sprint(answer["error"]), "NotFound: /lib/none") {
			t.Errorf("%s %s: %v", subject, request, answer)
		}
	}
	// A text that occurs twice may be a pattern and a path: nothing is guessed.
	if answer, _ := p.ask("tools.shell.exec",
		`{"command": "grep", "args": ["-rc", "/lib", "/lib"]}`).(map[string]any); !strings.HasPrefix(fmt.Sprint(answer["error"]), "AccessDenied: /lib ") {
		t.Errorf("a pattern like a path: %v", answer)
	}
}

// If a policy closes a folder, no form of a path may reveal what is in it.
func TestNoFormOfPathRevealsAClosedFolder(t *testing.T) {
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
