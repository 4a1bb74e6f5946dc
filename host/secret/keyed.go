package secret

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// Keyed makes digests with a key. Arguments are often short, or one of a few: who had a plain digest of them could try
// what they are. With a key that works for nobody who does not have it, and who has it still sees which are the same.
type Keyed struct{ key func() ([]byte, error) }

// NewKeyed makes one. The key is asked for when the first digest is made, and once; nil: it is made up, so that no
// other program has the same digests.
func NewKeyed(key func() ([]byte, error)) *Keyed {
	if key == nil {
		key = func() ([]byte, error) { return []byte(rand.Text()), nil }
	}
	return &Keyed{sync.OnceValues(key)}
}

// Sum returns the digest of several texts for a purpose. Those for different purposes have nothing in common.
func (k *Keyed) Sum(purpose string, texts ...[]byte) (sum [sha256.Size]byte, err error) {
	key, err := k.key()
	if err != nil {
		return sum, err
	}
	h := hmac.New(sha256.New, key)
	var size [binary.MaxVarintLen64]byte
	for _, text := range append([][]byte{[]byte(purpose)}, texts...) {
		h.Write(binary.AppendUvarint(size[:0], uint64(len(text)))) // "ab"+"c" is not "a"+"bc"
		h.Write(text)
	}
	h.Sum(sum[:0])
	return sum, nil
}
