package tool

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

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
