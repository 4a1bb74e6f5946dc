package door

import (
	"encoding/base64"
	"encoding/json"
	"sort"
	"unicode/utf8"

	"toolpost/protocol/mcp"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// writePage writes the requested page of a list, sorted by name. A cursor is the name after which a page begins, so
// that entries that come or go in between shift nothing else.
func writePage[T any](
	s *server, r *request, what string, list []T, name func(T) string, encode func(T) json.RawMessage,
) (*strictjson.Writer, *jsonrpc.Error) {
	after, err := base64.RawURLEncoding.Strict().DecodeString(r.cursor)
	if err != nil || !utf8.Valid(after) {
		return nil, mcp.Invalid("the cursor is not one of ours; begin again without it")
	}
	if len(after) > 0 {
		list = list[sort.Search(len(list), func(i int) bool { return name(list[i]) > string(after) }):]
	}
	page := list[:min(len(list), s.Page)]
	entries := append(make([]byte, 0, 500*len(page)), '[')
	for _, one := range page {
		entry := encode(one)
		if len(entries) > 1 && len(entry) > 0 {
			entries = append(entries, ',')
		}
		entries = append(entries, entry...)
	}
	w := newResult(r, len(entries))
	w.Raw(what, append(entries, ']'))
	if len(page) < len(list) {
		w.Text("nextCursor", base64.RawURLEncoding.EncodeToString([]byte(name(page[len(page)-1]))))
	}
	s.writeCacheHints(r, w)
	return w, nil
}

// encoded encodes an entry in the usual way, for short lists; an entry that cannot be encoded is left out.
func encoded[T any](entry T) json.RawMessage {
	b, _ := strictjson.Marshal(entry)
	return b
}
