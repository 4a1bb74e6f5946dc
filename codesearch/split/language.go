package split

import (
	"cmp"
	"path"
	"strings"
	"sync"
)

// A Language is a way to write source that the package knows how to cut.
type Language string

// The languages. Text stands for everything else.
const (
	Go         Language = "go"
	Python     Language = "python"
	JavaScript Language = "javascript"
	TypeScript Language = "typescript"
	Java       Language = "java"
	Rust       Language = "rust"
	C          Language = "c"
	CPP        Language = "cpp"
	CSharp     Language = "csharp"
	Kotlin     Language = "kotlin"
	Swift      Language = "swift"
	PHP        Language = "php"
	Ruby       Language = "ruby"
	Elixir     Language = "elixir"
	Markdown   Language = "markdown"
	Text       Language = "text"
)

// known are the files that people write, by their names or the ends of these: source in a language that the package
// knows how to cut, or other text of which blocks are worth finding. Data, locks and logs are not among them.
var known = sync.OnceValue(func() map[string]Language {
	byName := map[string]Language{}
	for language, names := range map[Language]string{
		Go:         ".go",
		Python:     ".py .pyi .pyx",
		JavaScript: ".js .jsx .mjs .cjs",
		TypeScript: ".ts .tsx .mts .cts",
		Java:       ".java",
		Rust:       ".rs",
		C:          ".c .h",
		CPP:        ".cc .cpp .cxx .hpp .hh .hxx .cu",
		CSharp:     ".cs",
		Kotlin:     ".kt .kts .scala",
		Swift:      ".swift",
		PHP:        ".php",
		Ruby:       ".rb .rake .gemspec Rakefile Gemfile Guardfile Vagrantfile",
		Elixir:     ".ex .exs",
		Markdown:   ".md .markdown",
		Text: "Makefile Dockerfile Justfile CMakeLists.txt Jenkinsfile README CHANGELOG CONTRIBUTING .txt .rst .adoc " +
			".org .sh .bash .zsh .fish .ps1 .sql .proto .graphql .yaml .yml .toml .lua .pl .pm .r .jl .hs .ml .mli " +
			".fs .clj .cljs .erl .hrl .zig .nim .dart .vue .svelte .html .css .scss .less .tf .gradle .cmake .vim " +
			".el .groovy .m .mm .asm .s .tex",
	} {
		for name := range strings.FieldsSeq(names) {
			byName[name] = language
		}
	}
	return byName
})

// lookUp finds a file by its name, else by the end of it.
func lookUp(name string) (l Language, found bool) {
	base := path.Base(name)
	if l, found = known()[base]; !found {
		l, found = known()[strings.ToLower(path.Ext(base))]
	}
	return l, found
}

// LanguageOf tells the language of a file by its name.
func LanguageOf(name string) Language {
	l, _ := lookUp(name)
	return cmp.Or(l, Text)
}

// IsSource reports whether a file is one that people write.
func IsSource(name string) bool {
	_, found := lookUp(name)
	return found
}
