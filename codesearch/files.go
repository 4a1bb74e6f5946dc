package codesearch

import (
	"context"
	"strings"

	"toolpost/codesearch/split"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// maxListed is how many files of codebases are listed. With more it is an error: half a list would be taken for a whole
// one.
const maxListed = 100_000

// A Codebase is one that a caller may look into.
type Codebase struct {
	ID    string `json:"codebase_id"`
	Path  string `json:"path"`
	Write bool   `json:"write"`
}

// Codebases lists those that the caller sees.
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

// Looks is false of a query that says nothing: it is for the list of codebases.
func (q FileQuery) Looks() (Where, bool) { return q.Where, q != FileQuery{} }

// A File is one of a codebase, in the words of the tools for files.
type File struct {
	Path     string         `json:"path"`
	Size     int64          `json:"size"`
	Type     string         `json:"type"`
	Language split.Language `json:"language"`
}

// Files lists the files of codebases, less those that ignore files name and hidden ones.
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
			if tool.CodeOf(err) == tool.CodeNotFound { // it was removed while we came to it
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
