package grep

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
)

// naive returns the numbers of the matching lines, by the definition in the package comment.
func naive(t testing.TB, expr string, ignoreCase bool, text []byte) []int {
	if ignoreCase {
		expr = "(?i)" + expr
	}
	re := regexp.MustCompile(expr)
	var lines []int
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, len(text)+1)
	for n := 1; s.Scan(); n++ {
		if re.Match(s.Bytes()) {
			lines = append(lines, n)
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return lines
}

// found returns the same with a matcher.
func found(m *Matcher, text []byte) []int {
	var lines []int
	m.Reset()
	for from := 0; ; {
		span, ok := m.Next(text, from)
		if !ok {
			return lines
		}
		if span.Start < from || span.At < span.Start || span.At > span.End {
			panic(fmt.Sprintf("span %v after %d", span, from))
		}
		lines = append(lines, 1+bytes.Count(text[:span.Start], []byte("\n")))
		from = span.End + 1
	}
}

// ways returns matchers that must agree: with the finder, with the machine alone, and with one that keeps no states.
func ways(p *Pattern) map[string]*Matcher {
	ctx := context.Background()
	alone, plain := p.Matcher(ctx), p.Matcher(ctx)
	alone.finder, plain.finder, plain.machine.failed = nil, nil, true
	return map[string]*Matcher{"finder": p.Matcher(ctx), "machine": alone, "no states": plain}
}

func check(t *testing.T, expr string, ignoreCase bool, texts ...[]byte) {
	t.Helper()
	p, err := Compile(expr, ignoreCase)
	if err != nil {
		return
	}
	for way, m := range ways(p) {
		for _, text := range texts {
			if got, want := found(m, text), naive(t, expr, ignoreCase, text); !slices.Equal(got, want) {
				t.Errorf("%s: %q (ignore case %v) in %q: lines %v, want %v", way, expr, ignoreCase, text, got, want)
			}
		}
	}
}

func samplePatterns() []string {
	return []string{
		"foo", "foo|bar|baz", "fo+", "^foo", "foo$", "^foo$", "^$", "^", "$", "x*", ".", ".*", "^.$", `\bfoo\b`, `\Boo`, `\b`, `\B`, `^\b`, `\B$`, `^\B$`,
		`\w+\s+\w+`, "[a-f]{3}", "(a|b)*a(a|b){5}", "colou?r", "[fF]oo", "f.o", "foo.*bar", "foo|", "(foo|ba)r", `\x{212A}elvin`, "kelvin", "straße",
		"é", "[à-ü]+", `\pL\pN`, "日本", `\x{FFFD}`, "[^a-z ]", `\r`, `foo\r`, `o\s`, `\s$`, `a\z`, `\Aa`, "(?i)foo", "a(?i)bc", "(?i:S)et", "(?s).o", "(?m)^b", "[[:upper:]]", `\.`,
		"((a*)*)*b", "[^\\x00-\\x{10FFFF}]", "a{2,}", "(ab|cd|ef)(gh|ij)(kl|mn)", "return [a-z]+, nil", "e", "ee|  ", "z[0-9]", "x(?:ab)+c", "x(?:ab)*c", "x(?:ab)?c", "a[^\n]b", "[a\nb]", "b[\n\r]", "o[\nb]",
	}
}

func sampleTexts() [][]byte {
	texts := []string{
		"", "\n", "\n\n", "foo", "foo\n", "a foo\nbar\n\nfoo", "foo\r\nbar\r\n", "foo\r", "\r", "\r\n", "foo\r\r\n", "a\rb\n", "\xff\xfe\nfoo\xff", "é\xc3\nè", "Kelvin kelvin \u212aelvin",
		"ſet Set set\nFOO fOo\n", "日本語\nfoo日本", "\ufffd\n\xff\n", "a b\nab ba aab\naaaaaabaaaaaa\n", "color colour\n", "straße STRASSE\n", " leading\ntrailing \n\ttab\n", "abghkl cdijmn\nefghkl",
		"func f() { return err, nil }\nreturn x, nil\n", "x\x00y\nfoo", "b\n\n\nb", "_a1\n a_ \n", "z1e\nE2\n", "xababc\nxc xabc\n",
	}
	out := make([][]byte, len(texts))
	for i, s := range texts {
		out[i] = []byte(s)
	}
	return out
}

func TestAMatcherFindsTheLinesThatRegexpMatches(t *testing.T) {
	for _, expr := range samplePatterns() {
		check(t, expr, false, sampleTexts()...)
		check(t, expr, true, sampleTexts()...)
	}
}

func TestRandomPatternsInRandomTexts(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range rounds.Of(200, 20_000) {
		check(t, randomPattern(rng, 3), rng.IntN(3) == 0, randomText(rng), randomText(rng))
	}
}

func randomPattern(rng *rand.Rand, depth int) string {
	atoms := []string{"a", "b", "ab", "abc", "K", "s", "é", ".", `\w`, `\W`, `\s`, "[ab]", "[^a]", "^", "$", `\b`, `\B`, "x", "(?i:aB)", `\r`, "日", "[a-c]", "zq"}
	if depth == 0 || rng.IntN(4) == 0 {
		return atoms[rng.IntN(len(atoms))]
	}
	sub := func() string { return randomPattern(rng, depth-1) }
	switch rng.IntN(8) {
	case 0:
		return "(" + sub() + "|" + sub() + ")"
	case 1:
		return "(?:" + sub() + ")" + []string{"*", "+", "?", "{2}", "{1,3}"}[rng.IntN(5)]
	case 2:
		return sub() + "|" + sub() + "|" + sub()
	}
	return sub() + sub()
}

func randomText(rng *rand.Rand) []byte {
	pieces := []string{"a", "b", "ab", "abc", "k", "K", "\u212a", "S", "ſ", "é", "É", " ", "\n", "\n", "\r\n", "\r", "\xff", "日", "x", "_", "1", "zq", "AB"}
	var b strings.Builder
	for range rng.IntN(40) {
		b.WriteString(pieces[rng.IntN(len(pieces))])
	}
	return []byte(b.String())
}

func FuzzAMatcherAgreesWithRegexp(f *testing.F) {
	for _, expr := range samplePatterns() {
		f.Add(expr, false, []byte("a foo\nbar\r\nKelvin \xff é\n"))
	}
	f.Fuzz(func(t *testing.T, expr string, ignoreCase bool, text []byte) {
		if len(text) > 4096 {
			return
		}
		check(t, expr, ignoreCase, text)
	})
}

// If its states do not fit, a machine discards and remakes them, or gives up; neither loses a line.
func TestManyStates(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var dense, sparse bytes.Buffer
	for range 8_000 {
		dense.WriteString(strings.Repeat([]string{"a", "b"}[rng.IntN(2)], 1+rng.IntN(2)))
		if rng.IntN(100) == 0 {
			dense.WriteByte('\n')
		}
	}
	for range 3 {
		for range 1000 {
			sparse.WriteString(strings.Repeat("a", rng.IntN(3)) + strings.Repeat("b", rng.IntN(3)))
		}
		sparse.WriteString("\n" + strings.Repeat("c", maxCost*bytesPerCost) + "\n")
	}
	const expr = "[ab]*a[ab]{14}d|[ab]{30}bbb$"
	wide := strings.NewReplacer("a", "é", "b", "日")
	for _, wider := range []func(string) string{func(s string) string { return s }, wide.Replace} {
		expr, dense, sparse := wider(expr), []byte(wider(dense.String())), []byte(wider(sparse.String()))
		p := kit.Must(Compile(expr, false))(t)
		m := p.Matcher(t.Context())
		m.finder = nil
		for _, text := range [][]byte{sparse, dense, sparse[:20_000]} {
			short := bytes.ReplaceAll(text, bytes.Repeat([]byte("c"), 1000), []byte("c")) // as many lines of it match
			if got, want := found(m, text), naive(t, expr, false, short); !slices.Equal(got, want) {
				t.Errorf("%s: %d lines, want %d", expr, len(got), len(want))
			}
			if m.machine.cost > 2*maxCost {
				t.Errorf("%s: the states cost %d, which has no bound", expr, m.machine.cost)
			}
		}
		if !m.machine.failed {
			t.Errorf("%s: the machine was never given up: the test does not test it", expr)
		}
	}
}
