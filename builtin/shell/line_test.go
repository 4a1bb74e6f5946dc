package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/config/offlimits"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func lineBench(t testing.TB) *bench {
	return newJudged(t, Options{Allow: []string{"cat", "sort", "head", "wc", "grep", "echo", "printf", "true", "false", "ls", "tee", "pwd", "yes", "sleep", "git", "find", "sed"}, Rules: []Rule{{Program: "sh", Code: CodeTree}}, Line: true})
}

func TestALineRunsAsAShellWouldRunIt(t *testing.T) {
	tooltest.NoLeaks(t)
	b := lineBench(t)
	b.write(t, "err.sh", "echo out; echo err >&2; exit 3\n")
	for line, want := range map[string]result{
		"echo hello":                                    {Stdout: "hello\n"},
		"cat a.txt | sort | head -1":                    {Stdout: "one\n"},
		"yes | head -2":                                 {Stdout: "y\ny\n"},
		"true && echo yes || echo no":                   {Stdout: "yes\n"},
		"false && echo yes || echo no":                  {Stdout: "no\n"},
		"false || true && echo x":                       {Stdout: "x\n"},
		"! false && echo x":                             {Stdout: "x\n"},
		"false; echo x":                                 {Stdout: "x\n"},
		"echo a\necho b # a comment":                    {Stdout: "a\nb\n"},
		"false":                                         {ExitCode: 1},
		"true | false":                                  {ExitCode: 1},
		"false | true":                                  {},
		"echo 'a b' \"c d\" e\\ f":                      {Stdout: "a b c d e f\n"},
		`echo "*" '?' \* "[x]" '$HOME' \$x "a\"b"`:      {Stdout: "* ? * [x] $HOME $x a\"b\n"},
		"sort < a.txt":                                  {Stdout: "one\nthree\ntwo\n"},
		"sort <<EOF\nb\na\nEOF\n":                       {Stdout: "a\nb\n"},
		"cat <<'EOF'\n$HOME `x` \\n\nEOF\n":             {Stdout: "$HOME `x` \\n\n"},
		"cat <<< 'x y'":                                 {Stdout: "x y\n"},
		"sh err.sh":                                     {Stdout: "out\n", Stderr: "err\n", ExitCode: 3},
		"sh err.sh 2>/dev/null":                         {Stdout: "out\n", ExitCode: 3},
		"sh err.sh > /dev/null":                         {Stderr: "err\n", ExitCode: 3},
		"sh err.sh &> /dev/null; true":                  {},
		"sh err.sh 2>&1 >/dev/null | sort":              {Stdout: "err\n"},
		"sh err.sh >&2 | sort":                          {Stderr: "out\nerr\n"},
		"cd sub && cat c.txt && pwd":                    {Stdout: "four\n" + b.root + "/sub\n"},
		"cd sub; cat c.txt; ls":                         {Stdout: "four\nc.txt\n"},
		"cd sub && cd .. && ls sub":                     {Stdout: "c.txt\n"},
		"echo x > new.txt && cat new.txt":               {Stdout: "x\n"},
		"echo 1 > n; echo 2 >> n; echo 3 >> n; cat n":   {Stdout: "1\n2\n3\n"},
		"echo x >> fresh; cat fresh":                    {Stdout: "x\n"},
		"sh err.sh > both 2>&1; sort both":              {Stdout: "err\nout\n"},
		"cat missing 2>/dev/null || echo none":          {Stdout: "none\n"},
		"printf '%s-' a b | tee t.txt | cat; cat t.txt": {Stdout: "a-b-a-b-"},
	} {
		r, err := b.line(line)
		if line == "sh err.sh >&2 | sort" && err == nil { // two streams into one: in either order
			r.Stderr = strings.Join(slices.Sorted(slices.Values(strings.SplitAfter(r.Stderr, "\n"))), "")
			want.Stderr = "err\nout\n"
		}
		if err != nil || r != want {
			t.Errorf("%q: %+v, %v; want %+v", line, r, err, want)
		}
	}
}

func TestLinesThatCannotBeJudgedAreRefused(t *testing.T) {
	b := lineBench(t)
	run := b.fill([]string{"RUN"})[0]
	for _, line := range []string{
		run, "echo x; " + run, "echo $(" + run + ")", "echo `" + run + "`", "cat <(" + run + ")", "echo x > >(" + run + ")", "eval " + run, "exec " + run, "source evil", ". ./evil", "command " + run,
		"builtin echo x", "sh -c '" + run + "'", "echo x | sh", "sh <<EOF\n" + run + "\nEOF", "echo $HOME", "echo ${x:-y}", "echo \"$x\"", "echo $((1+1))", "echo $'x'", "echo $\"x\"", "ls *", "ls ?.txt", "ls [ab].txt", "cat ~/x", "cat ~root/x",
		"echo {a,b}", "echo {1..3}", "X=1 echo x", "X=1", "export X=1", "declare x=1", "alias e=" + run, "trap '" + run + "' EXIT", "f() { " + run + "; }; f", "function f { " + run + "; }", "if true; then " + run + "; fi", "while true; do " + run + "; done",
		"for x in a; do echo x; done", "case x in x) echo;; esac", "(echo x)", "{ echo x; }", "echo x &", "coproc echo x", "time echo x", "[[ -f x ]]", "((1))", "let x=1", "select x in a; do echo; done", "echo x |& cat",
		"cat < /etc/passwd", "echo x > " + b.canary(), "echo x >> ../outside/canary", "echo x > ~/x", "cat < .env", "echo x > .env", "echo x > ../readonly/x", "cat <> a.txt", "echo x 3> y", "echo x >&3", "exec 3< a.txt", "cat <&3",
		"cd /; ls", "cd ..; ls", "cd ../outside && ls", "cd", "cd -", "cd sub sub", "false || cd sub; ls", "true && cd sub && ls", "cd sub | ls", "cd sub || ls", "! cd sub", "cd sub > x", "cd 'su'b*", "cd $X",
		"git -c alias.x=!sh x", "find . -exec sh {} \\;", "find . -exec touch x '{}' +", "cat " + b.outside + "/secret.txt", "echo x | tee " + b.canary(), "sed '1e " + run + "' a.txt | rm x", "echo x; rm a.txt", "true && rm a.txt", "true || rm a.txt",
		"cat <<EOF\n$(" + run + ")\nEOF", "cat <<EOF\n`" + run + "`\nEOF", "cat <<-EOF\n\tx\nEOF", "cat <<EOF\na\\b\nEOF", "\\rm a.txt", "'rm' a.txt", "r\"m\" a.txt", "/bin/cat a.txt", "./cat a.txt", "echo x; \n rm a.txt", "@(echo) x", "echo !(a)", "'' x", "\"\"",
	} {
		b.clean(t)
		if _, err := b.line(line); tool.CodeOf(err) != tool.CodeAccessDenied && tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("%q: %v", line, err)
		}
		if b.escaped(t, "") {
			t.Errorf("%q got out", line)
		}
	}
	kit.Check(t, kit.Err(os.Stat(filepath.Join(b.root, "a.txt"))), "a.txt is gone")
}

func TestNothingRunsWhenAnythingIsRefused(t *testing.T) {
	b := lineBench(t)
	for _, line := range []string{"echo x > made; rm a.txt", "echo x > made && cat /etc/passwd", "tee made | rm x", "echo x > made; echo $X", "echo x > made; cat < /etc/passwd", "echo x > made; echo y > ../outside/canary", "echo x > made; cd /; ls"} {
		kit.Fails(t, kit.Err(b.line(line)), "", "%s ran", line)
		kit.Fails(t, kit.Err(os.Stat(filepath.Join(b.root, "made"))), "", "%s ran in part", line)
	}
}

func TestBadLines(t *testing.T) {
	b := lineBench(t)
	for name, line := range map[string]string{
		"nothing": "", "a comment": "# x", "half": "echo 'x", "too long": strings.Repeat("x", maxLine+1), "a NUL": "echo \x00", "too many commands": strings.Repeat("true;", maxCommands+1),
		"deep": strings.Repeat("(", maxLine), "deep braces": strings.Repeat("{ ", maxLine/2), "deep pipes": strings.Repeat("true|", maxLine/6) + "true", "deep substitutions": strings.Repeat("$(", maxLine/2), "deep nots": strings.Repeat("! ", maxLine/3) + "true",
		"only a redirection": "> x", "bad UTF-8": "echo \xff",
	} {
		_, err := b.Touches(call(lineName, map[string]string{"line": strings.ToValidUTF8(line, "\x00")}))
		if code := tool.CodeOf(err); code != tool.CodeInvalidInput && code != tool.CodeAccessDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	kit.Refused(t, kit.Err(newJudged(t, Options{Allow: []string{"echo"}}).invoke(call("other", lineArgs{}))),
		tool.CodeNotFound, "")
}

func TestATimeoutEndsAllCommandsOfALine(t *testing.T) {
	tooltest.NoLeaks(t)
	b := lineBench(t)
	_, err := b.invoke(call(lineName, lineArgs{Line: "yes | sleep 600 | cat; echo not reached > after", TimeoutMS: 300}))
	refused(t, err, tool.CodeTimeout, "the line did not end")
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(b.root, "after"))), "", "a command was started after the end")
}

// bashWords asks a real shell how it splits a line.
func bashWords(t testing.TB, line string) ([]string, bool) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	out, err := exec.Command(bash, "--norc", "--noprofile", "-c", `printf '%s\0' `+line).Output()
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), err == nil
}

func TestWordsAreThoseOfARealShell(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"echo"}, Line: true})
	for _, words := range []string{`a b`, `'a b' "c  d"`, `a\ b`, `\a\b\\c`, `"a\b\\c\"d\$e"`, `'a\b'`, `a'b'"c"d`, "a\\\nb", "\"a\\\nb\"", `x=y`, `a\*b`, `"*"`, `~x'~'`, `a~b`, `{a}`, `{a`, `a{b}c`, `-n x`, `''`, `"" a`, `\#x`, `a#b`, `=~`, `a:~b`, `é 'ü'`, `[`, `]`, `!x`, `a!b`, "'a\nb'", `%s`} {
		want, ok := bashWords(t, words)
		got, err := b.Touches(call(lineName, lineArgs{Line: "echo " + words}))
		if err == nil && (!ok || !slices.Equal(got.Commands[0][1:], want)) {
			t.Errorf("%s: we would run %q, a shell %q", words, got.Commands[0][1:], want)
		}
	}
}

// What is judged is what runs: for every accepted line, the plan has exactly the commands that Touches reported. No program
// is started.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"echo a b", "echo 'x' | cat && ls; cd sub; cat < a.txt > b", "cat <<EOF\nx\nEOF", "echo $x", "! echo \\\n x", "echo {a,b} *", "a=b echo", "echo a >& 2", "cd sub && cd ..", "echo '", "echo x &", "[ -f x ]", "git -c a=b log", "echo \"a\\\"b\""} {
		f.Add(line)
	}
	b := lineBench(f)
	f.Fuzz(func(t *testing.T, line string) {
		c := call(lineName, map[string]string{"line": line})
		first, err := b.Touches(c)
		if err != nil {
			if code := tool.CodeOf(err); code != tool.CodeAccessDenied && code != tool.CodeInvalidInput && code != tool.CodeNotFound {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		p, err := b.planLine(t.Context(), c, lineArgs{Line: line})
		if err != nil {
			t.Fatalf("%q: told of and then refused: %v", line, err)
		}
		defer p.close()
		var ran [][]string
		p.node.each(func(c *command) { ran = append(ran, c.argv) })
		if !slices.EqualFunc(ran, first.Commands, slices.Equal[[]string]) {
			t.Fatalf("%q: judged %q, would run %q", line, first.Commands, ran)
		}
		for _, argv := range ran {
			if !filepath.IsAbs(argv[0]) || offlimits.Within(argv[0], b.root) {
				t.Fatalf("%q would run %q", line, argv)
			}
		}
	})
}

func subsequence(part, whole []string) bool {
	for _, w := range whole {
		if len(part) > 0 && part[0] == w {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// Arguments of any kind are judged without a crash; if they are accepted, they name nothing outside and are run unchanged.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"git\x00-C\x00sub\x00log\x00-p", "find\x00.\x00-name\x00x", "tar\x00-xzf\x00a.tgz", "sort\x00-k2\x00--output=x", "grep\x00-rn\x00x\x00../..", "python3\x00-m\x00pytest\x00-k\x00x", "go\x00test\x00-run=X\x00./...\x00-args\x00-x", "sed\x00-ni\x00p\x00a.txt", "awk\x00{print $1}\x00/etc/passwd", "cat\x00/etc/passwd"} {
		f.Add(seed)
	}
	programs := []string{"git", "find", "tar", "sort", "grep", "python3", "go", "sed", "awk", "cat", "npm", "cp", "dd", "ln", "zip", "make", "node", "jq", "uniq", "mytool"}
	b := newJudged(f, Options{Allow: programs, Rules: []Rule{{Program: "mytool", Trust: true}}})
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		v, err := b.judge(b.root, args...)
		if err != nil {
			return
		}
		given := args[1:]
		ours := len(v.argv) - 1 - len(given) // our own arguments do not change the order of the caller's
		if ours < 0 || ours > 20 || !subsequence(given, v.argv[1:]) {
			t.Fatalf("judged %q, would run %q", given, v.argv)
		}
		for _, path := range slices.Concat(v.reads, v.writes) {
			if !offlimits.Within(path, b.root) && !offlimits.Within(path, b.readOnly) {
				t.Fatalf("%q: %s is outside", args, path)
			}
		}
		for _, path := range v.writes {
			if !offlimits.Within(path, b.root) {
				t.Fatalf("%q: %s would be written", args, path)
			}
		}
		for _, a := range given {
			if args[0] == "cat" && strings.HasPrefix(a, "/") && a != "/dev/null" && !offlimits.Within(filepath.Clean(a), b.root) && !offlimits.Within(filepath.Clean(a), b.readOnly) {
				t.Fatalf("cat %q", a)
			}
		}
	})
}
