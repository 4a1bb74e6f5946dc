package code

import (
	"toolpost/builtin/define"
	"toolpost/tool"
)

// tools defines the tools.
func (t *Tools) tools() []define.Tool {
	return []define.Tool{
		asks(t, tool.Spec{
			Name: "grepCode", Title: "Find lines by a pattern", Aliases: []string{"code.grep"},
			Description: "Finds the lines that match a regular expression (RE2 syntax, as in Go), in all text files of a " +
				"codebase or of a folder in it, and gives path, line number and content, sorted by path. Files that ignore " +
				"files such as .gitignore name, hidden files and binary files are left out.",
		}, t.grep),
		define.New(tool.Spec{
			Name: "listCodebases", Title: "List codebases", Timeout: timeout,
			Effects: tool.Effects{Reads: true, Idempotent: true},
			Description: "Lists the codebases that you may read: the id, which the other code tools take as " +
				"codebase_id, the folder, and whether you may write in it.",
		}, t.codebases),
		asks(t, tool.Spec{
			Name: "listCodeFiles", Title: "List the files of codebases", Aliases: []string{"code.list"},
			Description: "Lists the files of one codebase, or of all, with size and language. Hidden files, and files " +
				"that .gitignore or the like name, are left out. Give a language or a pattern to narrow the list.",
		}, t.files),
		asks(t, tool.Spec{
			Name: "searchCode", Title: "Find code by what it does", Aliases: []string{"code.search"},
			Description: "Finds the functions, types and sections of documents that answer a question in plain words, " +
				"such as \"retry a request with backoff\", and returns path, line, the beginning of the text and a similarity " +
				"from 0 to 1, the best first. It needs no exact words; use grepCode to find exact words.",
		}, t.search),
		lists(t, tool.Spec{
			Name: "findSymbol", Title: "Find where a name is defined", Aliases: []string{"symbol.find"},
			Description: "Finds the definitions of functions, types, constants and variables by name: " +
				"exact matches first, then partial ones. Understands Go, Python, JavaScript, TypeScript, " +
				"Java, Rust, C, C++, Ruby, Elixir and other languages with braces; in Markdown it finds headings.",
		}, "definitions", t.library.Find),
		lists(t, tool.Spec{
			Name: "findReferences", Title: "Find where a name is used", Aliases: []string{"symbol.refs"},
			Description: "Finds the lines of code that use a name as a whole word, sorted by path. " +
				"Comments and strings are left out. Two different things of the same name are not told apart.",
		}, "references", t.library.References),
		lists(t, tool.Spec{
			Name: "listSymbols", Title: "List what is defined", Aliases: []string{"symbol.list"},
			Description: "Lists the functions, types, constants and variables of a file, or of all files of a folder, " +
				"sorted by path and line.",
		}, "definitions", t.library.Symbols),
		lists(t, tool.Spec{
			Name: "getDependencies", Title: "Say what a project or file depends on", Aliases: []string{"deps.get"},
			Description: "Lists dependencies. For a folder, or without a path: those in its manifests (go.mod, package.json, " +
				"pyproject.toml, requirements*.txt, Cargo.toml, Gemfile, *.gemspec, mix.exs, pom.xml). For a source file: its " +
				"imports, with the path of each import that is in the codebase.",
		}, "files with dependencies", t.library.Dependencies),
		asks(t, tool.Spec{
			Name: "dependencyGraph", Title: "Show who depends on whom", Aliases: []string{"deps.graph"},
			Description: "Shows which folders of a codebase import which, as nodes and edges from the importing folder " +
				"to the imported one; with level file, the same for files. " +
				"Imports from outside the codebase are listed only with external true.",
		}, t.graph),
	}
}
