package trigram

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/codesearch/grep"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
)

// files lists the files of the index on disk.
func (tr *tree) files() (names []string) {
	entries, err := os.ReadDir(tr.state)
	if err != nil {
		tr.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, filepath.Join(tr.state, e.Name()))
		}
	}
	return names
}

func TestADamagedIndexIsMadeAnew(t *testing.T) {
	damages := map[string]func(b []byte) []byte{
		"cut":      func(b []byte) []byte { return b[:len(b)/2] },
		"empty":    func([]byte) []byte { return nil },
		"garbage":  func(b []byte) []byte { return bytes.Repeat([]byte{0xa5}, len(b)) },
		"the end":  func(b []byte) []byte { b[len(b)-9] ^= 1; return b },
		"a list":   func(b []byte) []byte { b[len(magic)+1] ^= 1; return b },
		"longer":   func(b []byte) []byte { return append(b, 0) },
		"no magic": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, Options{}, map[string]string{"a": "alpha beta\n", "b/c": "gamma\n"})
			tr.refresh()
			tr.close()
			for _, f := range tr.files() {
				b := kit.Must(os.ReadFile(f))(t)
				if name == "a list" && filepath.Ext(f) != segmentExt {
					continue
				}
				kit.OK(t, os.WriteFile(f, damage(b), 0o600))
			}
			tr.open(Options{})
			for _, word := range []string{"alpha", "gamma", "beta"} { // a damaged list is noticed when it is read
				got, _, ok := tr.selected("", compile(t, word))
				if want := tr.walked("", compile(t, word)); ok && !slices.Equal(got, want) {
					t.Fatalf("%s: %q, want %q", word, got, want)
				}
			}
			if tr.x.broken.Load() {
				tr.x.discard()
			}
			tr.refresh()
			tr.agree("", "alpha")
			tr.agree("", "gamma")
		})
	}
}

func TestALeftoverOfAWriteIsRemoved(t *testing.T) {
	tr := newTree(t, Options{}, map[string]string{"a": "alpha\n"})
	tr.refresh()
	tr.close()
	for _, name := range []string{"00000099.tri", "00000002.tri.new"} {
		kit.OK(t, os.WriteFile(filepath.Join(tr.state, name), []byte("half"), 0o600))
	}
	tr.open(Options{})
	if names := strings.Join(tr.files(), " "); strings.Contains(names, "/00000099") || strings.Contains(names, ".new") {
		t.Errorf("left: %s", names)
	}
	tr.agree("", "alpha")
}

// randomSegment returns a segment in memory, over random texts.
func randomSegment(t testing.TB, rng *rand.Rand) (*segment, [][]byte) {
	b, ex := &builder{}, newExtractor()
	var texts [][]byte
	for i := range 10 {
		text := randomLines(rng)
		texts = append(texts, text)
		b.add(entry{path: string(rune('a' + i)), stamp: 1, kind: kindText}, ex.blocks(text))
	}
	path := filepath.Join(t.TempDir(), "s")
	f, err := os.Create(path)
	if err == nil {
		err = b.write(f)
	}
	kit.OK(t, err)
	f.Close()
	s := kit.Must(openSegment(path, "s"))(t)
	t.Cleanup(func() { s.file.Close() })
	return s, texts
}

func randomLines(rng *rand.Rand) []byte {
	var b bytes.Buffer
	for range rng.IntN(20_000) {
		b.WriteString([]string{"ab", "Abc", "bca", "k", "K", "\u212a", "s", "é", "\n", "zq", " ", "\xff", "\r\n", "00"}[rng.IntN(14)])
	}
	return b.Bytes()
}

// The index never leaves out a file that matches, nor a part of one: every matching line is in a part that it returns.
func TestTheIndexLosesNoMatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	atoms := []string{"abc", "ABC", "(?i:abc)", "zq", "k", "(?i:k)", "[ab]", "é", ".", "x*", "00", `\w+`, "^", "$", "(abc|zqab|bca)", "(?:bca)+", "a?bc"}
	for range rounds.Of(4, 100) {
		s, texts := randomSegment(t, rng)
		for range 40 {
			expr := atoms[rng.IntN(len(atoms))] + atoms[rng.IntN(len(atoms))] + atoms[rng.IntN(len(atoms))]
			p, err := grep.Compile(expr, rng.IntN(3) == 0)
			if err != nil {
				continue
			}
			h := kit.Must(s.find(p.Need()))(t)
			losesNone(t, p, expr, s, texts, h)
		}
	}
}

func losesNone(t *testing.T, p *grep.Pattern, expr string, s *segment, texts [][]byte, h hits) {
	t.Helper()
	if h.all {
		return
	}
	m := p.Matcher(t.Context())
	for file, text := range texts {
		m.Reset()
		for span, ok := m.Next(text, 0); ok; span, ok = m.Next(text, span.End+1) {
			id := slices.IndexFunc(s.parts, func(at part) bool {
				return int(at.file) == file && int(at.offset) <= span.Start && span.End <= int(at.offset+at.size)
			})
			if id < 0 || !slices.Contains(h.ids, uint32(id)) {
				t.Fatalf("%s is in file %d at %v, and no block that the index names has it", expr, file, span)
			}
			if lines := bytes.Count(text[:s.parts[id].offset], []byte("\n")); lines != int(s.parts[id].line) {
				t.Fatalf("block %d begins after %d lines, not %d", id, lines, s.parts[id].line)
			}
		}
	}
}

// If any bit of a segment is flipped, reading it returns what was written, or an error.
func TestAFlippedBitIsNoticed(t *testing.T) {
	b, ex := &builder{}, newExtractor()
	for _, text := range []string{"abcd\n", "bcde\n", "abcde\n"} {
		b.add(entry{path: text[:3], stamp: 7, kind: kindText}, ex.blocks([]byte(text)))
	}
	path := filepath.Join(t.TempDir(), "s")
	var buf bytes.Buffer
	kit.OK(t, b.write(&buf))
	read := func(content []byte) string {
		kit.OK(t, os.WriteFile(path, content, 0o600))
		s, err := openSegment(path, "s")
		if err != nil {
			return "damaged"
		}
		defer s.file.Close()
		all := fmt.Sprint(s.files, s.parts, s.grams)
		for _, g := range s.grams {
			ids, err := s.list(g)
			if err != nil {
				return "damaged"
			}
			all += fmt.Sprint(ids)
		}
		return all
	}
	want := read(buf.Bytes())
	for i := len(magic); i < buf.Len(); i++ { // the bytes before are not read
		for bit := range 8 {
			flipped := slices.Clone(buf.Bytes())
			flipped[i] ^= 1 << bit
			if got := read(flipped); got != want && got != "damaged" {
				t.Fatalf("byte %d, bit %d: %s, want %s", i, bit, got, want)
			}
		}
	}
}

func FuzzADamagedSegmentIsNoticed(f *testing.F) {
	s, _ := randomSegment(f, rand.New(rand.NewPCG(3, 3)))
	whole := kit.Must(os.ReadFile(s.file.Name()))(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(magic + magic))
	f.Add(append(slices.Clone(whole[:len(whole)-40]), bytes.Repeat([]byte{0xff}, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "s")
		kit.OK(t, os.WriteFile(path, b, 0o600))
		s, err := openSegment(path, "s")
		if err != nil {
			return
		}
		defer s.file.Close()
		for _, g := range s.grams {
			ids, err := s.list(g)
			for _, id := range ids {
				if err == nil && int(id) >= len(s.parts) {
					t.Fatalf("block %d of %d", id, len(s.parts))
				}
			}
		}
	})
}
