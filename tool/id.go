package tool

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// NewID makes a UUID of version 7: ids made later sort after those made before, to the millisecond.
// Calls, traces and whatever else needs a name get it from here.
func NewID() string {
	var u [16]byte
	_, _ = rand.Read(u[6:]) // never fails: it ends the program instead
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
