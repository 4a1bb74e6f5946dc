package door

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/modeltext"
	"toolpost/wire/strictjson"
)

// outcome encodes a tool's result. The content of an MCP server is repeated as it is. The output of any other tool is
// text, and also structured content if the tool is listed with an output schema. Clients hand their models one or the
// other, so a tool whose output is only text for us has no structured content.
func outcome(r *request, res *tool.Result, out *relay) *strictjson.Writer {
	w := newResult(r, 3*len(res.Output))
	if c := res.Content; c != nil {
		w.Raw("content", list(rewriteURIs(r.source, c.Blocks)))
		r.given = c.Meta
	} else {
		w.Raw("content", list(textContent(res, out.assets)))
	}
	if structured(r, res) {
		w.Raw("structuredContent", res.Output)
	}
	if !res.OK {
		w.Raw("isError", []byte("true"))
		r.failed = res.Failure
	}
	return w
}

// list writes a list of encoded values.
func list(of []json.RawMessage) []byte {
	return strictjson.AppendList(nil, of, func(b []byte, one json.RawMessage) []byte { return append(b, one...) })
}

// textContent returns an outcome in words, followed by its assets.
func textContent(res *tool.Result, assets []json.RawMessage) []json.RawMessage {
	text := modeltext.Plain(modeltext.Of(res))
	if !res.OK && res.Failure != nil {
		text = res.Failure.Message
	}
	if text == "" && len(assets) > 0 {
		return assets
	}
	return append([]json.RawMessage{appendText(nil, text)}, assets...)
}

// structured reports whether an output is structured content. Before 2026 only objects could be.
func structured(r *request, res *tool.Result) bool {
	kind := strictjson.KindOf(res.Output)
	switch {
	case len(res.Output) == 0 || kind == "null" || kind != "object" && !r.modern:
		return false
	case res.Content != nil:
		return res.Content.Structured
	}
	return r.spec != nil && hasOutputSchema(r.spec, r.modern)
}

func appendText(b []byte, text string) []byte {
	b = append(b, `{"type":"text","text":`...)
	return append(strictjson.AppendString(b, text), '}')
}

// failure encodes the failure of a call in a form that a model can act on; programs find the code in _meta.
func failure(r *request, e *tool.Error) *strictjson.Writer {
	r.failed = e
	w := newResult(r, 300+len(e.Message))
	w.Raw("content", append(appendText([]byte{'['}, e.Message), ']'))
	w.Raw("isError", []byte("true"))
	return w
}

// errorMeta encodes an error's code, reason and details, for programs.
func errorMeta(e *tool.Error) json.RawMessage {
	w := strictjson.NewWriter(100 + len(e.Details))
	w.Text("code", string(e.Code))
	w.Text("reason", e.Reason)
	w.Raw("details", e.Details)
	return w.Done()
}

// link encodes a reference to an asset, which can be read as a resource.
func link(a tool.Asset) []byte {
	w := strictjson.NewWriter(200)
	w.Text("type", "resource_link")
	w.Text("uri", assetPrefix+a.SHA256)
	w.Text("name", a.AssetID)
	w.Text("mimeType", a.MediaType)
	if a.Size > 0 {
		w.Raw("size", strconv.AppendInt(nil, a.Size, 10))
	}
	return w.Done()
}

// A relay forwards the events of a call that the client asked for, and keeps its assets and choices for the result.
type relay struct {
	*request
	to peer

	mu     sync.Mutex
	last   float64 // progress that was sent; it only increases
	sent   bool
	assets []json.RawMessage // content with the assets and choices
	inline int64             // bytes of the assets that are included whole
	// patched reports whether the call changed the state of its session.
	patched bool
}

// Emit implements tool.Sink.
func (l *relay) Emit(e tool.Event) error {
	switch e.Kind {
	case tool.KindProgress:
		return l.progress(e.Data)
	case tool.KindLog, tool.KindError, tool.KindOutput:
		return l.message(e)
	case tool.KindAsset:
		l.asset(e)
	case tool.KindUIEvent:
		l.choices(e.Data)
		return l.message(e)
	case tool.KindStatePatch:
		l.mu.Lock()
		l.patched = true
		l.mu.Unlock()
	}
	return nil
}

// choices adds a tool's choices to the result, so that the model can read them.
func (l *relay) choices(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if words := modeltext.Offered(data); words != "" && len(l.assets) < maxOffers {
		l.assets = append(l.assets, appendText(nil, words))
	}
}

// maxOffers bounds the content of a result to which choices are added.
const maxOffers = 100

// Bounds on the assets in a result, in bytes. Larger ones become links.
const (
	maxInline  = 1 << 20
	maxInlined = 4 << 20
)

// asset adds a tool's file to the result: an image or audio as such, a short text as a resource, and everything else as
// a link to the resource.
func (l *relay) asset(e tool.Event) {
	var a tool.Asset
	if strictjson.Unmarshal(e.Data, &a) != nil || a.SHA256 == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		if a.Size <= maxFile {
			*l.file = file{a, readWhole(e.File, a.Size)}
		}
		return
	}
	var block []byte
	if a.Size <= maxInline && l.inline+a.Size <= maxInlined {
		if content := readWhole(e.File, a.Size); content != nil {
			block = embedded(a, content)
		}
	}
	if block == nil {
		block = link(a)
	} else {
		l.inline += a.Size
	}
	l.assets = append(l.assets, block)
}

// A file is an asset with its content, which is nil if it could not be read.
type file struct {
	tool.Asset
	content []byte
}

// maxFile bounds a file that is read as a resource: it is held in memory, in Base64. HTTP serves larger ones.
const maxFile = 32 << 20

// readWhole reads a file regardless of its offset. It returns nil if there is no file, or if its size differs.
func readWhole(f *os.File, size int64) []byte {
	if f == nil {
		return nil
	}
	content := make([]byte, size)
	if n, err := f.ReadAt(content, 0); int64(n) != size || err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return content
}

// embedded encodes an asset as content of its kind, or returns nil if there is no such kind.
func embedded(a tool.Asset, content []byte) []byte {
	kind, _, _ := strings.Cut(a.MediaType, "/")
	w := strictjson.NewWriter(300 + len(content)*4/3)
	switch {
	case kind == "image" || kind == "audio":
		w.Text("type", kind)
		w.Raw("data", strictjson.Quote(base64.StdEncoding.EncodeToString(content)))
		w.Text("mimeType", a.MediaType)
	case (kind == "text" || a.MediaType == "application/json") && utf8.Valid(content):
		inner := strictjson.NewWriter(200 + len(content))
		inner.Text("uri", assetPrefix+a.SHA256)
		inner.Text("mimeType", a.MediaType)
		inner.Raw("text", strictjson.Quote(content))
		w.Text("type", "resource")
		w.Raw("resource", inner.Done())
	default:
		return nil
	}
	return w.Done()
}

// progress sends the progress of a call. The protocol allows only increasing values.
func (l *relay) progress(data []byte) error {
	if l.meta.progress == nil {
		return nil
	}
	var p tool.Progress
	if strictjson.Unmarshal(data, &p) != nil {
		return nil
	}
	l.mu.Lock()
	goes := !l.sent || p.Progress > l.last
	if goes {
		l.sent, l.last = true, p.Progress
	}
	l.mu.Unlock()
	if !goes {
		return nil
	}
	w := strictjson.NewWriter(150 + len(p.Message))
	w.Raw("progressToken", l.meta.progress)
	w.Raw("progress", number(p.Progress))
	if p.Total > 0 {
		w.Raw("total", number(p.Total))
	}
	w.Text("message", p.Message)
	return l.to.notify(mcp.NoteProgress, w.Done())
}

func number(f float64) []byte {
	b, err := strictjson.Marshal(f)
	if err != nil { // NaN or infinite
		return []byte("0")
	}
	return b
}

// message forwards a tool's message to a client that wants its level.
func (l *relay) message(e tool.Event) error {
	least := l.logLevel()
	if least == "" {
		return nil
	}
	level, logger, data := "info", l.name, e.Data
	switch e.Kind {
	case tool.KindError:
		level = "error"
	case tool.KindLog:
		var log tool.Log
		if strictjson.Unmarshal(e.Data, &log) != nil {
			return nil
		}
		if level = log.Severity; level == "" {
			level, log.Logger = log.Level, cmp.Or(log.Logger, logger)
		}
		if logger = log.Logger; level == "warn" {
			level = "warning"
		}
		switch {
		case log.Data != nil:
			data = log.Data
		case log.Fields == nil:
			data = strictjson.Quote(log.Message)
		case strictjson.KindOf([]byte(log.Message)) == "object": // an MCP server's data, which other clients get as the message
			data = log.Fields
		default: // its level is beside it
			w := strictjson.NewWriter(len(data))
			w.Text("message", log.Message)
			w.Raw("fields", log.Fields)
			data = w.Done()
		}
	}
	if slices.Index(mcp.Levels(), level) < slices.Index(mcp.Levels(), least) {
		return nil
	}
	w := strictjson.NewWriter(100 + len(data))
	w.Text("level", level)
	w.Text("logger", logger)
	w.Raw("data", data)
	return l.to.notify(mcp.NoteMessage, w.Done())
}
