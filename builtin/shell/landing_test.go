package shell

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// An entry is an entry of an archive: a file, a link, or a hard link.
type entry struct{ name, link, hard string }

// pack writes a tar archive and a zip archive, without the links.
func (b *bench) pack(t *testing.T, name string, entries ...entry) {
	t.Helper()
	var tarred, zipped bytes.Buffer
	tw, zw := tar.NewWriter(&tarred), zip.NewWriter(&zipped)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o755, Size: 1}
		if e.link != "" {
			h = &tar.Header{Name: e.name, Typeflag: tar.TypeSymlink, Linkname: e.link, Mode: 0o777}
		}
		if e.hard != "" {
			h = &tar.Header{Name: e.name, Typeflag: tar.TypeLink, Linkname: e.hard, Mode: 0o644}
		}
		err := tw.WriteHeader(h)
		if err == nil && e.link == "" && e.hard == "" {
			_, err = tw.Write([]byte("x"))
			if w, zerr := zw.CreateRaw(&zip.FileHeader{Name: e.name, CompressedSize64: 1, UncompressedSize64: 1, CRC32: 0x8cdc1683}); zerr == nil {
				_, _ = w.Write([]byte("x"))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if tw.Close() != nil || zw.Close() != nil {
		t.Fatal("the archives could not be written")
	}
	b.write(t, name+".tar", tarred.String())
	b.write(t, name+".zip", zipped.String())
}

func allowed() Options {
	return Options{Allow: []string{"cp", "mv", "ln", "tar", "unzip", "tee", "sed", "touch", "rm", "chmod", "mkdir", "dd", "git", "gzip", "sort", "python3", "uniq", "zip", "xxd", "gunzip"}, Line: true}
}

// yard is a folder with a repository, things to put into it, and paths that lead there.
func yard(t *testing.T, open func(testing.TB, Options) *bench) *bench {
	t.Helper()
	b := open(t, allowed())
	b.repository(t)
	if err := os.Remove(filepath.Join(b.root, ".env")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, path := range []string{"up/.git/config", "up/.git/hooks/pre-commit", "up/other.txt", "tree/b.txt", "tree/deep/c.txt", "tree/a.txt", "git/hooks/pre-commit"} {
		b.write(t, path, "#!/bin/sh\n")
	}
	b.write(t, "sub/up/.GIT/config", "x")
	b.write(t, "into/.gi", "a\n")
	b.write(t, "into/x", "gitdir: ../apart/bare\n")
	b.tool(t, "gzip", "-k", "into/x")
	b.tool(t, "mv", "into/x.gz", "into/.git.gz")
	b.tool(t, "git", "init", "-q", "--bare", "apart/bare")
	b.tool(t, "git", "init", "-q", "--separate-git-dir=apart/gd", "apart/tree")
	for link, to := range map[string]string{"hooks": ".git/hooks", "here": ".", "sub/repo": "../.git", "into/git": "../.git", "refs": ".git/refs"} {
		kit.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(b.root, link)), 0o755))
		kit.OK(t, os.Symlink(to, filepath.Join(b.root, link)))
	}
	b.pack(t, "evil", entry{name: "a/ok"}, entry{name: ".git/hooks/post-checkout"})
	b.pack(t, "stripped", entry{name: "top/.git/config"})
	b.pack(t, "plain", entry{name: "p/one"}, entry{name: "p/b.txt"})
	b.pack(t, "linked", entry{name: "l", link: ".git/hooks"}, entry{name: "l/pre-push"})
	b.pack(t, "secret", entry{name: "x/.env"})
	b.pack(t, "upwards", entry{name: "x/../../y"})
	return b
}

// The content of .git decides what git runs: no program but git writes there, under whatever name.
func TestNoProgramWritesIntoGit(t *testing.T) {
	tooltest.NoLeaks(t)
	b := yard(t, newBench)
	snapshot := func() string { return b.snapshot(t) + b.named(t, ".git") }
	before := snapshot()
	n := 0
	for _, args := range [][]string{
		{"cp", "a.txt", ".git/config"}, {"cp", "a.txt", ".git"}, {"cp", "a.txt", ".git/"}, {"cp", "-t", ".git/hooks", "a.txt"}, {"cp", "--target-directory=.git/hooks", "a.txt"},
		{"cp", "a.txt", "hooks"}, {"cp", "a.txt", "hooks/pre-commit"}, {"cp", "a.txt", "here/.git/config"}, {"cp", "a.txt", "sub/repo/config"}, {"cp", "a.txt", "sub/repo"},
		{"cp", "-r", "up", "new"}, {"cp", "-r", "up", "sub"}, {"cp", "-r", "up/.", "."}, {"cp", "-r", "up/.git", "."}, {"cp", "-r", "up/.git", "sub"}, {"cp", "-r", "up/.git/", "here"},
		{"cp", "-r", "-t", ".", "up/.git"}, {"cp", "-r", "-t", "here", "tree", "up/.git"}, {"cp", "-a", "up", "copy"}, {"cp", "-R", "sub/up", "copy"}, {"cp", "-rT", "up", "."}, {"cp", "-r", "git", "into"},
		{"cp", "--parents", ".git/config", "sub"}, {"cp", "--parents", "-r", "up/.git", "sub"}, {"cp", "-r", "up/deep/../.git", "sub"},
		{"mv", "a.txt", ".git/hooks"}, {"mv", "a.txt", ".git/config"}, {"mv", "up/.git", "."}, {"mv", "up", "sub"}, {"mv", ".git", "gone"}, {"mv", ".git/config", "x"}, {"mv", "-t", ".git", "a.txt"}, {"mv", "a.txt", "hooks/"}, {"mv", "git", ".git"}, {"mv", "git/hooks", ".git"}, {"mv", "-T", "git", ".git"},
		{"ln", "-s", "a.txt", ".git/hooks/pre-commit"}, {"ln", "-s", "a.txt", ".git/hooks"}, {"ln", "a.txt", ".git/config"}, {"ln", "-s", "a.txt", "hooks"}, {"ln", "-s", "git", ".git"}, {"ln", "-sf", "a.txt", ".git"}, {"ln", ".git/config", "mine"},
		{"tar", "-xf", "evil.tar"}, {"tar", "-xf", "evil.tar", "-C", "sub"}, {"tar", "-xf", "../evil.tar", "-C", "sub"}, {"tar", "-C", "sub", "-xf", "evil.tar"}, {"tar", "--extract", "--file=evil.tar"}, {"tar", "-xf", "stripped.tar", "--strip-components=1"}, {"tar", "-xf", "linked.tar"}, {"tar", "-xf", "plain.tar", "-C", "hooks"}, {"tar", "-xf", "upwards.tar"},
		{"unzip", "-o", "evil.zip"}, {"unzip", "-o", "evil.zip", "-d", "sub"}, {"unzip", "-oq", "stripped.zip", "-d", "new"}, {"unzip", "-o", "plain.zip", "-d", "hooks"}, {"unzip", "-oj", "plain.zip", "-d", ".git"}, {"unzip", "-o", "upwards.zip"},
		{"tee", ".git/config"}, {"tee", "hooks/x"}, {"sed", "-i", "s/a/b/", ".git/config"}, {"touch", ".git/x"}, {"touch", ".GIT/x"}, {"rm", ".git/config"}, {"rm", "-rf", ".git"}, {"rm", "-rf", "up"}, {"rm", "-rf", "sub"}, {"chmod", "+x", ".git/hooks"}, {"chmod", "-R", "a+x", "."},
		{"tee", "apart/gd/hooks/post-checkout"}, {"tee", "apart/gd/config"}, {"cp", "a.txt", "apart/gd/hooks"}, {"sed", "-i", "s/core/x/", "apart/gd/config"}, {"mv", "apart/gd", "x"}, {"mv", "apart/gd/HEAD", "x"}, {"rm", "-r", "apart"}, {"tee", "apart/bare/hooks/x"}, {"chmod", "755", "apart/gd/config"}, {"git", "mv", "a.txt", "apart/gd/x"}, {"git", "log", "-1", "--output=apart/gd/config"}, {"git", "init", "--separate-git-dir=gone"},
		{"git", "log", "-1", "--output=refs/../config"}, {"tee", "refs/../config"}, {"tee", "https://../.git/config"}, {"uniq", "a.txt", "sub/.git"}, {"zip", "sub/.git", "a.txt"}, {"xxd", "a.txt", "sub/.git"}, {"tar", "-cf", "sub/.git", "a.txt"}, {"tar", "-tvf", "plain.tar", "--index-file=sub/.git"},
		{"gunzip", "into/.git.gz"}, {"gunzip", "-r", "into"}, {"gzip", "-d", "into/.git.gz"}, {"gunzip", "-N", "into/.git.gz"}, {"gunzip", "-S", "x", "into/.gitx"}, {"sed", "-i.*", "s/a/b/", "tree/a.txt"}, {"sed", "-it", "s/a/b/", "into/.gi"}, {"cp", "-b", "-S", "t", "a.txt", "into/.gi"},
		{"mkdir", ".git/hooks/x"}, {"mkdir", "sub/.git"}, {"mkdir", "-p", "sub/.git/hooks"}, {"dd", "if=a.txt", "of=.git/config"}, {"sort", "-o", ".git/config", "a.txt"}, {"gzip", ".git/config"}, {"git", "mv", "a.txt", ".git/x"}, {"git", "init", ".git/x"}, {"git", "config", "core.hooksPath", "x"}, {"git", "config", "--add", "a.b", "c"}, {"git", "remote", "add", "x", "y"}, {"git", "submodule", "add", "x"},
	} {
		n++
		if _, err := b.exec(args[0], args[1:]...); err != nil && tool.CodeOf(err) != tool.CodeAccessDenied {
			t.Errorf("%q: %v", args, err)
		}
		kit.MustEqual(t, snapshot(), before, "%q changes git's folder", args)
	}
	for _, line := range []string{"cat a.txt > .git/config", "cat a.txt >> hooks/pre-commit", "cat evil.tar | tar -x", "tar -x < evil.tar"} {
		n++
		kit.Refused(t, kit.Err(b.line(line)), tool.CodeAccessDenied, "", line)
	}
	kit.Equal(t, snapshot(), before, "git's folder")
	t.Logf("%d attempts", n)
}

// snapshot describes the parts of .git that decide what runs.
func (b *bench) snapshot(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, path := range []string{".git", ".git/hooks", "apart", "apart/gd", "apart/gd/hooks", "apart/bare/hooks"} {
		entries := kit.Must(os.ReadDir(filepath.Join(b.root, path)))(t)
		for _, e := range entries {
			all.WriteString(path + "/" + e.Name() + "\n")
		}
	}
	for _, path := range []string{".git/config", "apart/gd/config"} {
		config := kit.Must(os.ReadFile(filepath.Join(b.root, path)))(t)
		all.Write(config)
	}
	return all.String()
}

// named lists the files with a name, and what is in them.
func (b *bench) named(t *testing.T, name string) string {
	t.Helper()
	var all strings.Builder
	kit.OK(t, filepath.WalkDir(b.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			content, _ := os.ReadFile(path)
			all.WriteString(path + ": " + string(content) + "\n")
		}
		return err
	}))
	return all.String()
}

// Policy is about paths, including those that no argument spells out.
func TestPolicyChecksFilesCopiedIntoAFolder(t *testing.T) {
	b := yard(t, newBench)
	b.write(t, "sub/b.txt", "x")
	s := scope{unwritten: "b.txt"}
	before := b.named(t, "b.txt")
	for _, args := range [][]string{
		{"cp", "tree/b.txt", "."}, {"cp", "tree/b.txt", "here"}, {"cp", "tree/b.txt", "./"}, {"cp", "-t", ".", "tree/b.txt"}, {"cp", "-t", "into", "a.txt", "tree/b.txt"}, {"cp", "-r", "tree", "copy"}, {"cp", "-r", "tree", "sub"}, {"cp", "-r", "tree/.", "."}, {"cp", "-r", "-t", "sub", "tree"}, {"cp", "--parents", "tree/b.txt", "sub"},
		{"cp", "-rT", "tree", "new"}, {"mv", "tree/b.txt", "sub"}, {"mv", "tree", "sub"}, {"mv", "-t", "sub", "tree"}, {"ln", "-s", "tree/b.txt", "into"}, {"ln", "tree/b.txt", "into"},
		{"tar", "-xf", "plain.tar"}, {"tar", "-xf", "plain.tar", "-C", "sub"}, {"tar", "-xf", "plain.tar", "--strip-components", "1"}, {"unzip", "-o", "plain.zip"}, {"unzip", "-oj", "plain.zip", "-d", "sub"}, {"rm", "-r", "tree"}, {"chmod", "-R", "a+r", "tree"},
	} {
		kit.Refused(t, kit.Err(b.scoped(s, args[0], args[1:]...)), tool.CodeAccessDenied, "", args)
		kit.MustEqual(t, b.named(t, "b.txt"), before, "%q changed", args)
	}
	for _, args := range [][]string{
		{"cp", "tree/a.txt", "into"}, {"cp", "-r", "tree/deep", "copy"}, {"cp", "-t", "sub", "tree/a.txt"}, {"mv", "tree/deep", "sub"}, {"ln", "-s", "a.txt", "into/link"},
		{"tar", "-xf", "plain.tar", "-C", "into", "p/one"}, {"tar", "-xf", "plain.tar", "--exclude=b.txt"}, {"unzip", "-o", "plain.zip", "p/one", "-d", "into"}, {"tar", "-tf", "plain.tar"}, {"unzip", "-l", "plain.zip"},
	} {
		if r, err := b.scoped(s, args[0], args[1:]...); err != nil || r.ExitCode != 0 {
			t.Errorf("%q: %+v, %v", args, r, err)
		}
	}
	for _, args := range [][]string{{"tar", "-xf", "secret.tar"}, {"unzip", "-o", "secret.zip"}, {"cp", "a.txt", "x/.env"}} {
		kit.Refused(t, kit.Err(b.exec(args[0], args[1:]...)), tool.CodeAccessDenied, "", args)
	}
}

// The actions of a script are not judged, but its room closes .git.
func TestAScriptFindsGitClosed(t *testing.T) {
	tooltest.NoLeaks(t)
	b := yard(t, newBench)
	if r, err := b.exec("git", "commit", "--allow-empty", "-m", "before"); err != nil || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	before := b.snapshot(t)
	b.write(t, "try.py", strings.ReplaceAll(`
import os, shutil
done = []
def attempt(name, f):
    try:
        f()
    except OSError:
        return
    done.append(name)
attempt("append", lambda: open(".git/config", "a").write("[core]\n"))
attempt("hook", lambda: open(".git/hooks/pre-commit", "w").write("#!/bin/sh\n"))
attempt("through a link", lambda: open("hooks/pre-push", "w").write("#!/bin/sh\n"))
attempt("worktree", lambda: open(".git/config.worktree", "w"))
attempt("attributes", lambda: (os.makedirs(".git/info", exist_ok=True), open(".git/info/attributes", "w")))
attempt("rename", lambda: os.rename(".git", ".old"))
attempt("replace", lambda: os.replace("git", ".git"))
attempt("replace the file", lambda: os.replace("a.txt", ".git/config"))
attempt("remove", lambda: os.unlink(".git/config"))
attempt("nested", lambda: open("up/.git/config", "a").write("x"))
attempt("chmod", lambda: os.chmod(".git/hooks", 0o777))
attempt("hard link", lambda: (os.link(".git/config", "mine"), open("mine", "a").write("x")))
os.makedirs("trap"); os.symlink("OUTSIDE", "trap/.git") # it must not be given to the next command
open("written.txt", "w").write("yes")
print(*done, sep=",")
`, "OUTSIDE", b.outside))
	r, err := b.exec("python3", "try.py")
	if err != nil || r.Stdout != "\n" {
		t.Errorf("%+v, %v", r, err)
	}
	kit.Equal(t, b.snapshot(t), before, "git's folder")
	kit.Check(t, kit.Err(os.Stat(filepath.Join(b.root, "written.txt"))), "the rest of the folder is closed too")
	b.write(t, "look.py", "print(open('trap/.git/secret.txt').read())\n")
	if r, err := b.exec("python3", "look.py"); err != nil || !strings.Contains(r.Stderr, "No such file") {
		t.Errorf("%+v, %v", r, err)
	}
	for _, args := range [][]string{{"add", "written.txt"}, {"commit", "-m", "after"}, {"branch", "topic"}, {"checkout", "-q", "-b", "more"}, {"branch", "--set-upstream-to=topic"}, {"branch", "-d", "topic"}} {
		if r, err := b.exec("git", args...); err != nil || r.ExitCode != 0 {
			t.Errorf("git %q: %+v, %v", args, r, err)
		}
	}
}

// An operator who needs a program that commits configures it, and names the repository.
func TestARepositoryCanBeGivenToPrograms(t *testing.T) {
	tooltest.NoLeaks(t)
	b := yard(t, func(t testing.TB, o Options) *bench {
		o.Walls.Write = []string{"root/.git"} // relative to the config's folder
		return newBench(t, o)
	})
	b.write(t, "commit.py", "open('.git/x', 'w'); open('up/.git/x', 'w')\n")
	r, err := b.exec("python3", "commit.py")
	if err != nil || !strings.Contains(r.Stderr, "Read-only file system: 'up/.git/x'") {
		t.Errorf("%+v, %v", r, err)
	}
}
