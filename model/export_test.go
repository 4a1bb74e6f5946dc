package model

import (
	"bytes"
	"context"
	"errors"

	"toolpost/tool"
)

// Decode decodes a whole answer of an API.
func Decode(api API, doc []byte) (*Answer, error) {
	return (&Model{Options: Options{API: api}}).wire().decode(doc)
}

// DecodeStream decodes a streamed answer.
func DecodeStream(api API, stream []byte) (*Answer, error) {
	t := (&Model{Options: Options{API: api}}).Talk()
	a, err := t.listen(bytes.NewReader(stream), new(Listener))
	if err != nil && !errors.As(err, new(*tool.Error)) {
		err = t.misread(context.Background(), err)
	}
	return a, err
}
