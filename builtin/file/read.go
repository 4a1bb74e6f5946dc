package file

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"unicode/utf8"

	"toolpost/strictjson"
	"toolpost/tool"
)

type readArgs struct {
	Path string `json:"path"`
}

// A binary is how content that is not text is given.
type binary struct {
	Encoding string `json:"encoding"`
	Content  []byte `json:"content"` // base64 in JSON
}

func (r *Runner) read(ctx context.Context, args readArgs) (json.RawMessage, error) {
	f, _, err := r.open(args.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := r.sizeOf(f, args.Path)
	if err != nil {
		return nil, err
	}
	content, err := readAll(ctx, f, size, r.maxFile)
	switch {
	case err != nil:
		return nil, failed(ctx, args.Path, err)
	case int64(len(content)) > r.maxFile:
		return nil, r.tooLarge(args.Path)
	}
	if isText(content) {
		return strictjson.Marshal(string(content))
	}
	return strictjson.Marshal(binary{Encoding: "base64", Content: content})
}

// sizeOf refuses what is no regular file, or too large, before a byte of it is read.
func (r *Runner) sizeOf(f *os.File, shown string) (int64, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return 0, err
	case info.IsDir():
		return 0, tool.Errorf(tool.CodeInvalidInput, "%s is a folder; use %s", shown, listName)
	case !info.Mode().IsRegular():
		return 0, notRegular(shown)
	case info.Size() > r.maxFile:
		return 0, r.tooLarge(shown)
	}
	return info.Size(), nil
}

func (r *Runner) tooLarge(shown string) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s is larger than %d bytes; max_file of the source says how much is read", shown, r.maxFile).
		Because("too_large")
}

// readAll reads at most limit+1 bytes, so that a file that grows meanwhile is noticed and not followed.
func readAll(ctx context.Context, f *os.File, size, limit int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(size, limit)) + bytes.MinRead)
	_, err := io.Copy(&b, contextReader{ctx, io.LimitReader(f, limit+1)})
	return b.Bytes(), err
}

// failed tells why reading an open file or folder ended early.
func failed(ctx context.Context, shown string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return tool.Errorf(tool.CodeInternal, "%s: %w", shown, unwrapPath(err))
}

// A contextReader stops between two reads when its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// isText reports whether people would call it text; a NUL is a sure sign of the opposite.
func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }
