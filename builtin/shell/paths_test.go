package shell

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/tool"
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
		if err := os.Symlink(target, filepath.Join(b.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"cat", "sub/c.txt"}, {"cat", "alias"}, {"cat", "a.txt", b.root + "/sub/c.txt"}, {"tee", "b.txt"}, {"tee", "other"}, {"sort", "-o", "b.txt", "a.txt"}, {"cp", "-r", "sub", "copy"}, {"rm", "-r", "sub"}, {"grep", "-f", "sub/c.txt", "a.txt"},
	} {
		if _, err := b.scoped(s, args[0], args[1:]...); tool.CodeOf(err) != tool.CodeAccessDenied {
			t.Errorf("%q: %v", args, err)
		}
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
		if _, err := b.judge(b.root, args...); tool.CodeOf(err) != tool.CodeAccessDenied || !strings.Contains(err.Error(), "below it") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestRootFolderCannotBeRemovedOrMoved(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"rm", "mv", "rmdir"}})
	if err := os.Remove(filepath.Join(b.root, ".env")); err != nil { // so that nothing else interferes
		t.Fatal(err)
	}
	for _, args := range [][]string{{"rm", "-rf", b.root}, {"rm", "-rf", "sub/.."}, {"rm", "-rf", "./"}, {"mv", b.root, "sub/x"}, {"rmdir", "."}, {"rm", "-rf", b.root + "/"}} {
		if _, err := b.exec(args[0], args[1:]...); tool.CodeOf(err) != tool.CodeAccessDenied {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestLinkTargetIsResolvedFromTheLinksFolder(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"ln", "tee"}})
	_, err := b.invoke(call(execName, execArgs{Command: "ln", Args: []string{"-s", "../outside/secret.txt", "../here"}, Cwd: "sub"}))
	refused(t, err, tool.CodeAccessDenied, "leads upwards")
	if err := os.Symlink("../outside/new.txt", filepath.Join(b.root, "dangling")); err != nil {
		t.Fatal(err)
	}
	_, err = b.exec("tee", "dangling")
	refused(t, err, tool.CodeAccessDenied)
	if err := os.Symlink("new.txt", filepath.Join(b.root, "inner")); err != nil {
		t.Fatal(err)
	}
	_, err = b.exec("tee", "inner")
	refused(t, err, tool.CodeAccessDenied, "not there")
}

// A value that looks like an option may be one for the program: it is judged as both.
func TestValuesThatLookLikeOptionsAreJudged(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"git", "sort", "grep", "go", "cut"}})
	for _, args := range [][]string{{"git", "log", "--format", "--output=CANARY"}, {"git", "log", "--author", "--open-files-in-pager=x"}, {"sort", "-t", "--output=CANARY", "a.txt"}, {"sort", "-t", "--files0-from=names", "a.txt"}, {"grep", "-e", "-fSECRET", "a.txt"}, {"go", "test", "-run", "-exec=x"}, {"git", "log", "-n", "-O"}} {
		if _, err := b.judge(b.root, b.fill(args)...); tool.CodeOf(err) != tool.CodeAccessDenied {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"git", "log", "--author=--ext-diff"}, {"grep", "-e-f", "a.txt"}, {"go", "test", "-run=-exec"}, {"git", "log", "-n", "-1"}, {"grep", "--", "-x", "a.txt"}, {"grep", "-rn", "/usr/bin/env", "."}, {"cut", "-d/", "-f", "1", "a.txt"}, {"cut", "-d", "/", "a.txt"}, {"git", "commit", "-m", "rotate server.key"}} {
		if _, err := b.judge(b.root, args...); err != nil {
			t.Errorf("%q: %v", args, err)
		}
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
		if err := os.Symlink(target, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
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
	if _, err := os.Stat(filepath.Join(b.root, "sub/x")); err == nil {
		t.Error("telling wrote a file")
	}
	if _, err := b.Touches(call(execName, execArgs{Command: "cat", Args: []string{"/etc/passwd"}})); tool.CodeOf(err) != tool.CodeAccessDenied {
		t.Error(err)
	}
}
