package file

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"

	"toolpost/host/process"
	"toolpost/host/workspace"
	"toolpost/wire/strictjson"
)

// large is the size from which a file is not held in memory beside its JSON form.
const large = 256 << 10

// quoted returns a text file as a JSON string, or nil if it is not text. There is one copy of exactly the needed size: the
// file is read twice, block by block, first to measure it.
func quoted(ctx context.Context, f *workspace.File, limit int64) (json.RawMessage, error) {
	size, scratch := 0, make([]byte, 0, 2*block)
	text, err := blocks(ctx, f, limit, func(b []byte) {
		scratch = strictjson.AppendText(scratch[:0], b)
		size += len(scratch)
	})
	if err != nil || !text {
		return nil, err
	}
	out := append(make([]byte, 0, size+2), '"')
	text, err = blocks(ctx, f, limit, func(b []byte) { out = strictjson.AppendText(out, b) })
	if err != nil || !text { // it was changed meanwhile
		return nil, err
	}
	return append(out, '"'), nil
}

// blocks reads a file in pieces that end between two characters, as long as they are text.
func blocks(ctx context.Context, f *workspace.File, limit int64, each func([]byte)) (text bool, err error) {
	in := contextReader{ctx, io.NewSectionReader(f, 0, math.MaxInt64)}
	buf := make([]byte, block)
	held, all := 0, int64(0) // held counts the bytes at the start of buf that begin a character
	for {
		n, err := io.ReadFull(in, buf[held:])
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return false, err
		}
		if all += int64(n); all > limit {
			return false, f.TooLarge(limit)
		}
		n += held
		whole := n
		if !last {
			whole = process.WholeRunes(buf[:n])
		}
		if !isText(buf[:whole]) {
			return false, nil
		}
		each(buf[:whole])
		if last {
			return true, nil
		}
		held = copy(buf, buf[whole:n])
	}
}
