package meaning

import (
	"bytes"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"strings"
	"time"

	"toolpost/codesearch/disk"
	"toolpost/codesearch/split"
)

// analysed is the result of analysing a file.
type analysed struct {
	file   File
	digest uint64
	chunks []chunk
	terms  []Term
	ends   []int32 // the end of each chunk's terms
	codes  []byte
	same   bool // the index already has this content
	young  bool // it changed so recently that it may change again within the same clock tick
	gone   bool // it was removed between the walk and the reading
	err    error
}

func (a *analysed) termsOf(i int) []Term {
	from := int32(0)
	if i > 0 {
		from = a.ends[i-1]
	}
	return a.terms[from:a.ends[i]]
}

// An analyst analyses files. Each worker has its own.
type analyst struct {
	table    *Table
	embedder *Service
	bag      Bag
	sum      []float32
	text     bytes.Buffer
}

// analyse reads a file and cuts it into chunks. known is its entry in the index, or nil.
func (w *analyst) analyse(ctx context.Context, f File, known *entry) *analysed {
	a := &analysed{file: f, young: time.Since(f.ModTime) < racy}
	src, err := w.read(f)
	a.err, a.gone, a.digest = err, errors.Is(err, fs.ErrNotExist), Digest(src)
	a.same = known != nil && a.digest == known.digest
	if a.err != nil || a.same || !isText(src) {
		return a
	}
	parts := split.Parts(split.LanguageOf(f.Path), src)
	for _, p := range parts {
		w.chunk(a, f.Path, p, src)
	}
	if w.embedder != nil {
		a.codes, a.err = w.remote(ctx, parts, src)
	}
	return a
}

// read reads a file of at most MaxFile bytes, and nothing of a larger one.
func (w *analyst) read(f File) ([]byte, error) {
	if f.Size > MaxFile {
		return nil, nil
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	w.text.Reset()
	n, err := w.text.ReadFrom(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if n > MaxFile {
		return nil, nil
	}
	return w.text.Bytes(), nil
}

func (w *analyst) chunk(a *analysed, path string, p split.Part, src []byte) {
	w.bag.Fill(path, p, src)
	c := chunk{
		line: int32(p.Line), last: int32(p.Last), define: int32(p.Define), kind: p.Kind,
		name: clip(p.Name), hash: Hash(wholeLines(src, p)),
	}
	for _, t := range w.bag.Terms {
		c.length += int32(t.Count)
	}
	a.chunks = append(a.chunks, c)
	a.terms = append(a.terms, w.bag.Terms...)
	a.ends = append(a.ends, int32(len(a.terms)))
	if w.embedder == nil {
		w.table.embed(w.bag.Terms, w.table.code, w.sum)
		a.codes = pack(w.sum, a.codes)
	}
}

// clip keeps names short: a heading may be as long as its author likes.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// wholeLines returns the lines of a part.
func wholeLines(src []byte, p split.Part) []byte {
	from := bytes.LastIndexByte(src[:p.Start], '\n') + 1
	to := bytes.IndexByte(src[p.End:], '\n')
	if to < 0 {
		return src[from:]
	}
	return src[from : p.End+to]
}

// Hash returns the hash of a Hit's lines, by which a caller can check whether they are still the same. Blanks around them
// do not count.
func Hash(lines []byte) uint32 { return disk.Checksum(bytes.TrimSpace(lines)) }

// Digest returns a hash of a text.
func Digest(src []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(src)
	return h.Sum64()
}

// isText reports whether a file is text, judged by its beginning.
func isText(src []byte) bool { return bytes.IndexByte(src[:min(len(src), 8<<10)], 0) < 0 }
