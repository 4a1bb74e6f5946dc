package meaning

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"toolpost/codesearch/disk"
)

//go:embed table.bin
var tableBytes []byte

// A Table maps every word to a vector, learned from how people describe functions: see bench/embeddings, the program that
// made it. A text's vector is the weighted sum of the vectors of its words.
type Table struct {
	id      uint32 // checksum: an index that was made with another table cannot be used
	dims    int
	tokens  []uint32  // of each row
	slots   []int32   // open addressing by token: a row plus one, or 0 if free
	query   []float32 // weight of a row in a question
	code    []float32 // its weight in a chunk
	vectors []byte    // int8, dims per row
}

// The file of a table: a header, the tokens, the two lists of weights, the vectors, and a checksum of everything before.
const (
	tableMagic = "tptable1"
	tableHead  = len(tableMagic) + 8
	maxDims    = 4096
	maxRows    = 1 << 20
)

// Standard returns the table embedded in the program. It is read once.
var Standard = sync.OnceValues(func() (*Table, error) { return ReadTable(tableBytes) })

// ReadTable reads the file of a table. It retains b.
func ReadTable(b []byte) (*Table, error) {
	if len(b) < tableHead+4 || string(b[:len(tableMagic)]) != tableMagic {
		return nil, fmt.Errorf("not a table of words")
	}
	dims, rows := int(le32(b[8:])), int(le32(b[12:]))
	if dims <= 0 || dims > maxDims || dims%64 != 0 || rows <= 0 || rows > maxRows ||
		len(b) != tableHead+rows*(12+dims)+4 {
		return nil, fmt.Errorf("a table of %d words and %d dimensions cannot have %d bytes", rows, dims, len(b))
	}
	sum := le32(b[len(b)-4:])
	if disk.Checksum(b[:len(b)-4]) != sum {
		return nil, fmt.Errorf("the table of words is damaged")
	}
	t := &Table{
		id: sum, dims: dims, tokens: make([]uint32, rows), query: make([]float32, rows), code: make([]float32, rows),
	}
	at := b[tableHead:]
	for i := range rows {
		t.tokens[i] = le32(at[4*i:])
		t.query[i] = math.Float32frombits(le32(at[4*(rows+i):]))
		t.code[i] = math.Float32frombits(le32(at[4*(2*rows+i):]))
	}
	t.vectors = at[12*rows : len(at)-4]
	t.fillSlots()
	return t, nil
}

// A Row is a word of a table under construction.
type Row struct {
	Token       Token
	Query, Code float32 // weights
	Vector      []float32
}

// WriteTable returns the file of a table. Vectors are stored in eight bits per dimension; the scale of each row is part
// of its weights.
func WriteTable(dims int, rows []Row) []byte {
	b := append([]byte(tableMagic), make([]byte, 8)...)
	binary.LittleEndian.PutUint32(b[8:], uint32(dims))
	binary.LittleEndian.PutUint32(b[12:], uint32(len(rows)))
	var query, code, vectors []byte
	for _, r := range rows {
		scale := float32(0)
		for _, x := range r.Vector {
			scale = max(scale, x, -x)
		}
		scale = max(scale, 1e-12) / 127
		b = binary.LittleEndian.AppendUint32(b, uint32(r.Token))
		query = binary.LittleEndian.AppendUint32(query, math.Float32bits(r.Query*scale))
		code = binary.LittleEndian.AppendUint32(code, math.Float32bits(r.Code*scale))
		for _, x := range r.Vector {
			vectors = append(vectors, byte(int8(math.Round(float64(x/scale)))))
		}
	}
	b = append(append(append(b, query...), code...), vectors...)
	return seal(b)
}

func (t *Table) fillSlots() {
	n := 4
	for n < 2*len(t.tokens) {
		n *= 2
	}
	t.slots = make([]int32, n)
	for row, token := range slices.Backward(t.tokens) { // if a word occurs twice, the first row counts
		t.slots[t.find(token)] = int32(row + 1)
	}
}

// find returns the slot of a word: the one that has it, or the free one for it.
func (t *Table) find(token uint32) uint32 {
	mask := uint32(len(t.slots) - 1)
	for i := token & mask; ; i = (i + 1) & mask {
		if n := t.slots[i]; n == 0 || t.tokens[n-1] == token {
			return i
		}
	}
}

// row returns the row of a word, or -1 if the table does not have it.
func (t *Table) row(token Token) int { return int(t.slots[t.find(uint32(token))]) - 1 }

// embed sums the vectors of words into sum, which has the table's dimensions.
func (t *Table) embed(terms []Term, weights []float32, sum []float32) {
	clear(sum)
	for _, term := range terms {
		r := t.row(term.Token)
		if r < 0 {
			continue
		}
		w := weights[r] * Damp(term.Count)
		if w > -negligible && w < negligible {
			continue
		}
		addScaled(sum, w, t.vectors[r*t.dims:(r+1)*t.dims])
	}
}

// negligible is the weight below which a word does not change a vector.
const negligible = 1e-7

// addScaled takes most of the time of indexing. Dimensions are a multiple of 64.
func addScaled(sum []float32, w float32, v []byte) {
	for len(sum) >= 8 && len(v) >= 8 {
		s, x := (*[8]float32)(sum), (*[8]byte)(v)
		s[0] += w * float32(int8(x[0]))
		s[1] += w * float32(int8(x[1]))
		s[2] += w * float32(int8(x[2]))
		s[3] += w * float32(int8(x[3]))
		s[4] += w * float32(int8(x[4]))
		s[5] += w * float32(int8(x[5]))
		s[6] += w * float32(int8(x[6]))
		s[7] += w * float32(int8(x[7]))
		sum, v = sum[8:], v[8:]
	}
}

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// name identifies the vectors of this table.
func (t *Table) name() string { return fmt.Sprintf("table %08x", t.id) }
