// Package packed writes a JSON value with raw bytes behind it, for messages between machines that must not alter them.
package packed

import (
	"encoding/binary"
	"errors"

	"toolpost/wire/strictjson"
)

// Write writes a value as JSON, and raw bytes behind it that stay as they are.
func Write(head any, raw ...[]byte) ([]byte, error) {
	b, err := strictjson.Marshal(head)
	if err != nil {
		return nil, err
	}
	size := binary.MaxVarintLen64 + len(b)
	for _, r := range raw {
		size += binary.MaxVarintLen64 + len(r)
	}
	out := append(binary.AppendUvarint(make([]byte, 0, size), uint64(len(b))), b...)
	for _, r := range raw {
		out = append(binary.AppendUvarint(out, uint64(len(r))), r...)
	}
	return out, nil
}

var errCut = errors.New("a packed message ends too early")

// MostParts bounds the raw parts of a message.
const MostParts = 1 << 16

// Read is the inverse of Write. Raw bytes of length 0 are nil.
func Read(b []byte, head any) (raw [][]byte, err error) {
	first := true
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) || len(raw) == MostParts {
			return nil, errCut
		}
		part := b[used : used+int(n) : used+int(n)]
		b = b[used+int(n):]
		switch {
		case first:
			if err := strictjson.Unmarshal(part, head); err != nil {
				return nil, err
			}
			first = false
		case n == 0:
			raw = append(raw, nil)
		default:
			raw = append(raw, part)
		}
	}
	if first {
		return nil, errCut
	}
	return raw, nil
}
