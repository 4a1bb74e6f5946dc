package meaning_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/codesearch/meaning"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A tree is files in memory.
type tree map[string]string

// longAgo is when all files of a tree were written, unless a test sets another time.
var longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

func (t tree) files() iter.Seq2[meaning.File, error] {
	return func(yield func(meaning.File, error) bool) {
		for path := range t {
			if !yield(t.file(path), nil) {
				return
			}
		}
	}
}

func (t tree) file(path string) meaning.File {
	text := t[path]
	return meaning.File{
		Path: path, Size: int64(len(text)), ModTime: longAgo.Add(time.Duration(meaning.Hash([]byte(text))) * time.Millisecond),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
	}
}

func open(t testing.TB, dir string, o meaning.Options) *meaning.Index {
	t.Helper()
	return kit.Must(meaning.Open(dir, o))(t)
}

func update(t testing.TB, x *meaning.Index, files iter.Seq2[meaning.File, error]) meaning.Stats {
	t.Helper()
	return kit.Must(x.Update(t.Context(), files))(t)
}

func search(t testing.TB, x *meaning.Index, question string, limit int) []meaning.Hit {
	t.Helper()
	return kit.Must(x.Search(t.Context(), question, limit, nil))(t)
}

func shop() tree {
	return tree{
		"cart.go": `package shop

// AddItem puts an article into the basket.
func (c *Cart) AddItem(a Article) { c.items = append(c.items, a) }

func (c *Cart) totalPrice() (sum int) {
	for _, i := range c.items {
		sum += i.price
	}
	return sum
}
`,
		"mail/send.py": `import smtplib

def send_mail(to, subject, body):
    """Sends a message over SMTP."""
    with smtplib.SMTP("localhost") as server:
        server.sendmail(to, subject + body)

def retry(f, attempts):
    for n in range(attempts):
        f()
`,
		"README.md": "# Shop\n\nA shop.\n\n## Payment\n\nCredit cards are charged by the gateway.\n",
	}
}

func TestSearchFindsByMeaning(t *testing.T) {
	x := open(t, "", meaning.Options{})
	stats := update(t, x, shop().files())
	if stats.Files != 3 || stats.Indexed != 3 || stats.Chunks < 6 {
		t.Errorf("got %+v", stats)
	}
	for question, want := range map[string]string{
		"total price of the items":         "totalPrice",
		"send a message over SMTP":         "send_mail",
		"sending mails":                    "send_mail",
		"put an article into the basket":   "AddItem",
		"charge credit card with gateways": "Payment",
		"retryAttempts":                    "retry",
	} {
		hits := search(t, x, question, 3)
		if len(hits) == 0 || hits[0].Name != want {
			t.Errorf("%q: got %+v, want %s", question, hits, want)
		}
		for _, h := range hits {
			if h.Similarity <= 0 || h.Similarity > 1 || h.Lexical < 0 || h.Lexical > 1 || h.Semantic < 0 || h.Semantic > 1 {
				t.Errorf("%q: a similarity is out of range: %+v", question, h)
			}
		}
	}
	h := search(t, x, "total price of items", 1)[0]
	want := meaning.Hit{
		Path: "cart.go", Line: 6, Last: 11, Define: 6, Kind: "function", Name: "totalPrice",
		Similarity: h.Similarity, Lexical: h.Lexical, Semantic: h.Semantic,
		Hash: meaning.Hash([]byte(strings.Join(strings.Split(shop()["cart.go"], "\n")[5:11], "\n"))),
	}
	kit.Equal(t, cmp.Diff(want, h), "")
}

func TestAFilterHidesFiles(t *testing.T) {
	x := open(t, "", meaning.Options{})
	update(t, x, shop().files())
	hits, err := x.Search(t.Context(), "send mail", 10, func(path string) bool { return path != "mail/send.py" })
	kit.OK(t, err)
	for _, h := range hits {
		if h.Path == "mail/send.py" {
			t.Errorf("%s was hidden", h.Path)
		}
	}
}

func TestBadQuestionsAreRefused(t *testing.T) {
	x := open(t, "", meaning.Options{})
	update(t, x, shop().files())
	for name, c := range map[string]struct {
		question string
		limit    int
	}{
		"too long": {strings.Repeat("x", 5000), 1}, "no limit": {"x", 0}, "negative": {"x", -1}, "too many": {"x", 100_000},
	} {
		kit.Refused(t, kit.Err(x.Search(t.Context(), c.question, c.limit, nil)), tool.CodeInvalidInput, "", name)
	}
	for _, question := range []string{"", "  ", "?!", "\xff\xfe", "x", "\x00", strings.Repeat("a b c ", 300)} {
		kit.Check(t, kit.Err(x.Search(t.Context(), question, 5, nil)), question)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Search(ctx, "x", 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestOnlyChangedFilesAreDoneAgain(t *testing.T) {
	dir := t.TempDir()
	files := shop()
	opened := map[string]int{}
	var mu sync.Mutex
	counted := func(yield func(meaning.File, error) bool) {
		for path := range files {
			f := files.file(path)
			inner := f.Open
			f.Open = func() (io.ReadCloser, error) {
				mu.Lock()
				defer mu.Unlock()
				opened[path]++
				return inner()
			}
			if !yield(f, nil) {
				return
			}
		}
	}
	x := open(t, dir, meaning.Options{})
	update(t, x, counted)
	if s := update(t, x, counted); s.Indexed != 0 || s.Removed != 0 || opened["cart.go"] != 1 {
		t.Errorf("unchanged: %+v, opened %v", s, opened)
	}
	x = open(t, dir, meaning.Options{}) // another process
	if s := update(t, x, counted); s.Indexed != 0 || s.Rebuilt || opened["cart.go"] != 1 {
		t.Errorf("opened again: %+v, opened %v", s, opened)
	}
	files["cart.go"] += "\nfunc discountVoucher() int {\n\treturn 5\n}\n"
	delete(files, "README.md")
	files["new.js"] = "function redeemCoupon(code) {\n  return lookup(code);\n}\n"
	s := update(t, x, counted)
	if s.Indexed != 2 || s.Removed != 1 || s.Files != 3 || opened["mail/send.py"] != 1 || opened["cart.go"] != 2 {
		t.Errorf("changed: %+v, opened %v", s, opened)
	}
	for _, x := range []*meaning.Index{x, open(t, dir, meaning.Options{})} {
		if h := search(t, x, "discount voucher", 1); len(h) == 0 || h[0].Name != "discountVoucher" {
			t.Errorf("got %+v", h)
		}
		if h := search(t, x, "redeem coupon", 1); len(h) == 0 || h[0].Name != "redeemCoupon" {
			t.Errorf("got %+v", h)
		}
		for _, h := range search(t, x, "payment credit cards gateway", 10) {
			if h.Path == "README.md" {
				t.Errorf("what was removed is found: %+v", h)
			}
		}
	}
}

// A file that was written in the clock tick in which it was read may change again without looking different.
func TestAYoungFileIsReadAgain(t *testing.T) {
	text := "func one() {\n\tfirst()\n\tfirst()\n}\n"
	now := time.Now()
	files := func(yield func(meaning.File, error) bool) {
		yield(meaning.File{Path: "a.go", Size: int64(len(text)), ModTime: now, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text)), nil
		}}, nil)
	}
	x := open(t, t.TempDir(), meaning.Options{})
	update(t, x, files)
	text = strings.ReplaceAll(text, "first", "other")
	if s := update(t, x, files); s.Indexed != 1 {
		t.Errorf("the change was not seen: %+v", s)
	}
	if h := search(t, x, "other", 1); len(h) != 1 {
		t.Errorf("got %+v", h)
	}
	if s := update(t, x, files); s.Indexed != 0 {
		t.Errorf("the same content was taken apart again: %+v", s)
	}
}

// An index answers like one built at once, whatever its history.
func TestGrownIndexAnswersLikeAFreshOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	words := strings.Fields("open close read write file socket parse token cart price mail retry cache index search merge sort tree node leaf graph edge")
	text := func() string {
		var b strings.Builder
		for n := range 1 + rng.IntN(6) {
			fmt.Fprintf(&b, "func %s%s%d() {\n", words[rng.IntN(len(words))], words[rng.IntN(len(words))], n)
			for range 1 + rng.IntN(5) {
				fmt.Fprintf(&b, "\t%s.%s(%s)\n", words[rng.IntN(len(words))], words[rng.IntN(len(words))], words[rng.IntN(len(words))])
			}
			b.WriteString("}\n\n")
		}
		return b.String()
	}
	dir := t.TempDir()
	files := tree{}
	grown := open(t, dir, meaning.Options{})
	for round := range 30 {
		for range rng.IntN(12) {
			path := fmt.Sprintf("f%d.go", rng.IntN(40))
			if rng.IntN(3) == 0 {
				delete(files, path)
			} else {
				files[path] = text()
			}
		}
		update(t, grown, files.files())
		if round%5 == 4 {
			grown = open(t, dir, meaning.Options{})
		}
		if round%3 != 0 {
			continue
		}
		fresh := open(t, "", meaning.Options{})
		update(t, fresh, files.files())
		for range 5 {
			q := words[rng.IntN(len(words))] + " " + words[rng.IntN(len(words))]
			kit.MustEqual(t, cmp.Diff(search(t, fresh, q, 20), search(t, grown, q, 20)),
				"", "round %d, %q (-fresh +grown)", round, q)
		}
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "seg-*")); len(names) > 12 {
		t.Errorf("%d segments are left", len(names))
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*.new")); len(names) > 0 {
		t.Errorf("%v is left", names)
	}
}

func TestADamagedIndexIsMadeAnew(t *testing.T) {
	damage := map[string]func(b []byte) []byte{
		"cut short":    func(b []byte) []byte { return b[:len(b)-3] },
		"empty":        func([]byte) []byte { return nil },
		"a byte more":  func(b []byte) []byte { return append(b, 0) },
		"gone":         nil,
		"a bit flips":  func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"another kind": func(b []byte) []byte { return append([]byte("notthis1"), b[8:]...) },
	}
	for _, file := range []string{"manifest", "seg-*"} {
		for name, f := range damage {
			t.Run(file+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				x := open(t, dir, meaning.Options{})
				update(t, x, shop().files())
				names, err := filepath.Glob(filepath.Join(dir, file))
				if err != nil || len(names) != 1 {
					t.Fatal(names, err)
				}
				if f == nil {
					err = os.Remove(names[0])
				} else {
					b, _ := os.ReadFile(names[0])
					err = os.WriteFile(names[0], f(b), 0o600)
				}
				kit.OK(t, err)
				x = open(t, dir, meaning.Options{})
				s := update(t, x, shop().files())
				if s.Indexed != 3 || s.Rebuilt != (file != "manifest" || f != nil) {
					t.Errorf("got %+v", s)
				}
				if h := search(t, x, "total price", 1); len(h) == 0 || h[0].Name != "totalPrice" {
					t.Errorf("got %+v", h)
				}
			})
		}
	}
}

// An index whose files are damaged under a running process also heals itself.
func TestARunningIndexHealsItself(t *testing.T) {
	dir := t.TempDir()
	x := open(t, dir, meaning.Options{})
	update(t, x, shop().files())
	names, _ := filepath.Glob(filepath.Join(dir, "seg-*"))
	kit.OK(t, os.Truncate(names[0], 10))
	if s := update(t, x, shop().files()); s.Indexed != 3 || !s.Rebuilt {
		t.Errorf("got %+v", s)
	}
	if s := update(t, open(t, dir, meaning.Options{}), shop().files()); s.Indexed != 0 {
		t.Errorf("it did not last: %+v", s)
	}
}

func TestTwoProcessesShareAnIndex(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, meaning.Options{}), open(t, dir, meaning.Options{})
	files := shop()
	update(t, a, files.files())
	if s := update(t, b, files.files()); s.Indexed != 0 {
		t.Errorf("the second did it all again: %+v", s)
	}
	files["more.go"] = "func warehouseStock() int {\n\treturn count\n}\n"
	update(t, b, files.files())
	if s := update(t, a, files.files()); s.Indexed != 0 {
		t.Errorf("the first did it again: %+v", s)
	}
	if h := search(t, a, "warehouse stock", 1); len(h) != 1 || h[0].Name != "warehouseStock" {
		t.Errorf("got %+v", h)
	}
}

func TestUnreadableAndVanishedAndOddFilesDoNotStopAnUpdate(t *testing.T) {
	files := shop()
	odd := func(yield func(meaning.File, error) bool) {
		for f := range files.files() {
			if !yield(f, nil) {
				return
			}
		}
		at := func(path string, size int64, open func() (io.ReadCloser, error)) meaning.File {
			return meaning.File{Path: path, Size: size, ModTime: longAgo, Open: open}
		}
		fail := func(err error) func() (io.ReadCloser, error) {
			return func() (io.ReadCloser, error) { return nil, err }
		}
		of := func(text string) func() (io.ReadCloser, error) {
			return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		}
		_ = yield(at("denied.go", 10, fail(fs.ErrPermission)), nil) &&
			yield(at("gone.go", 10, fail(fs.ErrNotExist)), nil) &&
			yield(at("large.go", 5<<20, fail(errors.New("opened although it is too large"))), nil) &&
			yield(at("grows.go", 10, of(strings.Repeat("func grows() { growing() }\n", 100_000))), nil) &&
			yield(at("binary.go", 10, of("func binary() {}\x00\x01")), nil) &&
			yield(at("empty.go", 0, of("")), nil) &&
			yield(files.file("cart.go"), nil)
	}
	x := open(t, t.TempDir(), meaning.Options{})
	s := update(t, x, odd)
	if s.Skipped != 1 || !errors.Is(s.FirstOfSkipped, fs.ErrPermission) || s.Files != 7 {
		t.Errorf("got %+v", s)
	}
	if h := search(t, x, "binary growing", 10); len(h) > 0 && (h[0].Path == "binary.go" || h[0].Path == "grows.go") {
		t.Errorf("got %+v", h)
	}
}

func TestFailedUpdateLeavesTheIndexUnchanged(t *testing.T) {
	x := open(t, t.TempDir(), meaning.Options{})
	update(t, x, shop().files())
	before := search(t, x, "price", 5)
	broken := func(yield func(meaning.File, error) bool) {
		_ = yield(tree{"z.go": "func price() {\n\tprice()\n}\n"}.file("z.go"), nil) && yield(meaning.File{}, errors.New("the walk broke"))
	}
	kit.Fails(t, kit.Err(x.Update(t.Context(), broken)), "the walk broke")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	kit.Refused(t, kit.Err(x.Update(ctx, shop().files())), tool.CodeCancelled, "", "cancelled: got")
	kit.Equal(t, cmp.Diff(before, search(t, x, "price", 5)), "")
}

func TestAnIndexThatCannotBeWrittenStillAnswers(t *testing.T) {
	dir := t.TempDir()
	x := open(t, dir, meaning.Options{})
	kit.OK(t, os.MkdirAll(filepath.Join(dir, "manifest", "in the way"), 0o700))
	stats, err := x.Update(t.Context(), shop().files())
	if tool.CodeOf(err) != tool.CodeUnavailable || stats.Files != 3 {
		t.Errorf("got %+v, %v", stats, err)
	}
	if h := search(t, x, "total price", 1); len(h) == 0 || h[0].Name != "totalPrice" {
		t.Errorf("got %+v", h)
	}
}

func TestAQuotaBoundsTheIndex(t *testing.T) {
	x := open(t, "", meaning.Options{MaxChunks: 3})
	kit.Refused(t, kit.Err(x.Update(t.Context(), shop().files())), tool.CodeQuotaExceeded, "")
	if files := x.FilesWith(""); len(files) > 0 {
		t.Errorf("got %q", files)
	}
}

func TestSearchesAndUpdatesGoOnAtTheSameTime(t *testing.T) {
	x := open(t, t.TempDir(), meaning.Options{})
	files := shop()
	update(t, x, files.files())
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if h, err := x.Search(context.Background(), "total price", 3, nil); err != nil || len(h) == 0 || h[0].Name != "totalPrice" {
					t.Errorf("got %+v, %v", h, err)
					return
				}
			}
		})
	}
	for n := range 20 {
		files[fmt.Sprintf("n%d.go", n)] = fmt.Sprintf("func number%d() {\n\tcount(%d)\n}\n", n, n)
		update(t, x, files.files())
	}
	close(stop)
	wg.Wait()
}
