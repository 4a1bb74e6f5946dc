package runner

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"toolpost/host/walls"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An answer is the result of tools/call, decoded as far as all kinds of it are the same. Its parts alias the raw bytes.
type answer struct {
	raw        json.RawMessage
	kind       string // resultType
	content    []json.RawMessage
	structured json.RawMessage // nil if there is none
	meta       json.RawMessage // likewise
	failed     bool
	requests   json.RawMessage
	state      *string
	task       json.RawMessage
}

// readAnswer reads a result. Whatever received it has checked that it is strict.
func readAnswer(raw json.RawMessage) (*answer, error) {
	a := &answer{raw: raw}
	err := strictjson.Walk(raw, func(name, value []byte) (err error) {
		switch string(name) {
		case "resultType":
			err = strictjson.Unmarshal(value, &a.kind)
		case "content":
			err = strictjson.Unmarshal(value, &a.content)
		case "isError":
			err = strictjson.Unmarshal(value, &a.failed)
		case "requestState":
			err = strictjson.Unmarshal(value, &a.state)
		case "structuredContent":
			a.structured = value
		case "inputRequests":
			a.requests = value
		case "task":
			a.task = value
		case "_meta":
			if strictjson.KindOf(value) == "object" {
				a.meta = value
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	})
	return a, err
}

// A block is one piece of content.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MimeType string `json:"mimeType"`
	Resource *struct {
		URI      string  `json:"uri"`
		MimeType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     *string `json:"blob"`
	} `json:"resource"`
}

// complete converts an answer to a result: the output is the structured content, or else the text; files are assets.
func (u *upstreamCall) complete(a *answer, info *serverInfo) (*tool.Result, error) {
	if u.tool.method != "" {
		return u.otherResult(a, info)
	}
	if a.content == nil && a.structured == nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the answer to %s has no content", u.call.Tool)
	}
	texts, err := u.unpack(a.content)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the content of the answer to %s: %w", u.call.Tool, err)
	}
	res := &tool.Result{
		OK: !a.failed, Output: a.structured,
		Content: &tool.Content{Blocks: a.content, Structured: a.structured != nil, Meta: a.meta},
	}
	words := strings.Join(texts, "\n")
	switch {
	case a.failed:
		res.Failure = tool.Failed("", cmp.Or(words, "the tool failed and did not say why")).Failure
	case a.structured == nil && len(texts) > 0:
		res.Output = strictjson.Quote(words)
	}
	return u.withTrace(res, info), nil
}

// withTrace adds to a result how the call was run.
func (u *upstreamCall) withTrace(res *tool.Result, info *serverInfo) *tool.Result {
	res.Trace.Details = map[string]any{"era": eraOf(info), "version": info.version}
	if u.r.walls != nil {
		walls.Enforced(u.call, res.Trace.Details, u.r.o.Guarantees, u.layers, nil)
	}
	return res
}

func eraOf(info *serverInfo) string {
	if info.modern {
		return eraModern
	}
	return eraLegacy
}

// maxBlocks bounds the pieces of one answer.
const maxBlocks = 10_000

// unpack emits the files among pieces of content, and returns the texts. A piece that is neither counts as a text, its
// JSON: links, which the caller may read with a call of its own, kinds of later versions, and files that cannot be
// decoded.
func (u *upstreamCall) unpack(content []json.RawMessage) (texts []string, err error) {
	if len(content) > maxBlocks {
		return nil, fmt.Errorf("it has more than %d pieces", maxBlocks)
	}
	for i, raw := range content {
		var b block
		if strictjson.Unmarshal(raw, &b) == nil && b.Type == "text" {
			texts = append(texts, b.Text)
			continue
		}
		mime, uri, data, ok := b.file()
		if !ok {
			texts = append(texts, string(raw))
			continue
		}
		if err := u.asset(i, b.Type, mime, uri, data); err != nil {
			return nil, fmt.Errorf("piece %d: %w", i+1, err)
		}
	}
	return texts, nil
}

// file returns the file in a piece of content.
func (b *block) file() (mime, uri string, content []byte, ok bool) {
	data := &b.Data
	switch {
	case b.Type == "image" || b.Type == "audio":
		mime = b.MimeType
	case b.Type == "resource" && b.Resource != nil && b.Resource.Text != nil:
		return cmp.Or(b.Resource.MimeType, "text/plain"), b.Resource.URI, []byte(*b.Resource.Text), true
	case b.Type == "resource" && b.Resource != nil && b.Resource.Blob != nil:
		mime, uri, data = b.Resource.MimeType, b.Resource.URI, b.Resource.Blob
	default:
		return "", "", nil, false
	}
	content, err := base64.StdEncoding.DecodeString(*data)
	return cmp.Or(mime, "application/octet-stream"), uri, content, err == nil
}

// asset emits a file. It is in memory: the receiver of assets copies it.
func (u *upstreamCall) asset(i int, kind, mime, uri string, content []byte) error {
	f, err := kernel.Sealed("asset", func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	defer f.Close()
	name := fmt.Sprintf("%s-%d", kind, i+1)
	a := tool.Asset{AssetID: name, Kind: kind, MediaType: mime, Path: name}
	if uri != "" {
		a.Metadata, _ = strictjson.Marshal(map[string]string{"uri": uri})
	}
	ev := tool.NewEvent(tool.KindAsset, a)
	ev.File = f
	u.emit(ev)
	return nil
}
