package meaning

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolpost/codesearch/split"
	"toolpost/internal/kit"
)

// wordsOf returns the hashes of words, so that tests can name them.
func wordsOf(text string) (list []Token) {
	Tokenise([]byte(text), func(t Token) { list = append(list, t) })
	return list
}

func TestFormsOfAWordMeet(t *testing.T) {
	for _, same := range []string{
		"parse parses parsed parsing Parse PARSE", "header headers Header", "entry entries", "run running runs", "index indexes indexed indexing",
		"class classes", "match matches matching", "call called calling calls", "file Files FILE", "cache cached caching caches",
	} {
		list := wordsOf(same)
		for i, token := range list {
			kit.Equal(t, token, list[0], "word %d of %q differs", i, same)
		}
	}
	for _, apart := range []string{"string strong", "bus bu", "this thi", "status statu", "is i2"} {
		if list := wordsOf(apart); len(list) == 2 && list[0] == list[1] {
			t.Errorf("%q are one", apart)
		}
	}
}

func TestIdentifiersAreTakenApart(t *testing.T) {
	for text, same := range map[string]string{
		"parseHTTPHeader": "parse http header", "parse_http_header": "parse http header", "HTTPServer2Go": "http server go", "utf8Decode": "utf decode",
		"a.b(cd)": "cd", "größe Maß": "größe maß", "x1y2": "", "sha256sum": "sha 256 sum", "": "", "__init__": "init", "ABC": "abc",
	} {
		if got, want := wordsOf(text), wordsOf(same); !slices.Equal(got, want) {
			t.Errorf("%q gives %d words, %q %d", text, len(got), same, len(want))
		}
	}
	long := strings.Repeat("x", 10_000)
	kit.Equal(t, len(wordsOf(long)), 1, "a long word gives")
}

func FuzzTokenise(f *testing.F) {
	f.Add([]byte("parseHTTPHeader x1 größe \xff\xfe ies sses ing eed"))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		n := 0
		Tokenise(text, func(Token) { n++ })
		if n > len(text) || !bytes.Equal(before, text) {
			t.Fatalf("%d words of %q", n, before)
		}
	})
}

func testSegment(rng *rand.Rand, files int) *segment {
	b := newBuilder(64)
	for range files {
		a := &analysed{}
		for n := range rng.IntN(5) {
			c := chunk{line: int32(10*n + 1), last: int32(10*n + 5), define: int32(10*n + 2), kind: split.Function, name: "f", hash: rng.Uint32()}
			for range 1 + rng.IntN(20) {
				a.terms = append(a.terms, Term{Token(rng.IntN(200)), uint16(1 + rng.IntN(3))})
				c.length++
			}
			tail := a.terms[lastEnd(a):]
			slices.SortFunc(tail, func(x, y Term) int { return int(x.Token) - int(y.Token) })
			tail = slices.CompactFunc(tail, func(x, y Term) bool { return x.Token == y.Token })
			a.terms = a.terms[:lastEnd(a)+len(tail)]
			a.ends = append(a.ends, int32(len(a.terms)))
			a.chunks = append(a.chunks, c)
			v := make([]float32, 64)
			for d := range v {
				v[d] = float32(rng.NormFloat64())
			}
			a.codes = pack(v, a.codes)
		}
		b.add(a)
	}
	return b.segment()
}

func lastEnd(a *analysed) int {
	if len(a.ends) == 0 {
		return 0
	}
	return int(a.ends[len(a.ends)-1])
}

func TestASegmentIsReadAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 30 {
		s := testSegment(rng, n)
		b := s.encode()
		got := kit.Must(decodeSegment(b))(t)
		got.size = s.size
		if len(s.chunks) > 0 && !reflect.DeepEqual(got, s) {
			t.Fatalf("%d files: not the same", n)
		}
	}
}

// Every flipped bit and every truncation is noticed.
func TestADamagedSegmentIsNoticed(t *testing.T) {
	b := testSegment(rand.New(rand.NewPCG(2, 2)), 5).encode()
	for i := range b {
		broken := bytes.Clone(b)
		broken[i] ^= 1 << (i % 8)
		kit.Fails(t, kit.Err(decodeSegment(broken)), "", "byte %d was flipped", i)
		kit.Fails(t, kit.Err(decodeSegment(b[:i])), "", "cut at %d", i)
	}
}

// sealed adds the checksum that a decoder requires, so that a fuzzer gets past it.
func sealed(magic string, body []byte) []byte { return seal(append([]byte(magic), body...)) }

func FuzzSegment(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 3))
	for n := range 4 {
		b := testSegment(rng, n).encode()
		f.Add(b[len(segmentMagic) : len(b)-4])
	}
	f.Fuzz(func(_ *testing.T, body []byte) {
		s, err := decodeSegment(sealed(segmentMagic, body))
		if err != nil {
			return
		}
		for i := range s.terms {
			s.postingsAt(i, func(int, int) {})
		}
		v := make([]float32, s.dims)
		for i := range s.chunks {
			s.cosine(i, v)
			s.distance(i, signsOf(v))
		}
		b := newBuilder(s.dims)
		b.take(s, func(int) bool { return true })
		b.segment()
	})
}

func FuzzManifest(f *testing.F) {
	sp := space{"x", 64}
	s := newSnapshot(nil, nil)
	s.segs = []*segment{{name: "seg-1"}}
	s.files = []entry{{path: "a.go", size: 3, mtime: 4, digest: 5}, {path: "b.go", mtime: never}}
	b := encodeManifest(s, sp)
	f.Add(b[len(manifestMagic) : len(b)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		_, files, err := decodeManifest(sealed(manifestMagic, body), sp)
		seen := map[string]bool{}
		for _, e := range files {
			if err != nil || seen[e.path] || e.seg < 0 || e.file < 0 {
				t.Fatalf("%+v, %v", e, err)
			}
			seen[e.path] = true
		}
	})
}

func FuzzTable(f *testing.F) {
	b := WriteTable(64, []Row{{Token: 1, Query: 1, Code: 1, Vector: make([]float32, 64)}})
	f.Add(b[len(tableMagic) : len(b)-4])
	f.Fuzz(func(_ *testing.T, body []byte) {
		if t, err := ReadTable(sealed(tableMagic, body)); err == nil {
			t.embed([]Term{{1, 1}, {2, 3}}, t.query, make([]float32, t.dims))
		}
	})
}

func TestATableIsReadAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var rows []Row
	for i := range 100 {
		v := make([]float32, 128)
		for d := range v {
			v[d] = float32(rng.NormFloat64())
		}
		rows = append(rows, Row{Token(i * 1_000_003), 2, 3, v})
	}
	table := kit.Must(ReadTable(WriteTable(128, rows)))(t)
	sum := make([]float32, 128)
	for _, r := range rows {
		table.embed([]Term{{r.Token, 1}}, table.query, sum)
		for d := range sum {
			if math.Abs(float64(sum[d]-2*r.Vector[d])) > 0.05 {
				t.Fatalf("dimension %d is %f, not %f", d, sum[d], 2*r.Vector[d])
			}
		}
	}
	kit.Equal(t, table.row(12345), -1, "a word was found that is not in the table")
}

func TestTheStandardTableIsSmallEnough(t *testing.T) {
	table := kit.Must(Standard())(t)
	if len(tableBytes) > 10_000_000 || len(table.tokens) < 1000 {
		t.Errorf("%d bytes, %d words", len(tableBytes), len(table.tokens))
	}
}

// The quick comparison of signs must not lose what a full comparison would find.
func TestSignComparisonFindsTheNearestVectors(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const n, dims = 30_000, 256
	// Vectors cluster around a few directions, as those of code do.
	var centres [40][dims]float32
	for c := range centres {
		for d := range dims {
			centres[c][d] = float32(rng.NormFloat64())
		}
	}
	vector := func() []float32 {
		v := make([]float32, dims)
		c := centres[rng.IntN(len(centres))]
		for d := range v {
			v[d] = c[d] + 1.2*float32(rng.NormFloat64())
		}
		return v
	}
	a := &analysed{}
	for range n {
		a.chunks = append(a.chunks, chunk{kind: split.Function})
		a.ends = append(a.ends, 0)
		a.codes = pack(vector(), a.codes)
	}
	b := newBuilder(dims)
	b.add(a)
	s := newSnapshot([]*segment{b.segment()}, []entry{{path: "a"}})
	found, wanted := 0, 0
	for range 20 {
		q := &query{snapshot: s, vector: vector(), mode: SemanticOnly}
		normalise(q.vector)
		q.pick(nil)
		q.propose()
		cosines := make([]float32, n)
		for i := range cosines {
			cosines[i] = s.segs[0].cosine(i, q.vector)
		}
		sorted := slices.Clone(cosines)
		slices.Sort(sorted)
		for i, c := range cosines {
			if c >= sorted[n-10] {
				wanted++
				if q.marked[i] {
					found++
				}
			}
		}
	}
	if found*100 < wanted*97 {
		t.Errorf("%d of the %d nearest were proposed", found, wanted)
	}
}
