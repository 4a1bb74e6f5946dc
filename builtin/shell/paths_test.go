package shell

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// scope keeps some names from a call.
type scope struct{ unread, unwritten string }

func (s scope) Path(abs string, write bool) error {
	if filepath.Base(abs) == s.unread || write && filepath.Base(abs) == s.unwritten {
		return tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: a rule says so", abs)
	}
	return nil
}

func (b *bench) scoped(s tool.Scope, command string, args ...string) (result, error) {
	c := call(execName, execArgs{Command: command, Args: args})
	c.Scope = s
	return b.invoke(c)
}

func TestPolicysScopeIsAskedForEveryPath(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"cat", "tee", "grep", "cp", "rm", "sort", "git", "tar", "uniq"}})
	s := scope{unread: "c.txt", unwritten: "b.txt"}
	for link, target := range map[string]string{"alias": "sub/c.txt", "other": "b.txt"} {
		kit.OK(t, os.Symlink(target, filepath.Join(b.root, link)))
	}
	for _, args := range [][]string{
		{"cat", "sub/c.txt"}, {"cat", "alias"}, {"cat", "a.txt", b.root + "/sub/c.txt"}, {"tee", "b.txt"}, {"tee", "other"}, {"sort", "-o", "b.txt", "a.txt"}, {"cp", "-r", "sub", "copy"}, {"rm", "-r", "sub"}, {"grep", "-f", "sub/c.txt", "a.txt"},
	} {
		kit.Refused(t, kit.Err(b.scoped(s, args[0], args[1:]...)), tool.CodeAccessDenied, "", args)
	}
	if r, err := b.scoped(s, "cat", "b.txt"); err != nil || r.Stdout != "two\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := b.scoped(s, "uniq", "a.txt", "b.txt"); err != nil || r.ExitCode == 0 || b.named(t, "b.txt") != b.root+"/b.txt: two\n\n" {
		t.Errorf("it may read b.txt, and so runs, but wrote to it: %+v, %v", r, err)
	}
	r, err := b.scoped(s, "grep", "-r", "four", ".")
	if err != nil || r.ExitCode != 1 || r.Stdout != "" {
		t.Errorf("grep found what is kept from it: %+v, %v", r, err)
	}
}

// The kernel goes up from where a link leads, not from where it is.
func TestNoProgramGoesUpFromALink(t *testing.T) {
	b := newJudged(t, Options{Rules: []Rule{{Program: "mine", Trust: true}}})
	b.write(t, "sub/deep/x", "x")
	b.write(t, "https:/x", "x")
	kit.OK(t, os.Symlink("sub/deep", filepath.Join(b.root, "l")))
	for _, name := range append(slices.Concat(wordsOf("readers"), wordsOf("writers"), wordsOf("removers"), wordsOf("placers"), wordsOf("others")), "mine") {
		for _, word := range []string{"l/../c.txt", "./l/..", "l//.././c.txt", "sub/../l/../c.txt", "-xl/../c.txt", "--x=l/../c.txt", b.root + "/l/../c.txt", "https://../l/../c.txt", "../outside/../" + filepath.Base(b.root) + "/a.txt"} {
			args := []string{name, word}
			if name == "git" && word[0] == '-' {
				continue // the value of -C is a path as a whole
			} else if name == "git" {
				args = []string{name, "-C", word, "status"}
			}
			if !isRefused(b.judge(b.root, args...)) {
				t.Errorf("%q is allowed", args)
			}
		}
	}
	for _, word := range []string{"sub/../a.txt", "sub/deep/../c.txt", "../" + filepath.Base(b.root) + "/a.txt", "l/x"} {
		kit.Check(t, kit.Err(b.judge(b.root, "cat", word)), word)
	}
}

// A path that starts at a codebase is replaced, even if another replaced path contains it: the program opens what was
// judged, and not the system's file of that name.
func TestNestedPathsAreAllReplaced(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"grep"}})
	b.write(t, "etc/passwd", "mine\n")
	b.write(t, "../readonly/etc/sub/x", "theirs\n")
	for range 20 { // in whichever order they are noted
		for want, args := range map[string][]string{
			"mine\nmine\n":           {"/etc", "/etc/passwd"},
			"theirs\nmine\ntheirs\n": {"/etc/sub", "/etc", "/etc/sub/x"},
		} {
			if r, err := b.exec("grep", append([]string{"-rh", ""}, args...)...); err != nil || r.Stdout != want {
				t.Fatalf("%q: %.200q, %v", args, r.Stdout, err)
			}
		}
	}
}

func TestProgramsThatGoThroughFoldersLeaveSecretsOut(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"grep", "rg", "tar", "diff", "cp", "zip", "rm", "mv", "chmod"}})
	b.write(t, "sub/server.key", secretText)
	for _, args := range [][]string{{"cp", "-r", "sub", "copy"}, {"zip", "-qr0", "x.zip", "."}, {"tar", "-cf", "x.tar", "."}} {
		if _, err := exec.LookPath(args[0]); err != nil {
			continue
		}
		b.must(t, args[0], args[1:]...)
	}
	for _, made := range []string{"copy/server.key", "x.zip", "x.tar"} {
		if text, _ := os.ReadFile(filepath.Join(b.root, made)); strings.Contains(string(text), secretText) {
			t.Errorf("%s has the secret", made)
		}
	}
	for _, args := range [][]string{{"grep", "-r", "secret", "."}, {"grep", "-r", "secret"}, {"grep", "-d", "recurse", "secret", "."}, {"grep", "-r", "--include=.env", "secret", "."}, {"grep", "-r", "--include=*", "secret", "--", "."}, {"rg", "-uu", "secret"}, {"rg", "-uu", "-g", "*", "secret"}, {"rg", "-g", ".env", "secret"}, {"rg", "--iglob=.env", "secret", "--", "."}, {"tar", "-cf", "-", "."}, {"diff", "-r", "-N", ".", "sub"}} {
		r, err := b.exec(args[0], args[1:]...)
		if tool.CodeOf(err) == tool.CodeNotFound {
			continue
		}
		if err != nil && tool.CodeOf(err) != tool.CodeAccessDenied || strings.Contains(r.Stdout, secretText) {
			t.Errorf("%q: %+v, %v", args, r, err)
		}
	}
	for i := range 280 {
		b.write(t, fmt.Sprintf("many/%d/x.pem", i), secretText)
	}
	if r, err := b.exec("grep", "-r", "secret", "many"); err != nil || r.Stdout != "" {
		t.Errorf("%.300s, %v", r.Stdout, err)
	}
	for i := range 200 {
		b.write(t, fmt.Sprintf("many/more/%d.pem", i), secretText)
	}
	_, err := b.exec("grep", "-r", "secret", ".")
	refused(t, err, tool.CodeAccessDenied, "cannot all be hidden")
	for _, args := range [][]string{{"rm", "-rf", "sub"}, {"mv", "sub", "other"}, {"chmod", "-R", "a+r", "sub"}} {
		kit.Refused(t, kit.Err(b.judge(b.root, args...)), tool.CodeAccessDenied, "below it", args)
	}
}

// closedBench is a bench with files that may not be read (c.txt, .env, r.txt in the other root) or not written (b.txt), and
// the names of them that programs could make up or find.
func closedBench(t *testing.T) (*bench, scope) {
	t.Helper()
	b := newBench(t, Options{Allow: slices.Concat(wordsOf("readers"), wordsOf("writers"), wordsOf("removers"), wordsOf("placers"), wordsOf("others")), Line: true})
	for name, content := range map[string]string{"sub/c.txt": secretText, "c.txt": secretText, "../readonly/c.txt": secretText, "pat": "secret\n", "secret": "", "names": "c.txt\n.env\n", "fake/HEAD": "x", "fake/objects/x": "", "fake/refs/x": "", "fake/c.txt": secretText, "sums": strings.Repeat("0", 64) + "  c.txt\n"} {
		b.write(t, name, content)
	}
	b.write(t, "lk/b.txt", "two\n")
	b.repository(t)
	b.tool(t, "git", "rm", "-q", "--cached", "sub/c.txt") // git shows what it tracks unchanged
	b.tool(t, "git", "commit", "-qm", "third")
	b.tool(t, "git", "tag", "-f", "good")
	for _, kind := range []string{"gzip", "bzip2", "xz", "zstd"} {
		if _, err := exec.LookPath(kind); err == nil {
			b.tool(t, kind, "-kq", "b.txt")
		}
	}
	b.pack(t, "over", entry{name: "b.txt"})
	b.pack(t, "up", entry{name: "B.TXT"})
	b.pack(t, "back", entry{name: `lk\b.txt`})
	b.pack(t, "hard", entry{name: "hl", hard: "b.txt"}, entry{name: "hl"})
	b.pack(t, "soft", entry{name: "sl", link: "b.txt"}, entry{name: "sl"})
	return b, scope{unread: "c.txt", unwritten: "b.txt"}
}

// Whichever program it is, and however it comes to a file: what its caller may not read is empty.
func TestNoReaderFindsWhatItsCallerMayNotRead(t *testing.T) {
	tooltest.NoLeaks(t)
	b, s := closedBench(t)
	n := 0
	look := func(c *tool.Call) {
		c.Scope = s
		r, err := b.invoke(c)
		if n++; strings.Contains(r.Stdout+r.Stderr, secretText) || err != nil && tool.CodeOf(err) != tool.CodeAccessDenied && tool.CodeOf(err) != tool.CodeNotFound {
			t.Errorf("%s: %+v, %v", c.Args, r, err)
		}
	}
	for _, name := range slices.Concat(wordsOf("readers"), wordsOf("others")) {
		for _, word := range []string{"c.txt", "sub/c.txt", ".env", "../readonly/c.txt", "./sub/../.env", "-0fc.txt", "-f.env", "--files-from=.env"} {
			look(call(execName, execArgs{Command: name, Args: []string{word}}))
		}
	}
	for _, args := range [][]string{
		{"tsort", "c.txt"}, {"grep", "--recursi", ""}, {"grep", "-1r", ""}, {"grep", "-1R", ""}, {"grep", "-r", "-f", "pat"}, {"grep", "-r", "secret"}, {"grep", "-h", "secret", "-r", ".."}, {"grep", "-h", "", "--directori=recurse"}, {"egrep", "-r", "secret"},
		{"rg", "-uu", "-f", "pat"}, {"rg", "-uu", "-0", "secret"}, {"git", "grep", "--no-index", "secret"}, {"git", "grep", "--untracked", "secret"}, {"git", "add", "-A"}, {"git", "diff", "--cached"}, {"git", "stash", "-u"}, {"jq", "-Rn", "[inputs]", "names"}, {"diff", "-rN", ".", "lk"},
		{"sha256sum", "-c", "sums"}, {"zstd", "-rc", "."}, {"cat", "-A", "sub/c.txt"},
	} {
		look(call(execName, execArgs{Command: args[0], Args: args[1:]}))
	}
	look(call(execName, execArgs{Command: "zip", Args: []string{"-q0", "names.zip", "-@"}, Stdin: "c.txt\n.env\n"}))
	look(call(execName, execArgs{Command: "unzip", Args: []string{"-p", "names.zip"}}))
	for _, line := range []string{"gzip -rc . | gunzip", "zstd -rc . | zstd -dc", "tar -cf - . | cat", "ln -s sub q && cat q/c.txt", "cat c.txt", "cat < c.txt", "tar -cf x.tar sub && tar -xOf x.tar"} {
		look(call(lineName, lineArgs{Line: line}))
	}
	t.Logf("%d attempts", n)
}

// Nor is what it may not write changed, moved or removed, under names that a program makes up or finds.
func TestNoProgramChangesWhatItsCallerMayNotWrite(t *testing.T) {
	tooltest.NoLeaks(t)
	b, s := closedBench(t)
	state := func() string {
		var all strings.Builder
		for _, name := range []string{"b.txt", "lk/b.txt"} {
			info, err := os.Lstat(filepath.Join(b.root, name))
			if err != nil {
				return err.Error()
			}
			text, _ := os.ReadFile(filepath.Join(b.root, name))
			fmt.Fprintf(&all, "%s %v %q\n", name, info.Mode(), text)
		}
		return all.String()
	}
	before := state()
	for _, args := range [][]string{
		{"gunzip", "-kf", "b.txt.gz"}, {"bunzip2", "-kf", "b.txt.bz2"}, {"xz", "-dkf", "b.txt.xz"}, {"unxz", "-kf", "b.txt.xz"}, {"zstd", "-df", "b.txt.zst"}, {"unzstd", "-f", "b.txt.zst"}, {"gzip", "-rf", "lk"}, {"gunzip", "-rf", "."}, {"gzip", "b.txt"}, {"zip", "-rm", "mm.zip", "lk"}, {"zip", "-m", "mm.zip", "b.txt"},
		{"tar", "--remove-files", "-cf", "mm.tar", "lk"}, {"chmod", "--recurs", "777", "lk"}, {"chmod", "-R", "777", "lk"}, {"rm", "-r", "lk"}, {"mv", "lk", "x"}, {"cp", "a.txt", "b.txt", "--sparse", "always"}, {"uniq", "a.txt", "b.txt"}, {"xxd", "a.txt", "b.txt"}, {"sort", "-ob.txt", "a.txt"}, {"sed", "-i", "s/t/u/", "b.txt"}, {"dd", "if=a.txt", "of=b.txt"}, {"shuf", "-e", "x", "-o", "b.txt"},
		{"tar", "-xf", "over.tar"}, {"tar", "-xvf", "over.tar"}, {"tar", "-xf", "over.tar", "--quoting-style=c"}, {"tar", "-xf", "over.tar", "--index-file=idx"}, {"tar", "-xf", "over.tar", "--show-stored-names"}, {"tar", "-xf", "hard.tar", "--overwrite"}, {"tar", "-xf", "soft.tar", "--overwrite"}, {"tar", "-xf", "hard.tar"}, {"tar", "-xf", "soft.tar"},
		{"unzip", "-o", "over.zip"}, {"unzip", "-oLL", "up.zip"}, {"unzip", "-oL", "up.zip"}, {"unzip", "-o", "back.zip"}, {"unzip", "-oC", "over.zip", "B.TXT"}, {"unzip", "-l", "-l-", "-o", "over.zip"},
		{"git", "rm", "-qf", "b.txt"}, {"git", "mv", "b.txt", "zz"}, {"git", "mv", "lk", "lk2"}, {"git", "clean", "-fdxq", "lk"}, {"git", "checkout", "good", "--", "."}, {"git", "restore", "--source=HEAD~1", "."},
	} {
		if _, err := b.scoped(s, args[0], args[1:]...); err != nil && tool.CodeOf(err) != tool.CodeAccessDenied && tool.CodeOf(err) != tool.CodeNotFound {
			t.Errorf("%q: %v", args, err)
		}
		kit.MustEqual(t, state(), before, "%q changed", args)
	}
	c := call(execName, execArgs{Command: "git", Args: []string{"apply"}, Stdin: "--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-two\n+changed\n"})
	c.Scope = s
	if _, err := b.invoke(c); err != nil || state() != before {
		t.Errorf("%v: %s", err, state())
	}
}

// A file that git tracks, and that its caller may not read, stays as it is: git neither takes it for emptied nor adds others.
func TestGitLeavesHiddenFilesAlone(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"git"}})
	b.write(t, "sub/server.pem", "certificate\n")
	b.repository(t)
	if r := b.must(t, "git", "status", "--porcelain"); r.Stdout != "" {
		t.Errorf("it takes files for changed: %s", r.Stdout)
	}
	b.must(t, "git", "add", "-A")
	if r := b.must(t, "git", "commit", "-qam", "x"); r.ExitCode != 1 {
		t.Errorf("there was something to commit: %+v", r)
	}
	b.write(t, "sub/server.pem", secretText+"\n")
	if r := b.must(t, "git", "diff"); strings.Contains(r.Stdout, secretText) {
		t.Error(r.Stdout)
	}
	_, err := b.exec("git", "commit", "-qam", "x")
	refused(t, err, tool.CodeAccessDenied, "sub/server.pem is tracked")
}

// The record names at least what can be changed.
func TestTouchesNamesWhatCanBeChanged(t *testing.T) {
	b := newJudged(t, Options{Allow: slices.Concat([]string{"python3", "make"}, wordsOf("placers"), wordsOf("others")), Line: true})
	b.plantOrdinary(t)
	for want, lines := range map[string][]string{
		"b.txt": {"cp a.txt b.txt --sparse always", "uniq a.txt b.txt", "xxd a.txt b.txt", "gzip b.txt", "xz b.txt", "zip -m x.zip b.txt", "tar --remove-files -cf x.tar b.txt", "git rm -f b.txt", "git mv b.txt x", "git checkout -- b.txt", "sed -i p b.txt", "dd if=a.txt of=b.txt", "mv b.txt x"},
		"":      {"git apply", "git stash", "git checkout good", "git reset --hard", "git clean -fd", "python3 script.py", "make -f ok.mk", "gzip b.txt"},
		"x.tar": {"tar -cf x.tar a.txt", "tar -rf x.tar a.txt"}, "x.zip": {"zip -r x.zip sub"}, "u2": {"uniq a.txt u2"}, "sub": {"gzip -r sub"},
		"none": {"git log", "git diff a.txt", "git status", "sort a.txt", "sed p a.txt", "find .", "gzip -c b.txt", "tar -tf x.tar", "awk 1 a.txt", "git grep one"},
	} {
		for _, line := range lines {
			got, err := b.Touches(call(lineName, lineArgs{Line: line}))
			if err != nil || want == "none" && len(got.Writes) > 0 || want != "none" && !slices.Contains(got.Writes, filepath.Join(b.root, want)) {
				t.Errorf("%s: %+v, %v", line, got, err)
			}
		}
	}
}

func TestRootFolderCannotBeRemovedOrMoved(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"rm", "mv", "rmdir"}})
	if err := os.Remove(filepath.Join(b.root, ".env")); err != nil { // so that nothing else interferes
		t.Fatal(err)
	}
	for _, args := range [][]string{{"rm", "-rf", b.root}, {"rm", "-rf", "sub/.."}, {"rm", "-rf", "./"}, {"mv", b.root, "sub/x"}, {"rmdir", "."}, {"rm", "-rf", b.root + "/"}} {
		kit.Refused(t, kit.Err(b.exec(args[0], args[1:]...)), tool.CodeAccessDenied, "", args)
	}
}

func TestLinkTargetIsResolvedFromTheLinksFolder(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"ln", "tee"}})
	_, err := b.invoke(call(execName, execArgs{Command: "ln", Args: []string{"-s", "../outside/secret.txt", "../here"}, Cwd: "sub"}))
	refused(t, err, tool.CodeAccessDenied, "leads upwards")
	kit.OK(t, os.Symlink("../outside/new.txt", filepath.Join(b.root, "dangling")))
	_, err = b.exec("tee", "dangling")
	refused(t, err, tool.CodeAccessDenied)
	kit.OK(t, os.Symlink("new.txt", filepath.Join(b.root, "inner")))
	_, err = b.exec("tee", "inner")
	refused(t, err, tool.CodeAccessDenied, "not there")
}

// A value that looks like an option may be one for the program: it is judged as both.
func TestValuesThatLookLikeOptionsAreJudged(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"git", "sort", "grep", "go", "cut"}})
	for _, args := range [][]string{{"git", "log", "--format", "--output=CANARY"}, {"git", "log", "--author", "--open-files-in-pager=x"}, {"sort", "-t", "--output=CANARY", "a.txt"}, {"sort", "-t", "--files0-from=names", "a.txt"}, {"grep", "-e", "-fSECRET", "a.txt"}, {"go", "test", "-run", "-exec=x"}, {"git", "log", "-n", "-O"}} {
		kit.Refused(t, kit.Err(b.judge(b.root, b.fill(args)...)), tool.CodeAccessDenied, "", args)
	}
	for _, args := range [][]string{{"git", "log", "--author=--ext-diff"}, {"grep", "-e-f", "a.txt"}, {"go", "test", "-run=-exec"}, {"git", "log", "-n", "-1"}, {"grep", "--", "-x", "a.txt"}, {"grep", "-rn", "/usr/bin/env", "."}, {"cut", "-d/", "-f", "1", "a.txt"}, {"cut", "-d", "/", "a.txt"}, {"git", "commit", "-m", "rotate server.key"}} {
		kit.Check(t, kit.Err(b.judge(b.root, args...)), args)
	}
}

func TestLinksThatLeadOutsideAreNotWrittenThrough(t *testing.T) {
	b := newBench(t, Options{Allow: []string{"cp", "tee", "gofmt", "sed", "sort", "mv", "touch"}})
	secret := filepath.Join(b.outside, "secret.txt")
	b.write(t, "../outside/x.go", "package   x // "+secretText+"\n")
	for _, name := range []string{"sub/a.txt", "link", "sub/x.go"} {
		target := secret
		if filepath.Ext(name) == ".go" {
			target = filepath.Join(b.outside, "x.go")
		}
		kit.OK(t, os.Symlink(target, filepath.Join(b.root, name)))
	}
	for _, args := range [][]string{{"cp", "a.txt", "sub"}, {"cp", "a.txt", "link"}, {"tee", "link"}, {"sort", "-o", "link", "a.txt"}, {"sed", "-i", "s/a/b/", "link"}, {"gofmt", "-w", "sub"}, {"gofmt", "-d", "."}, {"touch", "link"}, {"mv", "b.txt", "sub/a.txt"}} {
		r, err := b.exec(args[0], args[1:]...)
		if tool.CodeOf(err) == tool.CodeNotFound {
			continue
		}
		text, _ := os.ReadFile(secret)
		code, _ := os.ReadFile(filepath.Join(b.outside, "x.go"))
		if string(text) != secretText+"\n" || !strings.HasPrefix(string(code), "package   x") || strings.Contains(r.Stdout, secretText) {
			t.Fatalf("%q got out: %+v, %v", args, r, err)
		}
	}
}

func TestTouchesNamesTheCommandThatRuns(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"cp", "sed", "cat", "sort"}, Line: true})
	got, err := b.Touches(call(execName, execArgs{Command: "cp", Args: []string{"-v", "a.txt", "copy"}, Cwd: "sub/.."}))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Commands) != 1 || !filepath.IsAbs(got.Commands[0][0]) || !slices.Equal(got.Commands[0][1:], []string{"--remove-destination", "-v", "a.txt", "copy"}) {
		t.Errorf("%q", got.Commands)
	}
	if !slices.Equal(got.Reads, []string{b.root + "/a.txt"}) || !slices.Equal(got.Writes, []string{b.root + "/copy"}) {
		t.Errorf("%+v", got)
	}
	got, err = b.Touches(call(execName, execArgs{Command: "sed", Args: []string{"p", "a.txt"}}))
	if err != nil || !slices.Equal(got.Commands[0][1:], []string{"--sandbox", "p", "a.txt"}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = b.Touches(call(lineName, lineArgs{Line: "cat < a.txt | sort > sub/x; cd sub && cat c.txt"}))
	if err != nil || len(got.Commands) != 3 || !slices.Equal(got.Reads, []string{b.root + "/a.txt", b.root + "/sub/c.txt"}) || !slices.Equal(got.Writes, []string{b.root + "/sub/x"}) {
		t.Errorf("%+v, %v", got, err)
	}
	kit.Fails(t, kit.Err(os.Stat(filepath.Join(b.root, "sub/x"))), "", "telling wrote a file")
	kit.Refused(t, kit.Err(b.Touches(call(execName, execArgs{Command: "cat", Args: []string{"/etc/passwd"}}))),
		tool.CodeAccessDenied, "")
}
