package code

import (
	"cmp"
	"encoding/json"
	"strings"

	"toolpost/codesearch/split"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// maxListed is how many files of codebases are listed. With more it is an error: half a list would be taken for a whole
// one.
const maxListed = 100_000

type codebasesArgs struct {
	Codebase  string `json:"codebase_id"`
	Codebase2 string `json:"codebaseId"`
	Path      string `json:"path"`
	Language  string `json:"language"`
	Pattern   string `json:"pattern"`
}

func (a codebasesArgs) codebase() string { return cmp.Or(a.Codebase, a.Codebase2) }

// A codebase is one line of listCodebases.
type codebase struct {
	ID    string `json:"codebase_id"`
	Path  string `json:"path"`
	Write bool   `json:"write"`
}

// A listed file is one of a codebase, in the words of listFiles.
type listed struct {
	Path     string         `json:"path"`
	Size     int64          `json:"size"`
	Type     string         `json:"type"`
	Language split.Language `json:"language"`
}

// codebasesSpec is one tool for two things because a subject of the known client is: tools.code.list.
func codebasesSpec() *tool.Spec {
	return &tool.Spec{
		Name:  "listCodebases",
		Title: "List codebases, or the files of one",
		Description: "Without arguments lists the codebases that you may look into, with the id that the other code tools " +
			"take as codebase_id, the folder, and whether it may be written. With a codebase_id, or any other argument, lists " +
			"the files there, less those that ignore files such as .gitignore name and hidden ones.",
		Aliases: []string{"code.list"},
		Timeout: searchTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "pattern": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Which files to list, such as *.ex or src/**/*.ts."},
    "language": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Only files of this language, such as elixir or typescript."},` + targetSchema + `
  },
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "array",
  "items": {
    "type": "object",
    "properties": {
      "path": {"type": "string"},
      "codebase_id": {"type": "string"},
      "write": {"type": "boolean"},
      "size": {"type": "integer"},
      "type": {"const": "file"},
      "language": {"type": "string"}
    },
    "required": ["path"]
  }
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func (t *Tools) codebasesTouches(v *workspace.View, a codebasesArgs) ([]string, error) {
	if a == (codebasesArgs{}) {
		return nil, nil
	}
	return abs(targets(v, a.codebase(), a.Path))
}

func (t *Tools) listCodebases(r *request, a codebasesArgs) (*tool.Result, error) {
	if a != (codebasesArgs{}) {
		return t.listCode(r, a)
	}
	list := []codebase{}
	for _, root := range r.view.Roots() {
		list = append(list, codebase{root.Codebase, root.Dir, root.Write})
	}
	output, err := strictjson.Marshal(list)
	return &tool.Result{OK: true, Output: output}, err
}

// listCode lists files.
func (t *Tools) listCode(r *request, a codebasesArgs) (*tool.Result, error) {
	o := workspace.WalkOptions{Recursive: true, Ignore: true}
	if a.Pattern != "" {
		o.Globs = []string{a.Pattern}
	}
	found := []listed{}
	err := eachTarget(r.view, a.codebase(), a.Path, func(at target) error {
		if err := t.rates.charge(r.call.Caller.ID, at.root.Codebase); err != nil {
			return err
		}
		return at.view.Walk(r, at.name, o, func(e *workspace.Entry) error {
			language := split.LanguageOf(e.Name)
			if !e.Type.IsRegular() || a.Language != "" && !strings.EqualFold(a.Language, string(language)) {
				return nil
			}
			if len(found) == maxListed {
				return tool.Errorf(tool.CodeInvalidInput, "there are more than %d files; give a path or a pattern", maxListed).
					Because("too_large")
			}
			info, err := e.Info()
			if tool.CodeOf(err) == tool.CodeNotFound { // it was removed while we came to it
				return nil
			}
			if err == nil {
				found = append(found, listed{at.shown(e.Below()), info.Size(), "file", language})
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	output, err := strictjson.Marshal(found)
	return &tool.Result{OK: true, Output: output, Summary: count(len(found), "file")}, err
}
