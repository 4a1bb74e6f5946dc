package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config/offlimits"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/regex"
)

// repositoryRuns matches the settings of a repository that name a program and that the environment cannot override: most
// have no fixed name, and an empty diff.external is run too. An included file may have any of them, later or on another branch.
var repositoryRuns = regex.Lazy(`^(include\.path|includeif\..*\.path|diff\.external|filter\..*\.(clean|smudge|process)|diff\..*\.(command|textconv)|merge\..*\.driver|trailer\..*\.(command|cmd))$`)

// networkRuns matches settings that only matter if git uses the network.
var networkRuns = regex.Lazy(`^(credential\..*\.helper|remote\..*\.(vcs|uploadpack|receivepack|proxy))$`)

// maxNested bounds the repositories within one.
const maxNested = 100

// guard checks the repository in which git is about to work, and those within it. Their configurations are below a root, so
// that a tool may have written them, and can name programs for git to run. A repository that does so is refused, and so is
// one outside the roots.
func (s *session) guard(v *verdict, closed *workspace.Closed) error {
	if v.repository == "" || v.code.covers(CodeTree) {
		return nil
	}
	todo := []string{v.repository}
	for n := 0; n < len(todo); n++ {
		if n > maxNested {
			return v.notHere("there are more than %d repositories within it", maxNested)
		}
		nested, err := s.inspect(v, todo[n], closed)
		if err != nil {
			return err
		}
		todo = append(todo, nested...)
	}
	return nil
}

// notHere refuses a command because of the place in which it would run.
func (v *verdict) notHere(format string, args ...any) error {
	return tool.Errorf(tool.CodeAccessDenied,
		"Command '%s' is not allowed by security policy here: %w", v.name, fmt.Errorf(format, args...)).
		Because("command_denied")
}

// inspect checks one repository and returns the folders of those within it.
func (s *session) inspect(v *verdict, at string, closed *workspace.Closed) (nested []string, err error) {
	dir, err := s.view.WorkDir(at)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	places, err := s.repository(v, dir)
	if err != nil || len(places) == 0 {
		return nil, err
	}
	list, code, err := s.ask(v, dir, nil, "config", "--list", "--name-only", "-z")
	if err != nil || code != 0 {
		return nil, v.notHere("the configuration of its repository cannot be read")
	}
	if err := checkSettings(v, list); err != nil {
		return nil, err
	}
	if err := s.reveal(v, dir, places[len(places)-1], closed); err != nil {
		return nil, err
	}
	return s.nested(v, dir, places[len(places)-1])
}

// reveal shows git those of the hidden files that it tracks and that are unchanged: it has their content anyway, and would
// take them for emptied. If it tracks others of them, it may only read. It ignores the rest, so as not to add them.
func (s *session) reveal(v *verdict, dir *workspace.File, top string, closed *workspace.Closed) error {
	outside := func(path string) bool { return !offlimits.Within(path, top) }
	inside := slices.DeleteFunc(slices.Clone(closed.Hidden), outside)
	if len(inside) == 0 {
		return nil
	}
	var lists [2][]string // the tracked files, and those among them with changes
	for i, kind := range []string{"--cached", "--modified"} {
		said, _, err := s.ask(v, dir, nil, append([]string{"--literal-pathspecs", "ls-files", "-z", "--full-name", kind, "--"}, inside...)...)
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(said), "\x00"), "\x00") {
			lists[i] = append(lists[i], filepath.Join(top, name))
		}
	}
	closed.Hidden = slices.DeleteFunc(closed.Hidden, func(path string) bool {
		return slices.Contains(lists[0], path) && !slices.Contains(lists[1], path)
	})
	ignored := ""
	for _, path := range slices.DeleteFunc(slices.Clone(closed.Hidden), outside) {
		if i := slices.IndexFunc(lists[0], func(tracked string) bool { return offlimits.Within(tracked, path) }); i >= 0 && v.changes {
			return v.notHere("%s is tracked, has changes and may not be read, so that git would take it for emptied; commit or "+
				"restore it by hand", strings.TrimPrefix(lists[0][i], top+"/"))
		}
		ignored += strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `).Replace(strings.TrimPrefix(path, top)) + "\n"
	}
	return os.WriteFile(s.work.gitignore, []byte(ignored), 0o600)
}

// nested returns the folders of repositories that are entries in the index of another: its submodules, declared or not. Git
// asks them for their state, and they have configurations of their own.
func (s *session) nested(v *verdict, dir *workspace.File, top string) ([]string, error) {
	var folders []string
	_, _, err := s.ask(v, dir, func(line string) error {
		entry, name, _ := strings.Cut(line, "\t")
		if !strings.HasPrefix(entry, "160000 ") {
			return nil
		}
		if strings.HasPrefix(name, `"`) {
			return v.notHere("the name of its submodule %s cannot be read", name)
		}
		folder := filepath.Join(top, name)
		if _, err := os.Lstat(filepath.Join(folder, ".git")); err == nil {
			folders = append(folders, folder)
		}
		return nil
	}, "ls-files", "--stage", "--full-name", ":/")
	return folders, err
}

// repository finds the repository and its tree, and refuses those outside the offered folders. There may be none.
func (s *session) repository(v *verdict, dir *workspace.File) ([]string, error) {
	said, _, err := s.ask(v, dir, nil, "rev-parse", "--absolute-git-dir", "--git-common-dir", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	places := strings.Split(strings.TrimSuffix(string(said), "\n"), "\n")
	if places[0] == "" {
		return nil, nil
	}
	return places, each(places, func(at string) error { return s.offered(v, dir, at) })
}

// offered refuses a repository, or a work tree, that is not below an offered folder.
func (s *session) offered(v *verdict, dir *workspace.File, at string) error {
	if !filepath.IsAbs(at) {
		at = filepath.Join(dir.Abs(), at)
	}
	real, err := filepath.EvalSymlinks(at)
	if err != nil {
		return v.notHere("its repository cannot be looked at: %w", err)
	}
	if slices.ContainsFunc(s.view.Roots(), func(r workspace.Root) bool { return offlimits.Within(real, r.Dir) }) {
		return nil
	}
	return v.notHere("its repository, or the tree of it, is %s, outside of the offered folders", at)
}

func checkSettings(v *verdict, list []byte) error {
	alias := "alias." + strings.ToLower(v.subcommand)
	for key := range bytes.SplitSeq(list, []byte{0}) {
		name := string(key)
		if repositoryRuns().MatchString(name) || v.network && networkRuns().MatchString(name) || name == alias {
			return v.notHere("the configuration of its repository has %s, which can name a program to run; take it out, or "+
				"let a rule for git say code: tree", name)
		}
	}
	return nil
}

// ask runs a read-only subcommand of git, and returns its output and exit code. A non-nil each receives the output line by
// line instead, as there may be many lines.
func (s *session) ask(v *verdict, dir *workspace.File, each func(string) error, args ...string) ([]byte, int, error) {
	const most = 1 << 20
	looks := *v
	looks.changes = false
	child, err := s.start(append([]string{v.argv[0]}, args...), dir, &looks, workspace.Closed{}, nil)
	if err != nil {
		return nil, 0, err
	}
	defer child.Close()
	kill := context.AfterFunc(s.ctx, func() { child.Kill() })
	defer kill()
	child.CloseStdin()
	var said []byte
	if each == nil {
		said, err = bounded.ReadDocument(child.Stdout, most)
	} else {
		err = eachLine(child.Stdout, each)
	}
	if err != nil {
		return nil, 0, err
	}
	return said, child.Wait().Code, s.ctx.Err()
}

func eachLine(r io.Reader, each func(string) error) error {
	for lines := bounded.NewLines(r, bounded.LineLimits{Line: 1 << 16}); ; {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(string(line))
		}
		if err != nil {
			return err
		}
	}
}
