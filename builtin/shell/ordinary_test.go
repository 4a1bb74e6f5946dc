package shell

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

// ordinary are everyday commands. Each is allowed by its program's name alone, and runs if the program is installed.
func ordinary() [][]string {
	return [][]string{
		{"git", "status"}, {"git", "status", "-sb"}, {"git", "status", "--porcelain=v2", "--branch"}, {"git", "log", "--oneline", "-5"}, {"git", "log", "-n", "3", "--stat", "--", "a.txt"},
		{"git", "log", "--since=2 weeks ago", "--author=Tester", "--pretty=format:%h %s"}, {"git", "log", "-p", "-1", "HEAD"}, {"git", "log", "--graph", "--all", "--decorate"}, {"git", "log", "HEAD~1..HEAD"},
		{"git", "diff"}, {"git", "diff", "HEAD~1", "--", "a.txt"}, {"git", "diff", "--cached", "--name-only"}, {"git", "diff", "HEAD~1..HEAD", "--stat"}, {"git", "diff", "-U10", "-w"},
		{"git", "show"}, {"git", "show", "HEAD:a.txt"}, {"git", "show", "--stat", "HEAD"}, {"git", "show", "--name-only", "--format="}, {"git", "blame", "a.txt"}, {"git", "blame", "-L1,2", "a.txt"},
		{"git", "branch"}, {"git", "branch", "-a", "-v"}, {"git", "branch", "--show-current"}, {"git", "branch", "topic"}, {"git", "checkout", "-q", "topic"}, {"git", "switch", "-q", "main"}, {"git", "tag", "-l"},
		{"git", "rev-parse", "HEAD"}, {"git", "rev-parse", "--short", "HEAD"}, {"git", "rev-parse", "--abbrev-ref", "HEAD"}, {"git", "rev-parse", "--show-toplevel"}, {"git", "ls-files"}, {"git", "ls-tree", "-r", "--name-only", "HEAD"},
		{"git", "grep", "-n", "one"}, {"git", "grep", "-i", "-e", "ONE", "--", "*.txt"}, {"git", "add", "b.txt"}, {"git", "add", "-A"}, {"git", "commit", "-m", "a message: with words"}, {"git", "commit", "--amend", "--no-edit"},
		{"git", "stash", "list"}, {"git", "stash"}, {"git", "reset", "-q", "--hard", "HEAD"}, {"git", "restore", "a.txt"}, {"git", "checkout", "--", "a.txt"}, {"git", "merge", "topic"}, {"git", "remote", "-v"}, {"git", "config", "user.name"},
		{"git", "config", "--get", "user.email"}, {"git", "config", "--list"}, {"git", "describe", "--always"}, {"git", "shortlog", "-sn", "HEAD"}, {"git", "reflog"}, {"git", "cat-file", "-p", "HEAD"}, {"git", "--version"}, {"git", "-C", "sub", "status"},
		{"git", "--no-pager", "log", "-1"}, {"git", "clean", "-nd"}, {"git", "merge-base", "HEAD", "HEAD~1"}, {"git", "check-ignore", "-v", "--no-index", "a.txt"}, {"git", "mv", "b.txt", "b2.txt"}, {"git", "mv", "b2.txt", "b.txt"}, {"git", "rm", "--cached", "-q", "b.txt"}, {"git", "reset", "-q"},
		{"ls"}, {"ls", "-la"}, {"ls", "-lah", "sub"}, {"ls", "-R"}, {"ls", "-1tr"}, {"ls", "--color=never", "-d", "sub"}, {"cat", "a.txt"}, {"cat", "-n", "a.txt", "b.txt"}, {"head", "-2", "a.txt"}, {"head", "-n", "2", "a.txt"}, {"tail", "-n", "1", "a.txt"}, {"tail", "-n+2", "a.txt"},
		{"wc", "-l", "a.txt"}, {"wc", "a.txt", "b.txt"}, {"sort", "a.txt"}, {"sort", "-rn", "-k", "2", "a.txt"}, {"sort", "-u", "-o", "sorted.txt", "a.txt"}, {"uniq", "-c", "a.txt"}, {"cut", "-d", ":", "-f", "1,3-5", "a.txt"}, {"tr", "a-z", "A-Z"}, {"nl", "a.txt"},
		{"grep", "one", "a.txt"}, {"grep", "-rn", "one", "."}, {"grep", "-rin", "one", "--include=*.txt", "."}, {"grep", "-c", "-E", "one|two", "a.txt"}, {"grep", "-A", "1", "-B1", "two", "a.txt"}, {"grep", "-l", "-r", "four", "sub"}, {"grep", "-v", "^$", "a.txt"}, {"grep", "-o", "-P", `t\w+`, "a.txt"},
		{"rg", "one"}, {"rg", "-n", "-i", "ONE", "-g", "*.txt"}, {"rg", "--files"}, {"rg", "-t", "go", "func"}, {"find", "."}, {"find", ".", "-name", "*.txt"}, {"find", ".", "-type", "f", "-not", "-path", "./.git/*"}, {"find", "sub", "-maxdepth", "1", "-mtime", "-7", "-size", "-10k"},
		{"find", ".", "(", "-name", "*.go", "-o", "-name", "*.txt", ")", "-print"}, {"find", ".", "-name", "*.txt", "-newer", "a.txt", "-printf", "%p\\n"}, {"sed", "-n", "1,2p", "a.txt"}, {"sed", "s/one/1/g", "a.txt"}, {"sed", "-i", "s/two/2/", "b.txt"}, {"sed", "-E", "-e", "s/(o)ne/\\1/", "a.txt"},
		{"awk", "{print $1}", "a.txt"}, {"awk", "-F:", "$1 > 5 {print $1, NR}", "a.txt"}, {"awk", "BEGIN{x=1} /one/ || /two/ {n++} END{print n+x}", "a.txt"}, {"jq", "-r", ".name", "package.json"}, {"jq", ".scripts | keys", "package.json"}, {"diff", "-u", "a.txt", "b.txt"}, {"diff", "-r", "sub", "sub"}, {"cmp", "a.txt", "a.txt"},
		{"file", "a.txt"}, {"stat", "-c", "%s", "a.txt"}, {"du", "-sh", "."}, {"df", "-h", "."}, {"basename", "/x/y.txt", ".txt"}, {"dirname", "/x/y"}, {"realpath", "a.txt"}, {"readlink", "-f", "a.txt"}, {"pwd"}, {"echo", "hello", "-world"}, {"printf", "%s\n", "x"}, {"true"}, {"test", "-f", "a.txt"},
		{"date", "+%Y-%m-%d"}, {"date", "-u"}, {"seq", "1", "3"}, {"sleep", "0"}, {"whoami"}, {"id", "-u"}, {"uname", "-a"}, {"which", "ls"}, {"md5sum", "a.txt"}, {"sha256sum", "a.txt", "b.txt"}, {"base64", "a.txt"}, {"xxd", "-l", "16", "a.txt"}, {"od", "-c", "a.txt"}, {"strings", "a.txt"}, {"comm", "a.txt", "a.txt"}, {"column", "-t", "a.txt"},
		{"mkdir", "-p", "new/deep"}, {"touch", "new/x"}, {"cp", "a.txt", "new/a.txt"}, {"cp", "-r", "sub", "new/"}, {"mv", "new/a.txt", "new/b.txt"}, {"ln", "-s", "b.txt", "new/l"}, {"chmod", "+x", "new/x"}, {"chmod", "644", "new/x"}, {"rm", "new/x"}, {"rm", "-rf", "new"}, {"tee", "out.txt"}, {"truncate", "-s", "10", "out.txt"},
		{"tar", "-czf", "out.tgz", "sub", "a.txt"}, {"tar", "-tzf", "out.tgz"}, {"mkdir", "un"}, {"tar", "-xzf", "out.tgz", "-C", "un"}, {"gzip", "-k", "out.txt"}, {"zcat", "out.txt.gz"}, {"gunzip", "-c", "out.txt.gz"}, {"zip", "-qr", "out.zip", "sub"}, {"unzip", "-l", "out.zip"}, {"unzip", "-qo", "out.zip", "-d", "un"}, {"dd", "if=a.txt", "of=un/dd", "bs=1k", "count=1", "status=none"},
		{"python3", "--version"}, {"python3", "script.py"}, {"python3", "-u", "script.py", "--flag", "value", "a.txt"}, {"python3", "-m", "unittest", "-v", "test_ok"}, {"python3", "-m", "json.tool", "package.json"}, {"python3", "-m", "py_compile", "script.py"},
		{"node", "--version"}, {"node", "ok.js", "arg"}, {"node", "--check", "ok.js"}, {"perl", "ok.pl"}, {"npm", "--version"}, {"npm", "ls"}, {"npm", "test"}, {"npm", "run", "ok"}, {"npm", "run", "ok", "--", "--verbose"}, {"npm", "pkg", "get", "name"},
		{"go", "version"}, {"go", "env", "GOOS"}, {"go", "list", "./..."}, {"go", "list", "-f", "{{.Name}}", "."}, {"gofmt", "-l", "."}, {"gofmt", "-d", "main.go"}, {"make", "-f", "ok.mk", "ok"}, {"make", "--version"}, {"pip", "--version"},
	}
}

// alsoOrdinary are commands of which only the verdict is checked: they build for a while, or need what is not here.
func alsoOrdinary() [][]string {
	return [][]string{
		{"go", "build", "./..."}, {"go", "build", "-o", "bin/app", "."}, {"go", "vet", "./..."}, {"go", "test", "./..."}, {"go", "test", "-race", "-run", "TestX/sub", "-count=1", "-v", "./pkg/..."}, {"go", "test", "-bench=.", "-benchmem", "."}, {"go", "test", "-coverprofile=cover.out", "./..."},
		{"go", "test", "-timeout", "30s", "-tags", "x,y", ".", "-args", "-update"}, {"go", "run", "."}, {"go", "run", "./cmd/x", "--flag", "y"}, {"go", "mod", "tidy"}, {"go", "mod", "graph"}, {"go", "doc", "fmt.Println"}, {"go", "fmt", "./..."}, {"go", "build", "-ldflags=-s -w -X main.v=1", "./..."}, {"go", "vet", "-tags=x", "./a", "./b"},
		{"npm", "test", "--silent"}, {"npm", "run", "build:prod"}, {"npm", "start"}, {"npm", "--prefix", "sub", "test"}, {"npm", "ls", "--depth=0", "--json"}, {"npm", "why", "x"},
		{"python3", "-m", "pytest", "-x", "-q", "tests/test_a.py::test_b", "-k", "not slow"}, {"pytest", "-v", "--tb=short", "--maxfail=1", "tests"}, {"python3", "-W", "ignore", "sub/tool.py"}, {"pip", "list"}, {"pip", "show", "requests"},
		{"cargo", "--version"}, {"cargo", "build", "--release"}, {"cargo", "test", "name", "--", "--nocapture"}, {"cargo", "check", "--all-features"}, {"cargo", "fmt", "--check"}, {"cargo", "tree", "--depth", "1"}, {"cargo", "metadata", "--no-deps", "--format-version", "1"}, {"make"}, {"make", "-j4", "test"}, {"make", "-C", "sub", "build/x"},
		{"tree", "-L", "2"}, {"tree", "-a", "-I", "node_modules"}, {"ruby", "ok.rb"}, {"php", "ok.php"}, {"lua", "ok.lua"}, {"git", "cherry-pick", "HEAD~1"}, {"git", "revert", "--no-edit", "HEAD"}, {"git", "apply", "--check", "x.patch"}, {"git", "tag", "-a", "v1", "-m", "one"}, {"git", "branch", "-d", "topic"}, {"git", "init", "sub/new"},
	}
}

func TestOrdinaryCommandsAreAllowed(t *testing.T) {
	tooltest.NoLeaks(t)
	cases := slices.Concat(ordinary(), alsoOrdinary())
	var programs []string
	for _, c := range cases {
		programs = append(programs, c[0])
	}
	slices.Sort(programs)
	b := newBench(t, Options{Allow: slices.Compact(programs), Timeout: patient})
	b.plantOrdinary(t)
	for _, c := range cases {
		kit.Check(t, kit.Err(b.judge(b.root, c...)), c)
	}
	ran := 0
	for _, c := range ordinary() {
		if _, err := exec.LookPath(c[0]); err != nil {
			continue
		}
		ran++
		r, err := b.exec(c[0], c[1:]...)
		if err != nil {
			t.Errorf("%q: %v", c, err)
		} else if r.ExitCode != 0 && !(slices.Contains([]string{"diff", "rg", "git"}, c[0]) && r.ExitCode == 1) {
			t.Errorf("%q: exit code %d: %s%s", c, r.ExitCode, r.Stdout, r.Stderr)
		}
		if strings.Contains(r.Stdout+r.Stderr, secretText) {
			t.Errorf("%q showed the secret", c)
		}
	}
	t.Logf("%d ordinary commands, %d of them run", len(cases), ran)
}

func (b *bench) plantOrdinary(t *testing.T) {
	t.Helper()
	for name, content := range map[string]string{
		"package.json": `{"name":"x","version":"1.0.0","scripts":{"ok":"true","test":"echo tested","start":"true"}}`, "script.py": "import sys; print(sys.argv[1:])\n",
		"test_ok.py": "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n", "ok.js": "console.log(1)\n", "ok.pl": "print 1\n", "ok.mk": "ok:\n\t@true\n",
		"go.mod": "module example.com/x\n\ngo 1.22\n", "main.go": "package main\n\nfunc main() {}\n",
	} {
		b.write(t, name, content)
	}
	b.repository(t)
}

// patient is the timeout of tests in which go compiles, on any machine.
const patient = config.Duration(10 * time.Minute)

func TestAReadOnlyRootIsNotWritten(t *testing.T) {
	b := newBench(t, Options{Timeout: patient, Allow: []string{"git", "go", "tee", "sed", "tar", "sort", "gzip", "touch", "npm", "rm", "cp", "unzip", "ls"}, Rules: []Rule{{Program: "git", Network: true}}})
	b.tool(t, "git", "init", "-q", b.readOnly)
	b.write(t, "../readonly/go.mod", "module example.com/x\n\ngo 1.22\n")
	b.write(t, "../readonly/x.go", "package   x\n\nfunc F() {}\n") // without imports, so that go compiles no library
	before := b.world(t)
	run := func(args ...string) (result, error) {
		return b.invoke(call(execName, execArgs{Command: args[0], Args: args[1:], Cwd: b.readOnly}))
	}
	for _, args := range [][]string{
		{"git", "commit", "--allow-empty", "-m", "x"}, {"git", "init", "new"}, {"git", "add", "."}, {"git", "checkout", "-b", "x"}, {"git", "branch", "x"}, {"git", "tag", "x"}, {"git", "fetch", "origin"}, {"git", "apply", "r.txt"},
		{"go", "build"}, {"go", "build", "-o", "x"}, {"go", "mod", "tidy", "-go=1.21"}, {"go", "fmt"}, {"go", "test", "-coverprofile=x"}, {"tee", "x"}, {"sed", "-i", "s/a/b/", "r.txt"}, {"tar", "-xf", "r.txt"}, {"tar", "-cf", "x", "r.txt"}, {"sort", "-o", "x", "r.txt"}, {"gzip", "r.txt"},
		{"touch", "x"}, {"rm", "r.txt"}, {"cp", "r.txt", "x"}, {"unzip", "r.txt"}, {"git", "-C", b.readOnly, "add", "."},
	} {
		if r, err := run(args...); err == nil && r.ExitCode == 0 && args[0] != "go" {
			t.Errorf("%q: %+v", args, r)
		} else if err != nil && !strings.Contains(err.Error(), "only offered for reading") {
			t.Errorf("%q: %v", args, err)
		}
		kit.MustEqual(t, b.world(t), before, "%q changed", args)
	}
	for _, args := range [][]string{{"ls"}, {"git", "branch"}, {"git", "tag", "-l", "v*"}, {"gzip", "-c", "r.txt"}, {"cp", "r.txt", filepath.Join(b.root, "copy")}} {
		if r, err := run(args...); err != nil || r.ExitCode != 0 {
			t.Errorf("%q: %+v, %v", args, r, err)
		}
	}
}
