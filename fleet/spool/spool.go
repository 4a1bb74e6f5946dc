// Package spool keeps the bytes of a file that arrives in pieces from another machine, in a file without a name.
package spool

import (
	"bytes"
	"crypto/sha256"
	"os"

	"toolpost/tool"
)

// A File collects the bytes of one file after another. The zero value is empty.
type File struct {
	file *os.File // nil if nothing has arrived
	size int64
}

// most bounds the bytes of a file.
const most = 1 << 30

// Write adds bytes.
func (in *File) Write(b []byte) (err error) {
	if in.file == nil {
		if in.file, err = os.CreateTemp("", "toolpost-asset-*"); err != nil {
			return err
		}
		if err = os.Remove(in.file.Name()); err != nil {
			return err
		}
	}
	if in.size += int64(len(b)); in.size > most {
		return tool.Errorf(tool.CodeUnsupported, "an asset has more than %d bytes; nodes send no larger ones", most)
	}
	_, err = in.file.Write(b)
	return err
}

// Whole returns the file, whose digest it checks. It is valid until Close.
func (in *File) Whole(sum []byte) (*os.File, error) {
	if in.file == nil { // it is empty
		if err := in.Write(nil); err != nil {
			return nil, err
		}
	}
	got := sha256.New()
	if _, err := in.file.Seek(0, 0); err != nil {
		return nil, err
	}
	if _, err := in.file.WriteTo(got); err != nil {
		return nil, err
	}
	if !bytes.Equal(got.Sum(nil), sum) {
		return nil, tool.Errorf(tool.CodeProtocol, "an asset of a node has another digest than it said").Because(tool.ReasonLink)
	}
	_, err := in.file.Seek(0, 0)
	return in.file, err
}

// Close forgets the file; the next one may follow.
func (in *File) Close() {
	if in.file != nil {
		_ = in.file.Close()
		in.file, in.size = nil, 0
	}
}
