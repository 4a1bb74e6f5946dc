// Package symbol finds the definitions and uses of names, and the dependencies of files and projects. It reads one source
// at a time and does not know where that comes from.
package symbol

import (
	"bytes"
	"regexp"
	"slices"

	"toolpost/codesearch/split"
	"toolpost/wire/regex"
)

// A Definition is a name and the place of its definition.
type Definition struct {
	Name      string `json:"name"`
	Owner     string `json:"owner,omitempty" doc:"The type or module that it belongs to."`
	Kind      string `json:"kind" schema:"enum=function|type|section|variable"`
	Line      int    `json:"line" schema:"minimum=1"`
	Last      int    `json:"last_line" schema:"minimum=1"`
	Signature string `json:"signature" doc:"The line that defines it."`
}

// Variable is the kind of everything that is neither function nor type: variables, constants, macros.
const Variable = "variable"

// maxSignature is how many bytes of a line are shown.
const maxSignature = 200

// Definitions lists the definitions of a source, in order.
func Definitions(l split.Language, src []byte) []Definition {
	lines := bytes.Split(src, []byte{'\n'})
	var list []Definition
	for _, p := range split.Parts(l, src) {
		if p.Kind == split.Block {
			continue
		}
		if n := len(list) - 1; n >= 0 && list[n].Line == p.Define && list[n].Name == p.Name {
			list[n].Last = p.Last // another piece of a long part
			continue
		}
		list = append(list, Definition{
			Name: p.Name, Owner: p.Owner, Kind: string(p.Kind), Line: p.Define, Last: p.Last,
			Signature: lineAt(lines, p.Define),
		})
	}
	list = append(list, variables(l, src, lines)...)
	slices.SortStableFunc(list, func(a, b Definition) int { return a.Line - b.Line })
	return list
}

// lineAt returns a line in the form in which it is shown.
func lineAt(lines [][]byte, n int) string {
	text := bytes.TrimSpace(lines[n-1])
	return string(bytes.ToValidUTF8(text[:min(len(text), maxSignature)], []byte("\uFFFD")))
}

// The beginnings of variables and constants at the top level of a file.
var (
	goVariable     = regex.Lazy(`^(?:var|const)\s+(\w+)`)
	goGroup        = regex.Lazy(`^(?:var|const)\s*\(`)
	goInGroup      = regex.Lazy(`^\t([A-Za-z_]\w*)\b`)
	scriptVariable = regex.Lazy(`^(?:export\s+)?(?:const|let|var)\s+([\w$]+)`)
	pythonVariable = regex.Lazy(`^([A-Za-z_]\w*)\s*(?::[^=]+)?=[^=]`)
	rustVariable   = regex.Lazy(`^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const|static)\s+(?:mut\s+)?(\w+)\s*:`)
	cMacro         = regex.Lazy(`^\s*#\s*define\s+(\w+)`)
	rubyConstant   = regex.Lazy(`^\s*([A-Z]\w*)\s*=[^=~]`)
	elixirConstant = regex.Lazy(`^\s*@([a-z_]+)\s+[^\s]`)
)

// variables lists the variables and constants of a source.
func variables(l split.Language, src []byte, lines [][]byte) []Definition {
	begins := map[split.Language]func() *regexp.Regexp{
		split.Go: goVariable, split.JavaScript: scriptVariable, split.TypeScript: scriptVariable,
		split.Python: pythonVariable, split.Rust: rustVariable, split.C: cMacro, split.CPP: cMacro,
		split.Ruby: rubyConstant, split.Elixir: elixirConstant,
	}[l]
	if begins == nil {
		return nil
	}
	code := bytes.Split(split.Code(l, src), []byte{'\n'})
	if l == split.C || l == split.CPP {
		code = lines // directives are not code
	}
	var list []Definition
	group := false
	for i, line := range code {
		m := begins().FindSubmatch(line)
		if l == split.Go {
			switch {
			case goGroup().Match(line):
				group = true
				continue
			case len(line) > 0 && line[0] == ')':
				group = false
			case group:
				m = goInGroup().FindSubmatch(line)
			}
		}
		if m != nil && !functional(l, line) && !attribute(l, m[1]) {
			list = append(list, Definition{
				Name: string(m[1]), Kind: Variable, Line: i + 1, Last: i + 1, Signature: lineAt(lines, i+1),
			})
		}
	}
	return list
}

// functional reports whether a JavaScript variable is a function, and so listed as a function.
func functional(l split.Language, line []byte) bool {
	return (l == split.JavaScript || l == split.TypeScript) &&
		(bytes.Contains(line, []byte("=>")) || bytes.Contains(line, []byte("function")))
}

// attribute reports whether an attribute of Elixir is built into the language.
func attribute(l split.Language, name []byte) bool {
	switch string(name) {
	case "doc", "moduledoc", "spec", "type", "typep", "opaque", "callback", "impl", "behaviour", "typedoc",
		"deprecated", "derive", "enforce_keys":
		return l == split.Elixir
	}
	return false
}

// A Reference is a line that uses a name.
type Reference struct {
	Line    int    `json:"line" schema:"minimum=1"`
	Column  int    `json:"column" schema:"minimum=1" doc:"In bytes, from 1."`
	Content string `json:"content"`
	Defines bool   `json:"defines,omitzero" doc:"It is where the name is defined."`
}

// References lists the lines that use a name as a whole word in code, not in comments or strings. Each line is listed
// once.
func References(l split.Language, src []byte, name string, limit int) []Reference {
	if name == "" || !bytes.Contains(src, []byte(name)) {
		return nil
	}
	code := split.Code(l, src)
	lines := bytes.Split(src, []byte{'\n'})
	defined := map[int]bool{}
	for _, d := range Definitions(l, src) {
		if d.Name == name {
			defined[d.Line] = true
		}
	}
	var list []Reference
	for n, line := range bytes.Split(code, []byte{'\n'}) {
		if i := wordIn(line, name); i >= 0 {
			list = append(list, Reference{
				Line: n + 1, Column: i + 1, Content: lineAt(lines, n+1), Defines: defined[n+1],
			})
			if len(list) == limit {
				return list
			}
		}
	}
	return list
}

// wordIn returns the position of a name as a whole word, or -1.
func wordIn(line []byte, name string) int {
	for at := 0; ; {
		i := bytes.Index(line[at:], []byte(name))
		if i < 0 {
			return -1
		}
		i += at
		end := i + len(name)
		if (i == 0 || !split.IsWord(line[i-1])) && (end == len(line) || !split.IsWord(line[end])) {
			return i
		}
		at = i + 1
	}
}
