package code

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
	"toolpost/codesearch/symbol"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// How many files one question about a name looks into, and how many answers it gives.
const (
	maxSymbolFiles   = 5000
	defaultSymbols   = 100
	maxSymbols       = 1000
	maxSymbolLetters = 200
)

type symbolArgs struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Path      string `json:"path"`
	Limit     int    `json:"limit"`
	Codebase  string `json:"codebase_id"`
	Codebase2 string `json:"codebaseId"`
}

func (a symbolArgs) codebase() string { return cmp.Or(a.Codebase, a.Codebase2) }

// definition is a definition with the path of its file.
type definition struct {
	Path string `json:"path"`
	symbol.Definition
}

// reference is a reference with the path of its file.
type reference struct {
	Path string `json:"path"`
	symbol.Reference
}

const symbolTargets = `
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100, "description": "How many to give at most."},` + targetSchema + `
  },`

const definitionSchema = `
      "path": {"type": "string"},
      "name": {"type": "string"},
      "owner": {"type": "string", "description": "The type or module that it belongs to."},
      "kind": {"enum": ["function", "type", "section", "variable"]},
      "line": {"type": "integer", "minimum": 1},
      "last_line": {"type": "integer", "minimum": 1},
      "signature": {"type": "string", "description": "The line that defines it."}
    },
    "required": ["path", "name", "kind", "line", "last_line", "signature"]
  }
}`

func findSymbolSpec() *tool.Spec {
	return &tool.Spec{
		Name:  "findSymbol",
		Title: "Find where a name is defined",
		Description: "Finds the definitions of functions, types, constants and variables by name: those that are the name first, then those that have it in them. " +
			"Understands Go, Python, JavaScript, TypeScript, Java, Rust, C, C++, Ruby, Elixir and others with braces; in Markdown the headings.",
		Aliases: []string{"symbol.find"},
		Timeout: searchTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The name, or a part of it. Example: parseHeader"},
    "kind": {"enum": ["function", "type", "section", "variable"], "description": "Only definitions of this kind."},` + symbolTargets + `
  "required": ["name"],
  "additionalProperties": false
}`),
		Output:  json.RawMessage(`{"type": "array", "items": {"type": "object", "properties": {` + definitionSchema),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func findReferencesSpec() *tool.Spec {
	return &tool.Spec{
		Name:  "findReferences",
		Title: "Find where a name is used",
		Description: "Finds the lines of code that use a name as a whole word, sorted by path. Comments and texts in quotes do not count. Two things " +
			"of the same name are not told apart.",
		Aliases: []string{"symbol.refs"},
		Timeout: searchTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The name. Example: parseHeader"},` + symbolTargets + `
  "required": ["name"],
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "array",
  "items": {
    "type": "object",
    "properties": {
      "path": {"type": "string"},
      "line": {"type": "integer", "minimum": 1},
      "column": {"type": "integer", "minimum": 1, "description": "In bytes, from 1."},
      "content": {"type": "string"},
      "defines": {"type": "boolean", "description": "It is where the name is defined."}
    },
    "required": ["path", "line", "column", "content"]
  }
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func listSymbolsSpec() *tool.Spec {
	return &tool.Spec{
		Name:        "listSymbols",
		Title:       "List what is defined",
		Description: "Lists the functions, types, constants and variables of a file, or of all files of a folder, sorted by path and line.",
		Aliases:     []string{"symbol.list"},
		Timeout:     searchTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "kind": {"enum": ["function", "type", "section", "variable"], "description": "Only definitions of this kind."},` + symbolTargets + `
  "additionalProperties": false
}`),
		Output:  json.RawMessage(`{"type": "array", "items": {"type": "object", "properties": {` + definitionSchema),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func (t *Tools) symbolTouches(v *workspace.View, a symbolArgs) ([]string, error) {
	return abs(targets(v, a.codebase(), a.Path))
}

// eachFile looks at the files of a call's targets that the index proposes, in the order that it gives. Those that have gone, or that
// the call may not see, are passed over.
func (t *Tools) eachFile(r *request, a symbolArgs, propose func(*meaning.Index) []string, look func(path string, l split.Language, src []byte) error) error {
	return eachTarget(r.view, a.codebase(), a.Path, func(at target) error { return t.eachFileOf(r, at, propose, look) })
}

func (t *Tools) eachFileOf(r *request, at target, propose func(*meaning.Index) []string, look func(path string, l split.Language, src []byte) error) error {
	w, err := t.within(r, at, &workspace.Globs{})
	if err != nil {
		return err
	}
	x, _, err := t.meanings.fresh(r, t, at.root)
	if x == nil {
		return err
	}
	files := 0
	for _, rel := range propose(x) {
		if !w.wants(rel) {
			continue
		}
		if files++; files > maxSymbolFiles {
			return nil
		}
		src, err := w.read(rel)
		if err != nil {
			continue
		}
		if err := errors.Join(r.Err(), look(w.shown(rel), split.LanguageOf(rel), src)); err != nil {
			return err
		}
	}
	return nil
}

func (a *symbolArgs) check(needsName bool) error {
	if a.Limit == 0 {
		a.Limit = defaultSymbols
	}
	if a.Limit < 1 || a.Limit > maxSymbols || len(a.Name) > 4*maxSymbolLetters || needsName && strings.TrimSpace(a.Name) == "" {
		return tool.Errorf(tool.CodeInvalidInput, "a name has 1 to %d letters, and limit is 1 to %d", maxSymbolLetters, maxSymbols)
	}
	return nil
}

// closeness says how well a name fits the one that is looked for; 0: not at all.
func closeness(name, wanted string) int {
	switch {
	case name == wanted:
		return 3
	case strings.EqualFold(name, wanted):
		return 2
	case strings.Contains(strings.ToLower(name), strings.ToLower(wanted)):
		return 1
	}
	return 0
}

func (t *Tools) findSymbol(r *request, a symbolArgs) (*tool.Result, error) {
	if err := a.check(true); err != nil {
		return nil, err
	}
	found := []definition{}
	// Files with a definition of that very name come first, so that the bound on files does not hide them.
	propose := func(x *meaning.Index) []string {
		named := x.FilesNaming(func(name string) bool { return closeness(name, a.Name) >= 2 })
		partly := x.FilesNaming(func(name string) bool { return closeness(name, a.Name) == 1 })
		return unique(named, x.FilesWith(a.Name), partly)
	}
	err := t.eachFile(r, a, propose, func(path string, l split.Language, src []byte) error {
		for _, d := range symbol.Definitions(l, src) {
			if closeness(d.Name, a.Name) > 0 && (a.Kind == "" || a.Kind == d.Kind) {
				found = append(found, definition{path, d})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(x, y definition) int {
		return cmp.Or(closeness(y.Name, a.Name)-closeness(x.Name, a.Name), cmp.Compare(len(x.Name), len(y.Name)), strings.Compare(x.Path, y.Path), x.Line-y.Line)
	})
	return answer(found, a.Limit, "definitions")
}

func (t *Tools) findReferences(r *request, a symbolArgs) (*tool.Result, error) {
	if err := a.check(true); err != nil {
		return nil, err
	}
	found := []reference{}
	propose := func(x *meaning.Index) []string { return x.FilesWith(a.Name) }
	err := t.eachFile(r, a, propose, func(path string, l split.Language, src []byte) error {
		for _, ref := range symbol.References(l, src, a.Name, a.Limit+1-len(found)) {
			found = append(found, reference{path, ref})
		}
		if len(found) > a.Limit {
			return errEnough
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer(found, a.Limit, "references")
}

func (t *Tools) listSymbols(r *request, a symbolArgs) (*tool.Result, error) {
	if err := a.check(false); err != nil {
		return nil, err
	}
	found := []definition{}
	propose := func(x *meaning.Index) []string { return x.FilesWith("") }
	err := t.eachFile(r, a, propose, func(path string, l split.Language, src []byte) error {
		for _, d := range symbol.Definitions(l, src) {
			if a.Kind == "" || a.Kind == d.Kind {
				found = append(found, definition{path, d})
			}
		}
		if len(found) > a.Limit {
			return errEnough
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer(found, a.Limit, "definitions")
}

// unique joins lists and keeps the first of what is the same.
func unique(lists ...[]string) []string {
	seen := map[string]bool{}
	var all []string
	for _, s := range slices.Concat(lists...) {
		if !seen[s] {
			seen[s] = true
			all = append(all, s)
		}
	}
	return all
}

// answer gives a list, cut where it is longer than was asked for.
func answer[T any](list []T, limit int, what string) (*tool.Result, error) {
	summary := fmt.Sprintf("%d %s", min(len(list), limit), what)
	if len(list) > limit {
		list = list[:limit]
		summary += "; there are more: narrow the path, or give a larger limit"
	}
	output, err := strictjson.Marshal(list)
	return &tool.Result{OK: true, Output: output, Summary: summary}, err
}
