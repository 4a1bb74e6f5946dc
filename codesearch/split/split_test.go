package split_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"toolpost/codesearch/split"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
)

// show describes parts for a reader.
func show(src string, parts []split.Part) []string {
	var lines []string
	for _, p := range parts {
		name := p.Name
		if p.Owner != "" {
			name = p.Owner + "." + p.Name
		}
		text := fmt.Sprintf("%s %s %d-%d", p.Kind, name, p.Line, p.Last)
		if p.DocEnd > p.DocStart {
			text += " doc:" + strings.Join(strings.Fields(src[p.DocStart:p.DocEnd]), " ")
		}
		lines = append(lines, text)
	}
	return lines
}

// Each file of testdata holds a source and its parts.
func TestEachLanguageIsCutIntoItsFunctionsAndTypes(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) < 10 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		a := kit.Must(txtar.ParseFile(name))(t)
		t.Run(a.Files[0].Name, func(t *testing.T) {
			src := string(a.Files[0].Data)
			got := strings.Join(show(src, split.Parts(split.LanguageOf(a.Files[0].Name), []byte(src))), "\n") + "\n"
			kit.Equal(t, cmp.Diff(string(a.Files[1].Data), got), "")
		})
	}
	if parts := split.Parts(split.Go, nil); len(parts) > 0 {
		t.Errorf("nothing has parts: %v", parts)
	}
}

func TestALongFunctionIsCutIntoPiecesOfItsName(t *testing.T) {
	src := "package a\n\n// F is long.\nfunc F() {\n" + strings.Repeat("\tcall()\n", 1000) + "}\n"
	parts := split.Parts(split.Go, []byte(src))
	if len(parts) < 5 {
		t.Fatalf("got %d parts", len(parts))
	}
	for i, p := range parts {
		if p.Name != "F" || p.Last-p.Line > 160 || (p.DocEnd > p.DocStart) != (i == 0) {
			t.Errorf("part %d: %+v", i, p)
		}
	}
}

// Hostile text must cost no more than other text. The bound only detects quadratic time.
func TestTimeIsInProportionToTheFile(t *testing.T) {
	size := map[string]int{"<<A\n": 1 << 18, "=/": 1 << 18, "${": 1 << 18, "a{": 1 << 18, "interface{}": 1 << 18} // without a bound, these would be read on and on
	every := rounds.Of(3, 1)                                                                                      // without TOOLPOST_LONG each goes to four of the twelve languages
	for i, piece := range []string{
		"{", "}", "(", "\"", "'", "`", "/*", "//", "#", "\n", " ", "<<A\n", "=/", "${", "r#", "R\"(", "def a\n", "class A\n", "func a(", "~s(", "%w", "@a\n",
		"\"\"\"", "a{", "a(b){", "{}", "interface{}", "impl<", "# a\n", "x = {", "\\", "?\"", "\t\t\t\t", "public:\n", "/** */\n\n",
	} {
		src := []byte(strings.Repeat(piece, max(size[piece], 1<<16)/len(piece)))
		for j, l := range languages() {
			if (i+j)%every != 0 {
				continue
			}
			start := time.Now()
			split.Parts(l, src)
			if took := time.Since(start); took > time.Minute {
				t.Errorf("%d bytes of %q in %s took %s", len(src), piece, l, took)
			}
		}
	}
}

func languages() []split.Language {
	return []split.Language{
		split.Go, split.Python, split.JavaScript, split.TypeScript, split.Java, split.Rust, split.C, split.CPP, split.Ruby, split.Elixir, split.Markdown, split.Text,
	}
}

func FuzzParts(f *testing.F) {
	for _, s := range []string{
		"func a() {", "class A { b() {} }", "def a\nend", "\"\"\"", "impl A for B { fn c() {} }", "# a\n## b\n```\n# c", "/** x */\n\nfunction a() { return `${`b`}` }",
		"@doc \"x\"\ndef a, do: 1", "}}}{{{", "a = <<~B\nB\n", "R\"x(", "r##\"", "'\\", "type X struct{}", "\xff\xfe{", "template<class T> class X : Y {",
	} {
		for i := range 12 {
			f.Add(byte(i), []byte(s))
		}
	}
	all := languages()
	f.Fuzz(func(t *testing.T, n byte, src []byte) {
		at, line := 0, 1
		for _, p := range split.Parts(all[int(n)%len(all)], src) {
			if p.Start < at || p.End <= p.Start || p.End > len(src) || p.Line < line || p.Last < p.Line || p.Define < 1 {
				t.Fatalf("%+v after byte %d, line %d of %q", p, at, line, src)
			}
			if p.DocEnd > p.DocStart && (p.DocStart < p.Start || p.DocEnd > p.End) || p.DocEnd < p.DocStart {
				t.Fatalf("%+v has its documentation elsewhere", p)
			}
			at, line = p.End, p.Line
		}
	})
}

func TestCodeBlanksCommentsAndStrings(t *testing.T) {
	for _, c := range []struct {
		language  split.Language
		src, want string
	}{
		{split.Ruby, "MAX = 3 # max\nx ?# : b\n", "MAX = 3      \nx ?# : b\n"},
		{split.Ruby, "=begin\nx\n=end\ny = %w(a b)\n", "      \n \n    \ny =        \n"},
		{split.JavaScript, "a = b / c / d; // e\n", "a = b / c / d;     \n"},
		{split.Python, "x = 'a' # b\ny = \"\"\"c\nd\"\"\" + z\n", "x =        \ny =     \n     + z\n"},
		{split.Rust, "fn f<'a>(x: &'a str) -> char { '\\'' }\n", "fn f<'a>(x: &'a str) -> char {      }\n"},
		{split.Elixir, "x = ~s(a) <> ?\" <> \"b\"\n", "x =       <> ?\" <>    \n"},
		{split.Text, "x # y", "x # y"},
	} {
		kit.Equal(t, string(split.Code(c.language, []byte(c.src))), c.want, c.language, c.src)
	}
}
