package codesearch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"toolpost/codesearch/meaning"
	"toolpost/codesearch/split"
	"toolpost/codesearch/symbol"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// Limits on the files that one question reads, and on its answers.
const (
	maxFiles         = 5000
	defaultSymbols   = 100
	maxSymbols       = 1000
	maxSymbolLetters = 200
)

// Limited holds the arguments that all questions about symbols share.
type Limited struct {
	Limit int `json:"limit" schema:"minimum=1 maximum=1000 default=100" doc:"Maximum number of results."`
	Where
}

// A FindQuery asks where a name is defined.
type FindQuery struct {
	Name string `json:"name" schema:"required minLength=1 maxLength=200" doc:"The name, or a part of it. Example: parseHeader"`
	Kind string `json:"kind" schema:"enum=function|type|section|variable" doc:"Only definitions of this kind."`
	Limited
}

// A ReferencesQuery asks where a name is used.
type ReferencesQuery struct {
	Name string `json:"name" schema:"required minLength=1 maxLength=200" doc:"The name. Example: parseHeader"`
	Limited
}

// A SymbolsQuery asks for the definitions of files.
type SymbolsQuery struct {
	Kind string `json:"kind" schema:"enum=function|type|section|variable" doc:"Only definitions of this kind."`
	Limited
}

// A Definition is the place that defines a name.
type Definition struct {
	Path string `json:"path"`
	symbol.Definition
}

// A Reference is a use of a name.
type Reference struct {
	Path string `json:"path"`
	symbol.Reference
}

// A lookFunc receives a file: its path as the caller sees it, its language and its text.
type lookFunc func(path string, lang split.Language, src []byte) error

// eachFile passes the files of a call's targets that the index proposes to look, in the proposed order.
func (l *Library) eachFile(r *asked, where Where, propose func(*meaning.Index) []string, look lookFunc) error {
	return eachTarget(r.view, where, func(at target) error {
		w, err := l.open(r, at, &workspace.Globs{})
		if w == nil {
			return err
		}
		for rel, src := range w.files(propose(w.index)) {
			if err := errors.Join(r.Err(), look(w.shown(rel), split.LanguageOf(rel), src)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *Limited) check(name string, named bool) error {
	q.Limit = cmp.Or(q.Limit, defaultSymbols)
	unnamed := named && strings.TrimSpace(name) == ""
	if q.Limit < 1 || q.Limit > maxSymbols || len(name) > 4*maxSymbolLetters || unnamed {
		return tool.Errorf(tool.CodeInvalidInput, "a name has 1 to %d letters, and limit is 1 to %d",
			maxSymbolLetters, maxSymbols)
	}
	return nil
}

// closeness returns how well a name fits the wanted one, or 0 if it does not.
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

// Find finds the definitions of a name: exact matches first, then names that contain it. More reports that there are
// others beyond the limit.
func (l *Library) Find(ctx context.Context, c Call, q FindQuery) (found []Definition, more bool, err error) {
	if err := q.check(q.Name, true); err != nil {
		return nil, false, err
	}
	// Files that define exactly this name come first, so that the limit on files does not hide them.
	propose := func(x *meaning.Index) []string {
		named := x.FilesNaming(func(name string) bool { return closeness(name, q.Name) >= 2 })
		partly := x.FilesNaming(func(name string) bool { return closeness(name, q.Name) == 1 })
		return unique(named, x.FilesWith(q.Name), partly)
	}
	err = l.eachFile(l.ask(ctx, c), q.Where, propose, func(path string, lang split.Language, src []byte) error {
		for _, d := range symbol.Definitions(lang, src) {
			if closeness(d.Name, q.Name) > 0 && (q.Kind == "" || q.Kind == d.Kind) {
				found = append(found, Definition{path, d})
			}
		}
		return nil
	})
	slices.SortStableFunc(found, func(x, y Definition) int {
		return cmp.Or(closeness(y.Name, q.Name)-closeness(x.Name, q.Name), cmp.Compare(len(x.Name), len(y.Name)),
			strings.Compare(x.Path, y.Path), x.Line-y.Line)
	})
	return capped(found, q.Limit, err)
}

// References finds the lines of code that use a name as a whole word.
func (l *Library) References(
	ctx context.Context, c Call, q ReferencesQuery,
) (found []Reference, more bool, err error) {
	if err := q.check(q.Name, true); err != nil {
		return nil, false, err
	}
	propose := func(x *meaning.Index) []string { return x.FilesWith(q.Name) }
	err = l.eachFile(l.ask(ctx, c), q.Where, propose, func(path string, lang split.Language, src []byte) error {
		for _, ref := range symbol.References(lang, src, q.Name, q.Limit+1-len(found)) {
			found = append(found, Reference{path, ref})
		}
		return enough(found, q.Limit)
	})
	return capped(found, q.Limit, err)
}

// Symbols lists the definitions of files.
func (l *Library) Symbols(
	ctx context.Context, c Call, q SymbolsQuery,
) (found []Definition, more bool, err error) {
	if err := q.check("", false); err != nil {
		return nil, false, err
	}
	propose := func(x *meaning.Index) []string { return x.FilesWith("") }
	err = l.eachFile(l.ask(ctx, c), q.Where, propose, func(path string, lang split.Language, src []byte) error {
		for _, d := range symbol.Definitions(lang, src) {
			if q.Kind == "" || q.Kind == d.Kind {
				found = append(found, Definition{path, d})
			}
		}
		return enough(found, q.Limit)
	})
	return capped(found, q.Limit, err)
}

// enough stops once there is one answer more than was requested.
func enough[T any](found []T, limit int) error {
	if len(found) > limit {
		return errEnough
	}
	return nil
}

// capped returns a list, never nil, cut to the limit, and whether it was longer.
func capped[T any](list []T, limit int, err error) ([]T, bool, error) {
	if err != nil {
		return nil, false, err
	}
	if len(list) > limit {
		return list[:limit], true, nil
	}
	return append([]T{}, list...), false, nil
}

// unique joins lists and keeps the first of equal items.
func unique(lists ...[]string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(lists...), func(s string) bool {
		had := seen[s]
		seen[s] = true
		return had
	})
}
