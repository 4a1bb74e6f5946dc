package meaning

import (
	"encoding/binary"
	"math"
)

// A reader takes numbers and strings off bytes. After the first thing that cannot be it is bad, and everything it gives
// is zero.
type reader struct {
	b   []byte
	at  int
	bad bool
}

func (r *reader) check(ok bool) { r.bad = r.bad || !ok }

func (r *reader) uvarint() uint64 {
	if r.bad {
		return 0
	}
	x, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.at += n
	return x
}

// count is a number of things that follow, so it cannot be more than there are bytes left.
func (r *reader) count() int {
	x := r.uvarint()
	if x > uint64(len(r.b)-r.at) {
		r.bad = true
		return 0
	}
	return int(x)
}

// number is one that says nothing about what follows.
func (r *reader) number() int {
	x := r.uvarint()
	if x > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int(x)
}

func (r *reader) int32() int32 {
	if r.bad {
		return 0
	}
	x, n := binary.Varint(r.b[r.at:])
	if n <= 0 || x > math.MaxInt32/2 || x < -math.MaxInt32/2 {
		r.bad = true
		return 0
	}
	r.at += n
	return int32(x)
}

func (r *reader) int64() int64 {
	if r.bad {
		return 0
	}
	x, n := binary.Varint(r.b[r.at:])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.at += n
	return x
}

func (r *reader) bytes(n int) []byte {
	if r.bad || n < 0 || n > len(r.b)-r.at {
		r.bad = true
		return nil
	}
	b := r.b[r.at : r.at+n : r.at+n]
	r.at += n
	return b
}

func (r *reader) string() string { return string(r.bytes(r.count())) }

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return le32(b)
	}
	return 0
}
