package process

import (
	"context"
	"io"
)

// ReadWithin is ReadDocument until ctx ends. Then r is closed, where that can be done: whoever reads from something that
// cannot be interrupted, such as a terminal or a pipe that was inherited, stays behind until the program ends.
func ReadWithin(ctx context.Context, r io.Reader, max int) ([]byte, error) {
	read := make(chan struct{})
	var doc []byte
	var failed error
	go func() {
		defer close(read)
		doc, failed = ReadDocument(r, max)
	}()
	select {
	case <-read:
		return doc, failed
	case <-ctx.Done():
		if c, ok := r.(io.Closer); ok {
			_ = c.Close()
		}
		return nil, context.Cause(ctx)
	}
}
