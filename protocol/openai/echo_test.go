package openai_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
)

// modelKey has characters that JSON, URLs and base64 encode.
const modelKey = `sk-proj/9vQ+w"7Lr&2Zk0TbX=Yd5`

// codings are the encodings in which a server may return its key.
func codings() map[string]func(string) string {
	return map[string]func(string) string{
		"plain": func(s string) string { return s },
		"json": func(s string) string {
			b, _ := json.Marshal(s)
			return string(b)
		},
		"url":    url.QueryEscape,
		"hex":    func(s string) string { return hex.EncodeToString([]byte(s)) },
		"base64": func(s string) string { return base64.StdEncoding.EncodeToString([]byte("key=" + s)) },
		"escapes": func(s string) (coded string) {
			for _, c := range s {
				coded += fmt.Sprintf(`\u%04x`, c)
			}
			return coded
		},
	}
}

// places are where an answer can contain the key: in text, in calls, and in errors.
func places() []string {
	return []string{
		"text", "blocks", "mixed", "thoughts", "seal", "refusal", "other", "args", "id", "name", "own", "status", "code", "page",
		"error", "redirect",
	}
}

// wanted matches a request to the echo: a place, a coding, and the number of bytes per piece.
var wanted = regexp.MustCompile(`say ([a-z]+) ([a-z0-9]+) (\d+) please`)

type doc = map[string]any

// An echo is a model's server, of both APIs, that writes the key that it was sent into its answers.
type echo struct {
	said   string // its text, with the key in it
	place  string
	most   int // bytes of each piece
	stream bool
	w      http.ResponseWriter
}

func serveEcho(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked := wanted.FindStringSubmatch(string(body))
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key")
		if asked == nil || key != modelKey {
			http.Error(w, "this is no request", http.StatusBadRequest)
			return
		}
		e := &echo{place: asked[1], w: w, stream: strings.Contains(string(body), `"stream":true`)}
		coded := codings()[asked[2]](key)
		if e.said = "begin " + coded + " end"; e.place == "id" || e.place == "name" || e.place == "seal" {
			e.said = coded
		}
		_, _ = fmt.Sscan(asked[3], &e.most)
		if strings.Contains(string(body), `"tool_result"`) || strings.Contains(string(body), `"tool_call_id"`) {
			e.place, e.said = "text", "done"
		}
		if e.fails(r) {
			return
		}
		if e.stream {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		if strings.HasSuffix(r.URL.Path, "/messages") {
			e.message()
		} else {
			e.completion()
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// fails answers with an error, if the place is one.
func (e *echo) fails(r *http.Request) bool {
	switch e.place {
	case "status", "code":
		e.w.WriteHeader(http.StatusBadRequest)
		e.send("", doc{"error": doc{"message": e.said, "code": "k" + hex.EncodeToString([]byte(modelKey))}})
	case "page":
		_, _ = io.WriteString(e.w, "<html>"+e.said)
	case "redirect":
		http.Redirect(e.w, r, "/elsewhere?"+url.QueryEscape(e.said), http.StatusFound)
	default:
		return false
	}
	return true
}

func (e *echo) send(event string, d doc) {
	b, _ := json.Marshal(d)
	if !e.stream || e.place == "status" || e.place == "code" {
		_, _ = e.w.Write(b)
		return
	}
	_, _ = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", event, b)
}

// pieces splits the text: for a stream, or into blocks.
func (e *echo) pieces() (all []string) {
	for piece := range slices.Chunk([]byte(e.said), e.most) {
		all = append(all, string(piece))
	}
	return all
}

// call returns the call in an answer, with its arguments.
func (e *echo) call() (id, name, args string) {
	id, name, args = "call_1", "readFile", `{"path":"package.json"}`
	b, _ := json.Marshal(doc{"path": e.said})
	if strings.Contains(e.said, `\u`) { // the arguments themselves are encoded in this way
		b = []byte(`{"path":"` + e.said + `"}`)
	}
	switch e.place {
	case "args":
		args = string(b)
	case "own":
		name, args = "paint", string(b)
	case "id":
		id = e.said
	case "name":
		name = e.said
	default:
		return "", "", ""
	}
	return id, name, args
}

func (e *echo) completion() {
	member := map[string]string{
		"text": "content", "blocks": "content", "mixed": "content", "thoughts": "reasoning_content", "refusal": "refusal",
	}[e.place]
	id, name, args := e.call()
	choice := func(inner string, delta doc, finish any) {
		e.send("", doc{"choices": []doc{{"index": 0, inner: delta, "finish_reason": finish}}})
	}
	called := func(args string) []doc {
		return []doc{{"index": 0, "id": id, "type": "function", "function": doc{"name": name, "arguments": args}}}
	}
	switch {
	case e.place == "error":
		e.send("", doc{"error": doc{"message": e.said}})
	case !e.stream && name != "":
		choice("message", doc{"content": nil, "tool_calls": called(args)}, "tool_calls")
	case !e.stream:
		choice("message", doc{member: e.said}, "stop")
	case name != "":
		choice("delta", doc{"tool_calls": called("")}, nil)
		for piece := range slices.Chunk([]byte(args), e.most) {
			choice("delta", doc{"tool_calls": []doc{{"index": 0, "function": doc{"arguments": string(piece)}}}}, nil)
		}
		choice("delta", doc{}, "tool_calls")
	default:
		for _, piece := range e.pieces() {
			delta := doc{member: piece}
			if e.place == "mixed" { // each with a thought
				delta["reasoning_content"] = "Hm. "
			}
			choice("delta", delta, nil)
		}
		choice("delta", doc{}, "stop")
	}
	if e.stream {
		_, _ = io.WriteString(e.w, "data: [DONE]\n\n")
	}
}

// blocks returns those of a message, and the deltas of each in a stream.
func (e *echo) blocks() (blocks []doc, deltas [][]doc) {
	id, name, args := e.call()
	bits := func(text string, delta func(string) doc) (list []doc) {
		for piece := range slices.Chunk([]byte(text), e.most) {
			list = append(list, delta(string(piece)))
		}
		return list
	}
	input := func(s string) doc { return doc{"type": "input_json_delta", "partial_json": s} }
	switch {
	case name != "":
		return []doc{{"type": "tool_use", "id": id, "name": name, "input": json.RawMessage(args)}}, [][]doc{bits(args, input)}
	case e.place == "blocks" || e.place == "mixed": // each piece is one
		for _, piece := range e.pieces() {
			if e.place == "mixed" {
				blocks, deltas = append(blocks, doc{"type": "thinking", "thinking": "Hm. ", "signature": "s"}), append(deltas, nil)
			}
			blocks, deltas = append(blocks, doc{"type": "text", "text": piece}), append(deltas, nil)
		}
		return blocks, deltas
	case e.place == "thoughts":
		return []doc{{"type": "thinking", "thinking": e.said, "signature": "s"}}, [][]doc{bits(e.said, func(s string) doc {
			return doc{"type": "thinking_delta", "thinking": s}
		})}
	case e.place == "seal":
		return []doc{{"type": "thinking", "thinking": "hm", "signature": e.said}}, [][]doc{bits(e.said, func(s string) doc {
			return doc{"type": "signature_delta", "signature": s}
		})}
	case e.place == "other":
		in, _ := json.Marshal(doc{"query": e.said})
		return []doc{{"type": "server_tool_use", "id": "s_1", "name": "web_search", "input": json.RawMessage(in)}},
			[][]doc{bits(string(in), input)}
	}
	return []doc{{"type": "text", "text": e.said}}, [][]doc{bits(e.said, func(s string) doc {
		return doc{"type": "text_delta", "text": s}
	})}
}

func (e *echo) message() {
	if e.place == "error" {
		e.send("error", doc{"type": "error", "error": doc{"message": e.said}})
		return
	}
	stop := "end_turn"
	if _, name, _ := e.call(); name != "" {
		stop = "tool_use"
	}
	blocks, deltas := e.blocks()
	if !e.stream {
		e.send("", doc{"type": "message", "content": blocks, "stop_reason": stop})
		return
	}
	for i, b := range blocks {
		for _, whole := range []string{"thinking", "signature", "input", "text"} {
			if len(deltas[i]) > 0 && b[whole] != nil {
				b[whole] = map[bool]any{true: doc{}, false: ""}[whole == "input"]
			}
		}
		e.send("content_block_start", doc{"type": "content_block_start", "index": i, "content_block": b})
		for _, d := range deltas[i] {
			e.send("content_block_delta", doc{"type": "content_block_delta", "index": i, "delta": d})
		}
		e.send("content_block_stop", doc{"type": "content_block_stop", "index": i})
	}
	e.send("message_delta", doc{"type": "message_delta", "delta": doc{"stop_reason": stop}})
	e.send("message_stop", doc{"type": "message_stop"})
}

// joined returns everything that a client of a stream assembles: the texts at the same place of its events,
// concatenated.
func joined(body string) string {
	texts := map[string]*strings.Builder{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				walk(at+"."+name, inner)
			}
		case []any:
			for i, inner := range v {
				walk(fmt.Sprint(at, i), inner)
			}
		case string:
			if texts[at] == nil {
				texts[at] = new(strings.Builder)
			}
			texts[at].WriteString(v)
		}
	}
	for line := range strings.Lines(body) {
		var event any
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &event) == nil {
			kind, _ := event.(doc)
			walk(fmt.Sprint(kind["type"]), event)
		}
	}
	var all strings.Builder
	for _, one := range texts {
		all.WriteString(one.String() + "\n")
	}
	return all.String()
}

// Whatever a model's server answers, none of the APIs gives its key to a caller.
func TestAKeyThatAServerEchoesReachesNoCaller(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "key"), []byte(modelKey), 0o600))
	at := start(t, dir, strings.ReplaceAll(`
sources: [{name: files, protocol: builtin, roots: [{path: .}]}]
doors: {http: {listen: "127.0.0.1:0"}}
models: [{name: openai, url: "MODEL/v1", key: KEY}, {name: anthropic, url: "MODEL/v1", key: KEY, api: anthropic}]
secrets: {KEY: {file: key}}
`, "MODEL", serveEcho(t)), 2)["http"]
	n, tried, shown := 0, 0, map[string]int{}
	every := rounds.Of(5, 1) // five divides none of the numbers that are combined here
	bodies := map[string]string{
		"/v1/chat/completions": `{"model":%q,"messages":[{"role":"user","content":%q}],%s}`,
		"/v1/responses":        `{"model":%q,"input":%q,%s}`,
		"/v1/messages":         `{"model":%q,"max_tokens":99,"messages":[{"role":"user","content":%q}],%s}`,
	}
	for _, path := range slices.Sorted(maps.Keys(bodies)) {
		for _, model := range []string{"openai", "anthropic"} {
			for _, place := range places() {
				for _, coding := range slices.Sorted(maps.Keys(codings())) {
					for _, most := range []int{1, 3, 7, 1000} {
						for _, more := range []string{`"tools":{"readFile":{},"paint":{}},"stream":false`,
							`"tools":{"readFile":{},"paint":{}},"stream":true`, `"stream":false`, `"stream":true`} {
							stream := strings.TrimPrefix(more[strings.LastIndex(more, ":"):], ":")
							if most < 1000 && stream == "false" && place != "blocks" && place != "mixed" || model == "openai" && (place == "seal" || place == "other") ||
								model == "anthropic" && place == "refusal" {
								continue
							}
							if n++; n%every != 0 {
								continue
							}
							say := fmt.Sprintf("say %s %s %d please", place, coding, most)
							_, got := as(t, token, "POST", at+path, fmt.Sprintf(bodies[path], model, say, more))
							tried++
							where := fmt.Sprint(path, " of ", model, ", ", more, ": ", say)
							for _, text := range []string{got, joined(got)} {
								kit.MustEqual(t, leaks(text), "", where, got)
								if strings.Contains(text, "secret KEY") {
									shown[path+place]++
								}
							}
						}
					}
				}
			}
		}
	}
	for _, place := range []string{"text", "thoughts", "args", "own", "id", "name", "status"} {
		for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages"} {
			if shown[path+place] == 0 {
				t.Errorf("%s never has what stands for the key in %s: the test does not test", path, place)
			}
		}
	}
	t.Log(tried, "answers")
}

// leaks returns the encoding of the key that a text contains, or "".
func leaks(text string) string {
	for coding, code := range codings() {
		form := strings.Trim(code(modelKey), `"`)
		if coding == "base64" {
			form = form[8 : len(form)-4] // the part that does not depend on its surroundings
		}
		quoted, _ := json.Marshal(form)
		if strings.Contains(text, form) || strings.Contains(text, strings.Trim(string(quoted), `"`)) {
			return coding
		}
	}
	return ""
}
