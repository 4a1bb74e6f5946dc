package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A tool that may write below a root may write the configuration of a repository there.
func TestARepositoryCannotNameProgramsForGit(t *testing.T) {
	tooltest.NoLeaks(t)
	all := [][]string{
		{"status"}, {"diff", "HEAD~1"}, {"log", "-p", "--show-notes"}, {"show", "HEAD"}, {"blame", "a.txt"}, {"add", "-A"}, {"commit", "--allow-empty", "-m", "x"},
		{"checkout", "-f", "HEAD~1"}, {"stash"}, {"grep", "one"}, {"merge", "--no-ff", "side"}, {"reset", "--hard", "HEAD"}, {"branch", "-a"}, {"whatchanged"},
	}
	for name, config := range map[string]string{
		"filter":          "[filter \"evil\"]\n clean = RUN;cat\n smudge = RUN;cat\n required = true\n",
		"filter process":  "[filter \"evil\"]\n process = RUN\n",
		"textconv":        "[diff \"evil\"]\n textconv = RUN;cat\n",
		"external driver": "[diff \"evil\"]\n command = RUN\n",
		"merge driver":    "[merge \"evil\"]\n driver = RUN\n",
		"fsmonitor":       "[core]\n fsmonitor = RUN;false\n",
		"hooks":           "[core]\n hooksPath = ROOT/hooks\n",
		"external diff":   "[diff]\n external = RUN\n",
		"pager":           "[core]\n pager = RUN\n[pager]\n log = RUN\n show = RUN\n",
		"editor":          "[core]\n editor = RUN\n[sequence]\n editor = RUN\n",
		"gpg":             "[gpg]\n program = ROOT/evil.sh\n[commit]\n gpgSign = true\n[log]\n showSignature = true\n[merge]\n verifySignatures = true\n",
		"included":        "[include]\n path = ROOT/evil.inc\n",
		"alias":           "[alias]\n status = !RUN\n whatchanged = !RUN\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := newJudged(t, Options{Allow: []string{"git"}})
			b.plant(t)
			b.tool(t, "git", "branch", "side", "HEAD~1")
			fill := func(s string) string { return b.fill([]string{s})[0] }
			b.write(t, "evil.inc", fill("[filter \"evil\"]\n clean = RUN;cat\n smudge = RUN;cat\n"))
			b.write(t, ".gitattributes", "*.txt filter=evil diff=evil merge=evil\n")
			old := kit.Must(os.ReadFile(filepath.Join(b.root, ".git/config")))(t)
			b.write(t, ".git/config", string(old)+fill(config))
			for hook := range strings.FieldsSeq("pre-commit post-commit post-checkout commit-msg prepare-commit-msg post-index-change reference-transaction post-merge") {
				b.write(t, "hooks/"+hook, fill("#!/bin/sh\nRUN\n"))
				b.write(t, ".git/hooks/"+hook, fill("#!/bin/sh\nRUN\n"))
			}
			for _, args := range all {
				b.clean(t)
				b.write(t, "a.txt", strings.Join(args, " ")+"\n") // so that git has to read it
				_, err := b.exec("git", args...)
				if err != nil && tool.CodeOf(err) != tool.CodeAccessDenied {
					t.Errorf("git %q: %v", args, err)
				}
				if b.escaped(t, "") {
					t.Errorf("git %q ran what the repository names", args)
				}
			}
		})
	}
}

// Git may switch to another branch and start itself again: what that branch includes is not in the list of settings.
func TestARepositoryCannotNameProgramsForABranch(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"git"}})
	b.plant(t)
	b.write(t, ".gitattributes", "*.txt filter=evil\n")
	b.tool(t, "git", "add", ".gitattributes")
	b.tool(t, "git", "commit", "-qm", "x")
	b.tool(t, "git", "config", "includeIf.onbranch:evil.path", b.root+"/evil.inc")
	b.write(t, "evil.inc", b.fill([]string{"[filter \"evil\"]\n smudge = RUN;cat\n"})[0])
	b.write(t, "a.txt", "changed\n")
	b.tool(t, "git", "stash")
	_, err := b.exec("git", "stash", "branch", "evil")
	if b.escaped(t, "") {
		t.Error("the filter of the branch ran")
	}
	refused(t, err, tool.CodeAccessDenied, "includeif.onbranch:evil.path")
}

func TestARuleCanLetARepositoryNamePrograms(t *testing.T) {
	b := newJudged(t, Options{Rules: []Rule{{Program: "git", Code: CodeTree}}})
	b.plant(t)
	b.tool(t, "git", "config", "filter.evil.clean", b.fill([]string{"RUN;cat"})[0])
	b.write(t, ".gitattributes", "*.txt filter=evil\n")
	b.write(t, "a.txt", "changed\n")
	b.must(t, "git", "add", "a.txt")
	if !b.escaped(t, "") {
		t.Error("the filter did not run: the test above proves nothing")
	}
}

func TestARepositoryElsewhereIsRefused(t *testing.T) {
	b := newJudged(t, Options{Allow: []string{"git"}})
	b.plant(t)
	b.tool(t, "git", "init", "-q", b.outside+"/repo")
	b.write(t, "pointer/.git", "gitdir: "+b.outside+"/repo/.git\n")
	kit.OK(t, os.MkdirAll(filepath.Join(b.root, "linked"), 0o755))
	kit.OK(t, os.Symlink(b.outside+"/repo/.git", filepath.Join(b.root, "linked/.git")))
	b.tool(t, "git", "init", "-q", "moved")
	b.tool(t, "git", "-C", "moved", "config", "core.worktree", b.outside)
	for _, folder := range []string{"pointer", "linked", "moved"} {
		_, err := b.exec("git", "-C", folder, "status")
		refused(t, err, tool.CodeAccessDenied, "outside of the offered folders")
	}
	b.tool(t, "git", "init", "-q", b.outside)
	b.tool(t, "git", "init", "-q", filepath.Dir(b.root)) // a repository above the root is not found
	r := b.must(t, "git", "-C", b.readOnly, "status")
	if r.ExitCode == 0 || !strings.Contains(r.Stderr, "not a git repository") {
		t.Errorf("%+v", r)
	}
}

func TestARepositoryWithinOneCannotNameProgramsEither(t *testing.T) {
	tooltest.NoLeaks(t)
	b := newJudged(t, Options{Allow: []string{"git"}})
	b.plant(t)
	b.tool(t, "git", "init", "-q", "sub/nested")
	b.tool(t, "git", "-C", "sub/nested", "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x")
	b.write(t, "sub/nested/f.txt", "one\n")
	b.write(t, "sub/nested/.gitattributes", "*.txt filter=evil\n")
	b.tool(t, "git", "-C", "sub/nested", "add", ".")
	b.tool(t, "git", "add", "sub/nested")
	look := func() (denials int) {
		for n, args := range [][]string{{"status"}, {"diff"}, {"add", "-A"}, {"commit", "-m", "x", "--allow-empty"}, {"stash"}, {"-C", "sub", "status"}} {
			b.write(t, "sub/nested/f.txt", fmt.Sprintf("%03d\n", n)) // of the same size: git has to read it
			if _, err := b.exec("git", args...); tool.CodeOf(err) == tool.CodeAccessDenied {
				denials++
			}
			if b.escaped(t, "") {
				t.Errorf("git %q ran what a repository within it names", args)
			}
			b.clean(t)
		}
		return denials
	}
	kit.Equal(t, look(), 0, "a harmless one: times in the way")
	run := b.fill([]string{"RUN"})[0]
	b.tool(t, "git", "-C", "sub/nested", "config", "core.fsmonitor", run+";false")
	kit.Equal(t, look(), 0, "a setting that can be taken back: times in the way")
	b.tool(t, "git", "-C", "sub/nested", "config", "filter.evil.clean", run+";cat")
	kit.Equal(t, look(), 6, "commands that were refused")
	b.write(t, "sub/nested/f.txt", "999\n")
	b.tool(t, "git", "status")
	if !b.escaped(t, "") {
		t.Error("the filter did not run: the test proves nothing")
	}
}

func TestGitRefusesUnsafeRemotes(t *testing.T) {
	b := newJudged(t, Options{Rules: []Rule{{Program: "git", Network: true}}})
	b.plant(t)
	run := b.fill([]string{"RUN"})[0]
	for _, url := range []string{"ext::" + run, "ssh://nowhere.invalid/x", "git://nowhere.invalid/x", "file://" + b.root, b.root, "-oProxyCommand=" + run + ":x"} {
		b.clean(t)
		if r, err := b.exec("git", "fetch", url); err == nil && r.ExitCode == 0 || b.escaped(t, "") {
			t.Errorf("%s was fetched: %+v", url, r)
		}
		b.write(t, ".git/config", "[remote \"origin\"]\n\turl = "+url+"\n[core]\n\tsshCommand = "+run+"\n[protocol \"ext\"]\n\tallow = always\n")
		if r, err := b.exec("git", "fetch"); err == nil && r.ExitCode == 0 {
			t.Errorf("%s was fetched: %+v", url, r)
		}
		if b.escaped(t, "") {
			t.Errorf("%s ran something", url)
		}
	}
	b.write(t, ".git/config", "[remote \"origin\"]\n\turl = https://nowhere.invalid/x\n") // allowed settings are tried
	if r, err := b.exec("git", "fetch"); err != nil || !strings.Contains(r.Stderr, "nowhere.invalid") {
		t.Errorf("%+v, %v", r, err)
	}
}
