package shell

import (
	"strings"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
)

type ruleCase struct {
	o       Options
	allowed []string // commands, split at spaces
	refused []string
}

func ruleCases() map[string]ruleCase {
	return map[string]ruleCase{
		"a name": {
			Options{Allow: []string{"git"}},
			[]string{"git status", "git log -3"}, []string{"ls", "git push", "git -c a=b status"},
		},
		"a name with words": {
			Options{Allow: []string{"git status", "git log --oneline", "go test"}},
			[]string{"git status", "git -C sub status -s", "git log --oneline", "git log -3 --oneline", "go test ./..."},
			[]string{"git log", "git diff", "go build ./...", "git -C sub diff"},
		},
		"deny wins": {
			Options{Allow: []string{"git", "rm"}, Deny: []string{"git commit --amend", "git stash p*", "rm -f"}},
			[]string{"git commit -m x", "git stash list", "rm a.txt"}, []string{"git commit --amend --no-edit", "git -C sub commit -m x --amend", "git stash pop", "rm -rf sub", "rm a.txt -f"},
		},
		"deny a program": {
			Options{Allow: []string{"git", "rm"}, Deny: []string{"rm"}},
			[]string{"git status"}, []string{"rm a.txt"},
		},
		"subcommands": {
			Options{Rules: []Rule{{Program: "git", Subcommands: []string{"status", "stash list"}}}},
			[]string{"git status -s", "git stash list"}, []string{"git log", "git stash pop"},
		},
		"arguments that are denied": {
			Options{Rules: []Rule{{Program: "ls", DenyArgs: []string{"-R", "--recurs*", "*secret*"}}}},
			[]string{"ls -l", "ls sub"}, []string{"ls -R", "ls -lR", "ls --recursive", "ls my-secrets"},
		},
		"more arguments": {
			Options{Rules: []Rule{{Program: "git", AllowArgs: []string{"--ext-diff", "--word-diff-regex=*"}}}},
			[]string{"git diff --ext-diff", "git diff --word-diff-regex=[a-z]"}, []string{"git grep -Ox one", "git diff --word-diff-regex=/etc/passwd"},
		},
		"how many": {
			Options{Rules: []Rule{{Program: "ls", MaxArgs: 2}}},
			[]string{"ls -l sub"}, []string{"ls -l -a sub"},
		},
		"an unknown program": {
			Options{Allow: []string{"mytool"}},
			nil, []string{"mytool", "mytool x", "mytool --version"},
		},
		"with arguments that a rule names": {
			Options{Rules: []Rule{{Program: "mytool", AllowArgs: []string{"--check", "*.txt"}}}},
			[]string{"mytool", "mytool --check a.txt", "mytool sub/c.txt"}, []string{"mytool --fix", "mytool a.txt --fix", "mytool /etc/x.txt", "mytool ../x.txt", "mytool --check=/etc/passwd"},
		},
		"with trust": {
			Options{Rules: []Rule{{Program: "mytool", Trust: true}, {Program: "xargs", Trust: true}}},
			[]string{"mytool --anything -x y", "xargs ls", "mytool --in=a.txt", "mytool https://example.com/etc/x"},
			[]string{"mytool /etc/passwd", "mytool --in=/etc/passwd", "mytool -I/etc", "mytool ../x", "mytool .env", "mytool x=.env", "mytool @/etc/passwd", "mytool ~/x", "mytool file:///etc/passwd", "mytool a:/etc/b", "mytool sub/../../x", "mytool -x../../y"},
		},
		"a runner of programs": {
			Options{Allow: []string{"env", "xargs", "sudo"}},
			nil, []string{"env", "env ls", "xargs ls", "sudo ls"},
		},
		"a runner with a rule": {
			Options{Rules: []Rule{{Program: "timeout", AllowArgs: []string{"10", "ls"}}}},
			[]string{"timeout 10 ls"}, []string{"timeout 10 rm", "timeout 20 ls"},
		},
		"the network": {
			Options{Rules: []Rule{{Program: "git", Network: true}}},
			[]string{"git fetch origin main", "git push -u origin topic", "git clone https://example.com/a/b.git sub/b", "git pull --ff-only"},
			[]string{"git fetch ext::sh", "git fetch ssh://x/y", "git clone https://x/y /tmp/z", "git fetch --upload-pack=x origin", "git clone https://u:p@x/y z",
				"git clone --config filter.a.smudge=x https://x/y z", "git clone --conf=filter.a.smudge=x https://x/y z", "git clone -cfilter.a.smudge=x https://x/y z"},
		},
		"code of python": {
			Options{Allow: []string{"python3"}},
			[]string{"python3 a.py", "python3 --version", "python3 -m unittest"}, []string{"python3 -c x", "python3", "python3 -", "python3 -m http.server"},
		},
		"code in arguments and on standard input": {
			Options{Allow: []string{"python3", "node", "perl", "php", "ruby", "make"}, Rules: []Rule{{Program: "sh", Code: CodeTree}}},
			[]string{"python3 -u -B a.py -c x", "python3 -OO -m json.tool a.json", "python3 -Wignore a.py", "node --no-warnings a.js -e", "node --max-old-space-size=100 a.js", "perl -w a.pl -e", "perl -0777 -n a.pl", "make -j4 -k test", "make -s V=1 CFLAGS=-O2 build/x", "make -C sub -f ok.mk", "sh -eu a.sh -c"},
			[]string{
				"python3 --check-hash-based-pycs always -c x", "python3 --check-hash-based-pycs always -", "python3 -mtimeit json.tool", "python3 -mcode json.tool", "python3 -um timeit", "python3 -W -c x", "python3 -Z a.py",
				"node --title x -e x", "node --title x a.js", "node --conditions x -", "node --experimental-loader=data:text/javascript,x a.js", "node --test-reporter=data:text/javascript,x --test", "node --max-old-space-size -e x", "node --import=data:x --test",
				"perl -0e x", "perl -l012ne x", "perl -F/x/e a.pl", "perl -S a.pl", "php -d auto_prepend_file=x a.php", "php -f -", "ruby -C sub -e x",
				"make -E x", "make -1E x", "make X:=$(shell", "make X:=y", "make X!=id", "make X=$(shell", "make X=`id`", "make -f -", "make -f-", "make --file=-", "make -kf -", "make MAKEFLAGS=-k", "make SHELL=sh", "make --eva=x", "make --unknown", "make -Z",
				"sh +x -c x", "sh -o -c x", "sh --unknown a.sh",
			},
		},
		"no code": {
			Options{Rules: []Rule{{Program: "python3", Code: CodeNone}, {Program: "go", Code: CodeNone}, {Program: "npm", Code: CodeNone}, {Program: "node", Code: CodeNone}, {Program: "make", Code: CodeNone}, {Program: "cargo", Code: CodeNone}}},
			[]string{"python3 --version", "go list ./...", "npm ls", "node --version", "cargo --version"}, []string{"python3 a.py", "python3 -m unittest", "python3 -m json.tool a.json", "go vet ./...", "go build ./...", "cargo metadata", "cargo tree", "go test ./...", "go run .", "npm test", "npm run x", "npm version patch", "go list -export .", "go list -compiled ./...", "node a.js", "node --test", "make", "make x"},
		},
		"any code": {
			Options{Rules: []Rule{{Program: "python3", Code: CodeAny}, {Program: "go", Code: CodeAny}, {Program: "sh", Code: CodeAny}}},
			[]string{"python3 -m http.server", "python3", "python3 -", "go generate ./...", "sh a.sh", "sh"}, []string{"python3 /etc/x.py", "go test -exec=x"},
		},
		"shells run scripts only where a rule says so": {
			Options{Allow: []string{"bash"}, Rules: []Rule{{Program: "sh", Code: CodeTree}}},
			[]string{"sh a.sh", "sh -e a.sh x y"}, []string{"bash a.sh", "sh", "sh -c x", "sh -v", "bash --version x"},
		},
	}
}

func TestRules(t *testing.T) {
	for name, c := range ruleCases() {
		t.Run(name, func(t *testing.T) {
			b := newJudged(t, c.o)
			judge := func(line string) error {
				args := strings.Fields(line)
				if !b.Tools.o.mentions(args[0]) {
					return denied(args[0])
				}
				_, err := b.judge(b.root, args...)
				return err
			}
			for _, line := range c.allowed {
				kit.Check(t, judge(line), line)
			}
			for _, line := range c.refused {
				kit.Refused(t, judge(line), tool.CodeAccessDenied, "", line)
			}
		})
	}
}

func TestARefusalSaysWhyAndWhatToDo(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"git", "env", "python3", "mytool", "cat", "find", "tar"}})
	for line, words := range map[string][]string{
		"git -c a=b status": {"Command 'git' is not allowed by security policy with -c", "known to be harmless"},
		"git push":          {"push, which reaches the network", "network: true"},
		"git frobnicate":    {`the subcommand "frobnicate"`},
		"env ls":            {"env runs other programs", "allow_args or trust"},
		"python3 -c x":      {"-c, which runs code", "code: any"},
		"python3 -":         {"code: any"},
		"mytool":            {"nothing is known of what mytool does", "allow_args or trust"},
		"cat ../outside/x":  {"../outside/x is not allowed", "outside"},
		"cat .env":          {".env is not allowed", "secrets"},
		"find . -exec ls ;": {"-exec, which runs another program"},
		"tar xf a.tar":      {"letters need their dash"},
		"git grep -Ox one":  {"-O, which runs another program"},
	} {
		args := strings.Fields(line)
		_, err := b.judge(b.root, args...)
		refused(t, err, tool.CodeAccessDenied, words...)
	}
}

func TestTheConfigIsReadStrictly(t *testing.T) {
	var o Options
	err := config.DecodeYAML("shell.yaml", []byte(`{allow: [ls, git status], deny: [git push], env: {A: b}, caller_env: [MOOD], path: [/usr/bin], timeout: 5s, max_output: 100, line: true,
  rules: [{program: python3, code: any}, {program: git, subcommands: [log], allow_args: [-x], deny_args: [-y], max_args: 3, network: true, trust: false}],
  walls: {cpu_time: 10s, memory: 10000000, processes: 5, file_size: 10, files: 7}}`), &o)
	if err != nil || o.Rules[0].Code != CodeAny || !o.Rules[1].Network || o.Walls.Files != 7 || !o.Line || time.Duration(o.Timeout) != 5*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{`{alow: [ls]}`, `{rules: [{program: x, code: all}]}`, `{allow: ls: x}`, `{walls: {ram: 1}}`, `{timeout: -1s}`} {
		kit.Fails(t, config.DecodeYAML("shell.yaml", []byte(bad), new(Options)), "", "%s was read", bad)
	}
}
