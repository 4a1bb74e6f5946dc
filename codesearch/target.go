package codesearch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"toolpost/codesearch/split"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// A target is a folder or file to look into: a codebase, or something in it.
type target struct {
	root workspace.Root
	view *workspace.View // of this root alone, limited to what the call may see
	rel  string          // below the root; "." is the root itself
	// Every path of an answer must work unchanged in the other tools, which know nothing of codebases. So a path begins
	// with what the caller wrote only if that means the same without the codebase. Otherwise it is relative in the first
	// root, at which relative paths start, and absolute in the others. A relative path with a slash in front means the
	// same: the contract writes it that way.
	home   string // prefix of paths below the root
	prefix string // prefix of paths below the target
	path   string // the target itself; empty for the whole codebase
	name   string // the name to open in the view: what the caller wrote, without the slash of a path that starts at the codebase
	denied error  // the error for such a path if it does not exist
}

// errEnough stops the visit of targets or files once there are enough answers.
var errEnough = errors.New("enough")

// eachTarget visits the targets of a call in turn. A path is looked up in the first codebase that has it.
func eachTarget(v *workspace.View, w Where, look func(target) error) error {
	list, err := targets(v, w)
	if err != nil {
		return err
	}
	var missing error
	for _, at := range list {
		err := look(at)
		switch {
		case errors.Is(err, errEnough):
			return nil
		case w.Path != "" && tool.CodeOf(err) == tool.CodeNotFound:
			missing = cmp.Or(at.denied, err) // first tell the caller that it may not read the path
		case err != nil || w.Path != "":
			return err
		}
	}
	return missing
}

// targets returns the targets that a call's arguments name: without a codebase all that the caller sees, without a path
// the whole codebase. An absolute path below no root starts at the codebase: the contract writes /lib for its folder lib.
func targets(all *workspace.View, w Where) (list []target, err error) {
	v, err := all.Codebase(w.codebase())
	switch {
	case err != nil:
		return nil, err
	case w.Path == "":
		for _, r := range v.Roots() {
			list = append(list, newTarget(r, all))
		}
		return list, nil
	}
	name, denied := v.AtCodebase(w.Path)
	places, err := v.LocateAll(name)
	if err != nil {
		return nil, cmp.Or(denied, err)
	}
	for _, p := range places {
		t := newTarget(p.Root, all)
		t.rel, t.path, t.name, t.denied = p.Rel, w.Path, name, denied
		if t.home != "" && (w.codebase() != "" && (denied != nil || !filepath.IsAbs(w.Path)) || w.Path == "/") {
			t.path = filepath.Join(p.Root.Dir, p.Rel)
		}
		t.prefix = strings.TrimRight(t.path, "/") + "/"
		list = append(list, t)
	}
	return list, nil
}

func (w Where) codebase() string { return cmp.Or(w.Codebase, w.Codebase2) }

// newTarget returns the target of a whole codebase. All is the view of the caller.
func newTarget(r workspace.Root, all *workspace.View) target {
	one, _ := all.Codebase(r.Codebase) // it is one of all's roots, so it exists
	t := target{root: r, view: one, rel: ".", name: "."}
	if r.Codebase != all.Roots()[0].Codebase || all.Ambiguous() {
		t.home = r.Dir + "/"
	}
	t.prefix = t.home
	return t
}

// shown returns the path of a file below the target as the caller sees it.
func (t target) shown(below string) string { return strings.ToValidUTF8(t.prefix+below, "\uFFFD") }

// below returns the prefix of the paths of everything in the target.
func (t target) below() string {
	if t.rel == "." {
		return ""
	}
	return t.rel + "/"
}

// unscoped returns the codebase as its index sees it: including files that the policy hides from this call alone, but
// without sensitive ones.
func (l *Library) unscoped(c *tool.Call, r workspace.Root) (*workspace.View, error) {
	return l.ws.View(&tool.Call{Caller: c.Caller}).Codebase(r.Codebase)
}

// stateOf returns the folder for the state of a codebase.
func (l *Library) stateOf(r workspace.Root, what string) string {
	sum := sha256.Sum256([]byte(r.Dir))
	return filepath.Join(l.stateDir, "code", fmt.Sprintf("%x", sum[:8]), what)
}

// maxListed is how many files are listed. More is an error: half a list would be taken for a whole one.
const maxListed = 100_000

// A Codebase is a codebase that a caller may look into.
type Codebase struct {
	ID    string `json:"codebase_id"`
	Path  string `json:"path"`
	Write bool   `json:"write"`
}

// Codebases lists the codebases that the caller sees.
func (l *Library) Codebases(c *tool.Call) []Codebase {
	list := []Codebase{}
	for _, root := range l.ws.View(c).Roots() {
		list = append(list, Codebase{root.Codebase, root.Dir, root.Write})
	}
	return list
}

// A FileQuery asks for files.
type FileQuery struct {
	Pattern  string `json:"pattern" schema:"minLength=1 maxLength=256" doc:"Which files to list, such as *.ex or src/**/*.ts."`
	Language string `json:"language" schema:"minLength=1 maxLength=64" doc:"Only files of this language, such as elixir or typescript."`
	Where
}

// A File is a file of a codebase, with the fields of the file tools.
type File struct {
	Path     string         `json:"path"`
	Size     int64          `json:"size"`
	Type     string         `json:"type"`
	Language split.Language `json:"language"`
}

// Files lists the files of codebases, without hidden ones and those excluded by ignore files.
func (l *Library) Files(ctx context.Context, c *tool.Call, q FileQuery) ([]File, error) {
	o := workspace.WalkOptions{Recursive: true, Ignore: true}
	if q.Pattern != "" {
		o.Globs = []string{q.Pattern}
	}
	found := []File{}
	err := eachTarget(l.ws.View(c), q.Where, func(at target) error {
		if err := l.rates.charge(c.Caller.ID, at.root.Codebase); err != nil {
			return err
		}
		return at.view.Walk(ctx, at.name, o, func(e *workspace.Entry) error {
			language := split.LanguageOf(e.Name)
			if !e.Type.IsRegular() || q.Language != "" && !strings.EqualFold(q.Language, string(language)) {
				return nil
			}
			if len(found) == maxListed {
				return tool.Errorf(tool.CodeInvalidInput, "there are more than %d files; give a path or a pattern",
					maxListed).Because("too_large")
			}
			info, err := e.Info()
			if tool.CodeOf(err) == tool.CodeNotFound { // it was removed in the meantime
				return nil
			}
			if err == nil {
				found = append(found, File{at.shown(e.Below()), info.Size(), "file", language})
			}
			return err
		})
	})
	return found, err
}
