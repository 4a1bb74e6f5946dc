package split

import (
	"path"
	"strings"
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

// LanguageOf tells the language of a file by its name.
func LanguageOf(name string) Language {
	base := path.Base(name)
	switch base {
	case "Rakefile", "Gemfile", "Guardfile", "Vagrantfile":
		return Ruby
	}
	switch strings.ToLower(path.Ext(base)) {
	case ".go":
		return Go
	case ".py", ".pyi", ".pyx":
		return Python
	case ".js", ".jsx", ".mjs", ".cjs":
		return JavaScript
	case ".ts", ".tsx", ".mts", ".cts":
		return TypeScript
	case ".java":
		return Java
	case ".rs":
		return Rust
	case ".c", ".h":
		return C
	case ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".cu":
		return CPP
	case ".cs":
		return CSharp
	case ".kt", ".kts", ".scala":
		return Kotlin
	case ".swift":
		return Swift
	case ".php":
		return PHP
	case ".rb", ".rake", ".gemspec":
		return Ruby
	case ".ex", ".exs":
		return Elixir
	case ".md", ".markdown":
		return Markdown
	}
	return Text
}

// family groups languages by how their parts begin and end.
type family int

const (
	plain  family = iota
	braces        // blocks in braces
	indent        // blocks by indentation, or closed by end at the same indentation
	headed        // sections under headings
)

func (l Language) family() family {
	switch l {
	case Python, Ruby, Elixir:
		return indent
	case Markdown:
		return headed
	case Text:
		return plain
	}
	return braces
}

// IsSource reports whether a file is one that people write: source in a language that the package knows, or other text
// of which blocks are worth finding. Data, locks and logs are not.
func IsSource(name string) bool {
	if LanguageOf(name) != Text {
		return true
	}
	switch path.Base(name) {
	case "Makefile", "Dockerfile", "Justfile", "CMakeLists.txt", "Jenkinsfile", "README", "CHANGELOG", "CONTRIBUTING":
		return true
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".txt", ".rst", ".adoc", ".org", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".sql", ".proto", ".graphql",
		".yaml", ".yml", ".toml",
		".lua", ".pl", ".pm", ".r", ".jl", ".hs", ".ml", ".mli", ".fs", ".clj", ".cljs", ".erl", ".hrl", ".zig", ".nim",
		".dart", ".vue", ".svelte",
		".html", ".css", ".scss", ".less", ".tf", ".gradle", ".cmake", ".vim", ".el", ".groovy", ".m", ".mm", ".asm",
		".s", ".tex":
		return true
	}
	return false
}
