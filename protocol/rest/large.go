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

// An output of at least large bytes is sent as it is, without a copy in a body. Once such outputs add up to huge bytes,
// the garbage collector runs. After an output that is huge by itself, its memory is returned to the system.
const (
	large = 256 << 10
	huge  = 8 << 20
)

// sendLarge answers with a large output, and keeps only one copy of it in memory. It returns false if it sent nothing,
// and the answer is to be written like any other.
func sendLarge(w http.ResponseWriter, status int, r *tool.Result, call string) bool {
	if r == nil || len(r.Output) < large || strictjson.Check(r.Output) != nil {
		return false
	}
	around := *r
	around.Output = json.RawMessage("0") // a placeholder
	body, behind, err := encodeAnswer(&around, call)
	if err != nil {
		return false
	}
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)-1+len(r.Output)))
	w.WriteHeader(status)
	for _, part := range [][]byte{body[:behind-1], r.Output, body[behind:]} {
		if _, err := w.Write(part); err != nil {
			break // the peer has disconnected
		}
	}
	return true
}

// forgetAfter frees a large output once the request is answered, since it is referenced until then. The collector by
// itself lets garbage grow to as much as is alive, which may be the output, so that a few in a row would leave several
// in memory.
func (s *server) forgetAfter(r *http.Request, size int) {
	switch {
	case size >= huge:
		context.AfterFunc(r.Context(), debug.FreeOSMemory)
	case size >= large && s.left.Add(int64(size)) >= huge:
		s.left.Store(0)
		context.AfterFunc(r.Context(), runtime.GC)
	}
}
