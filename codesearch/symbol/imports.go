package symbol

import (
	"bytes"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"

	"toolpost/codesearch/split"
	"toolpost/wire/regex"
)

// An Import is an import of a source file.
type Import struct {
	Name string `json:"name"` // as the language writes it: a package, a module or a file
	Line int    `json:"line"`
	Path string `json:"path,omitempty"` // the file or folder that it means, if a Project has it
}

// The import statements of the languages. The names are looked up in the source itself, on lines that begin with code.
var (
	pythonImport = regex.Lazy(`^\s*import\s+([\w.]+(?:\s*(?:as\s+\w+)?\s*,\s*[\w.]+)*)`)
	pythonFrom   = regex.Lazy(`^\s*from\s+([\w.]+)\s+import\b`)
	scriptImport = regex.Lazy(`(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)["']([^"'\n]+)["']`)
	javaImport   = regex.Lazy(`^\s*import\s+(?:static\s+)?([\w.]+\*?)\s*;?`)
	rustImport   = regex.Lazy(`^\s*(?:pub(?:\([^)]*\))?\s+)?(?:use|extern\s+crate)\s+([\w:]+)`)
	rustModule   = regex.Lazy(`^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;`)
	cInclude     = regex.Lazy(`^\s*#\s*include\s*([<"][^>"\n]+[>"])`)
	rubyRequire  = regex.Lazy(`^\s*(require(?:_relative)?|load)\s*\(?\s*["']([^"'\n]+)["']`)
	elixirUse    = regex.Lazy(`^\s*(?:alias|import|use|require)\s+([A-Z][\w.]*)`)
)

// Imports lists the imports of a source, in order and without duplicates.
func Imports(l split.Language, src []byte) []Import {
	if l == split.Go {
		return goImports(src)
	}
	code := bytes.Split(split.Code(l, src), []byte{'\n'})
	var list []Import
	seen := map[string]bool{}
	for i, line := range bytes.Split(src, []byte{'\n'}) {
		if len(line) > 2000 || i >= len(code) || len(bytes.TrimSpace(code[i])) == 0 && l != split.C && l != split.CPP {
			continue
		}
		for _, name := range importsOf(l, line) {
			if !seen[name] {
				seen[name] = true
				list = append(list, Import{Name: name, Line: i + 1})
			}
		}
	}
	return list
}

func goImports(src []byte) []Import {
	fset := token.NewFileSet()
	f, _ := parser.ParseFile(fset, "", src, parser.ImportsOnly) // the readable part of a broken file still counts
	if f == nil {
		return nil
	}
	var list []Import
	for _, s := range f.Imports {
		if name, err := strconv.Unquote(s.Path.Value); err == nil {
			list = append(list, Import{Name: name, Line: fset.Position(s.Pos()).Line})
		}
	}
	return list
}

// importsOf returns the imports of a line.
func importsOf(l split.Language, line []byte) []string {
	one := ""
	switch l {
	case split.Python:
		if m := first(pythonImport(), line); m != "" {
			var names []string
			for name := range strings.SplitSeq(m, ",") {
				names = append(names, strings.Fields(name)[0])
			}
			return names
		}
		one = first(pythonFrom(), line)
	case split.JavaScript, split.TypeScript:
		var names []string
		for _, m := range scriptImport().FindAllSubmatch(line, -1) {
			names = append(names, string(m[1]))
		}
		return names
	case split.Java, split.Kotlin:
		one = first(javaImport(), line)
	case split.Rust:
		if one = first(rustModule(), line); one != "" {
			return []string{"self::" + one}
		}
		one = first(rustImport(), line)
	case split.C, split.CPP:
		one = first(cInclude(), line)
	case split.Ruby:
		if m := rubyRequire().FindSubmatch(line); m != nil {
			if one = string(m[2]); string(m[1]) == "require_relative" && !strings.HasPrefix(one, ".") {
				one = "./" + one
			}
		}
	case split.Elixir:
		one = first(elixirUse(), line)
	}
	if one == "" {
		return nil
	}
	return []string{one}
}

// first returns the match of the first group of a pattern.
func first(r *regexp.Regexp, text []byte) string {
	if m := r.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// A Project distinguishes imports of files in a codebase from others.
type Project struct {
	Module string                // of go.mod
	Has    func(rel string) bool // reports whether a file or, for Go, a folder exists at a path below the codebase
}

// Imports lists the imports of a file of the codebase, with the paths of those that are in it.
func (p Project) Imports(from string, src []byte) []Import {
	l := split.LanguageOf(from)
	list := Imports(l, src)
	for i := range list {
		list[i].Path = p.Resolve(l, from, list[i].Name)
	}
	return list
}

// Resolve returns the file or folder of the codebase that an import means, or "" if it is outside. from is the path of
// the importing file.
func (p Project) Resolve(l split.Language, from, name string) string {
	dir := path.Dir(from)
	switch l {
	case split.Go:
		if p.Module == "" || name != p.Module && !strings.HasPrefix(name, p.Module+"/") {
			return ""
		}
		return p.exists(strings.TrimPrefix(strings.TrimPrefix(name, p.Module), "/"))
	case split.JavaScript, split.TypeScript:
		if !strings.HasPrefix(name, ".") {
			return ""
		}
		return p.withEndings(path.Join(dir, name), "", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", "/index.ts",
			"/index.tsx", "/index.js")
	case split.Python:
		return p.python(dir, name)
	case split.Ruby:
		if strings.HasPrefix(name, ".") {
			return p.withEndings(path.Join(dir, name), "", ".rb")
		}
		return p.withEndings(path.Join("lib", name), ".rb")
	case split.C, split.CPP:
		file := strings.Trim(name, `<>"`)
		if found := p.exists(path.Join(dir, file)); found != "" {
			return found
		}
		return p.withEndings("", file, "include/"+file, "src/"+file)
	case split.Rust:
		if module, ok := strings.CutPrefix(name, "self::"); ok {
			base := path.Join(dir, module)
			if stem := strings.TrimSuffix(path.Base(from), ".rs"); stem != "mod" && stem != "lib" && stem != "main" {
				base = path.Join(dir, stem, module)
			}
			return p.withEndings(base, ".rs", "/mod.rs")
		}
	case split.Java:
		file := strings.ReplaceAll(name, ".", "/") + ".java"
		return p.withEndings("", file, "src/main/java/"+file, "src/"+file)
	}
	return ""
}

// python resolves a dotted name, relative or not.
func (p Project) python(dir, name string) string {
	base := ""
	if rest := strings.TrimLeft(name, "."); rest != name {
		base = dir
		for range len(name) - len(rest) - 1 {
			base = path.Dir(base)
		}
		name = rest
	}
	file := path.Join(base, strings.ReplaceAll(name, ".", "/"))
	if found := p.withEndings(file, ".py", "/__init__.py"); found != "" {
		return found
	}
	return p.withEndings(path.Join("src", file), ".py", "/__init__.py")
}

func (p Project) withEndings(base string, endings ...string) string {
	for _, e := range endings {
		if found := p.exists(base + e); found != "" {
			return found
		}
	}
	return ""
}

func (p Project) exists(rel string) string {
	rel = path.Clean(rel)
	if strings.HasPrefix(rel, "../") || rel == ".." || !p.Has(rel) {
		return ""
	}
	return rel
}
