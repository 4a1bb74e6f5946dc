package tool

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"
)

// random hands out random bytes that were read ahead: to ask the system for ten of them each time would be
// most of the work of making an id.
type random struct {
	ahead [1 << 10]byte
	used  int
}

var randoms = sync.Pool{New: func() any { return &random{used: len(random{}.ahead)} }}

func (r *random) read(b []byte) {
	if len(r.ahead)-r.used < len(b) {
		_, _ = rand.Read(r.ahead[:]) // never fails: it ends the program instead
		r.used = 0
	}
	r.used += copy(b, r.ahead[r.used:])
}

// NewID makes a UUID of version 7: ids made later sort after those made before, to the millisecond.
// Calls, traces and whatever else needs a name get it from here.
func NewID() string {
	var u [16]byte
	r := randoms.Get().(*random)
	r.read(u[6:])
	randoms.Put(r)
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		u[i] = byte(ms >> (8 * (5 - i)))
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], u[0:4])
	hex.Encode(s[9:13], u[4:6])
	hex.Encode(s[14:18], u[6:8])
	hex.Encode(s[19:23], u[8:10])
	hex.Encode(s[24:36], u[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// Name gives a call that has no name one, and a call that belongs to no trace starts one. It is for whoever made
// the call; the engine does it for a copy of a call that comes without.
func (c *Call) Name() {
	if c.ID == "" {
		c.ID = NewID()
		c.Trace = cmp.Or(c.Trace, c.ID)
	}
	if c.Trace == "" { // somebody named the call who may have chosen anything, and a trace is a UUID
		c.Trace = NewID()
	}
}

// Forwarded returns the call as it is passed on to another Toolpost. There all of our callers are one, and what they
// chose without knowing of each other would meet: so the call gets an id of its own, and a session and a key get names
// that no other caller's have, the same each time.
func (c *Call) Forwarded() *Call {
	on := *c
	on.ID = NewID()
	if c.Session != "" {
		on.Session = NameFor("session", c.Caller.ID, c.Session)
	}
	if c.Key != "" {
		on.Key = NameFor("key", c.Caller.ID, c.Session, c.Key)
	}
	return &on
}

// NameFor makes one name of several texts, the same in every process; other texts give another one.
func NameFor(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		h.Write(binary.AppendUvarint(nil, uint64(len(text)))) // "ab"+"c" is not "a"+"bc"
		h.Write([]byte(text))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
