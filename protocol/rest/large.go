package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// From large on an output is sent as it is, without a copy of it in a body, and what it leaves behind is collected when
// that is huge, together with what others left. The memory of one that is huge by itself is given back when the answer
// is sent.
const (
	large = 256 << 10
	huge  = 8 << 20
)

// sendLarge answers with a large output; false: nothing was sent, and the answer is to be written like any other. There
// is one copy of the output in memory, whatever it is.
func sendLarge(w http.ResponseWriter, status int, r *tool.Result, call string) bool {
	if r == nil || len(r.Output) < large || strictjson.Check(r.Output) != nil {
		return false
	}
	around := *r
	around.Output = json.RawMessage("0") // holds its place
	body, behind, err := encodeAnswer(&around, call)
	if err != nil {
		return false
	}
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)-1+len(r.Output)))
	w.WriteHeader(status)
	for _, part := range [][]byte{body[:behind-1], r.Output, body[behind:]} {
		if _, err := w.Write(part); err != nil {
			break // the peer has gone
		}
	}
	return true
}

// forgetAfter collects what a large output leaves behind when the request is answered: until then something holds it. The
// collector by itself lets garbage grow to as much as is alive, which may be the output, so that with a few of them in a
// row the program would have several in memory.
func (s *server) forgetAfter(r *http.Request, size int) {
	switch {
	case size >= huge:
		context.AfterFunc(r.Context(), debug.FreeOSMemory)
	case size >= large && s.left.Add(int64(size)) >= huge:
		s.left.Store(0)
		context.AfterFunc(r.Context(), runtime.GC)
	}
}
