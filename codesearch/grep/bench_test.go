package grep

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// BenchmarkScan reads the standard library's sources, in memory.
func BenchmarkScan(b *testing.B) {
	var text []byte
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip("no go command: ", err)
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "src/*/*.go"))
	for _, f := range files {
		one := kit.Must(os.ReadFile(f))(b)
		text = append(text, one...)
	}
	for _, c := range benchPatterns() {
		b.Run(c.name, func(b *testing.B) {
			p := kit.Must(Compile(c.expr, false))(b)
			m, lines := p.Matcher(b.Context()), 0
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				m.Reset()
				lines = 0
				for from := 0; ; lines++ {
					span, ok := m.Next(text, from)
					if !ok {
						break
					}
					from = span.End + 1
				}
			}
			b.ReportMetric(float64(lines), "lines")
		})
	}
}

type benchPattern struct{ name, expr string }

func benchPatterns() []benchPattern {
	return []benchPattern{
		{"literal", "ErrUnexpectedEOF"},
		{"ignore case", "(?i)unexpected end"},
		{"alternation", "ReaderFrom|WriterTo|ByteScanner|RuneReader"},
		{"class-heavy", `[A-Z][a-z]+Err[a-z]*\(`},
		{"no literal", `[a-z]{3}[0-9]{2}\s[A-Z]`},
		{"words", `\b[a-z]+_[a-z]+_[A-Z]+\b`},
		{"anchored", `^type [A-Z]\w+ interface`},
		{"many", "return"},
		{"none", "zzyzzx_q"},
		{"two literals", "func.*context\\.Context.*error"},
	}
}
