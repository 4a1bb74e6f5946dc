package mcp

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"toolpost/host/kernel"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// An answer is the result of tools/call, decoded as far as all kinds of it are the same. Its parts alias the raw bytes.
type answer struct {
	raw        json.RawMessage
	kind       string // resultType
	content    []json.RawMessage
	structured json.RawMessage // nil if there is none
	failed     bool
	requests   json.RawMessage
	state      *string
	task       json.RawMessage
}

func readAnswer(raw json.RawMessage) (*answer, error) {
	a := &answer{raw: raw}
	err := strictjson.Object(raw, func(name, value []byte) error {
		var into any
		switch string(name) {
		case "resultType":
			into = &a.kind
		case "content":
			into = &a.content
		case "structuredContent":
			a.structured = value
			return nil
		case "isError":
			into = &a.failed
		case "inputRequests":
			a.requests = value
			return nil
		case "requestState":
			into = &a.state
		case "task":
			a.task = value
			return nil
		default:
			return nil
		}
		if err := strictjson.Unmarshal(value, into); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	return a, err
}

// A block is one piece of content.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"`
	MimeType string `json:"mimeType"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Resource *struct {
		URI      string  `json:"uri"`
		MimeType string  `json:"mimeType"`
		Text     *string `json:"text"`
		Blob     *string `json:"blob"`
	} `json:"resource"`
}

// complete converts an answer to a result: the output is the structured content, or else the text; everything else is
// an asset.
func (u *upstreamCall) complete(a *answer, info *serverInfo) (*tool.Result, error) {
	if u.tool.method != "" {
		return u.otherResult(a, info)
	}
	if a.content == nil && a.structured == nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the answer to %s has no content", u.call.Tool)
	}
	texts, err := u.unpack(a.content, info)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the content of the answer to %s: %w", u.call.Tool, err)
	}
	res := &tool.Result{OK: !a.failed, Output: a.structured}
	words := strings.Join(texts, "\n")
	switch {
	case a.failed:
		if words == "" {
			words = "the tool failed and did not say why"
		}
		res.Failure = tool.Failed("", words).Failure
	default:
		res.Content = &tool.Content{Blocks: a.content, Structured: a.structured != nil}
		if a.structured == nil && len(texts) > 0 {
			res.Output = strictjson.Quote(words)
		}
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

// maxBlocks bounds the pieces of one answer, and maxLinked those among them that are read from the server one by one.
const (
	maxBlocks = 10_000
	maxLinked = 16
)

// unpack emits the assets among pieces of content, and returns the texts.
func (u *upstreamCall) unpack(content []json.RawMessage, info *serverInfo) (texts []string, err error) {
	if len(content) > maxBlocks {
		return nil, fmt.Errorf("it has more than %d pieces", maxBlocks)
	}
	linked := 0
	for i, raw := range content {
		var b block
		if err := strictjson.Unmarshal(raw, &b); err != nil {
			return nil, fmt.Errorf("piece %d: %s", i+1, jsonrpc.Misread(err))
		}
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "image", "audio":
			err = u.binary(i, b.Type, b.MimeType, "", b.Data)
		case "resource":
			err = u.resource(i, b.Type, &b)
		case kindLinked:
			if linked++; linked > maxLinked || info.capabilities.Resources == nil {
				u.emit(tool.LogEvent("info", "the tool refers to "+jsonrpc.Clip(b.URI)))
				continue
			}
			u.readLinked(i, &b)
		default: // from a later version
			u.emit(tool.LogEvent("warn", "a piece of the result is of the unknown kind "+jsonrpc.Clip(b.Type)))
		}
		if err != nil {
			return nil, fmt.Errorf("piece %d: %w", i+1, err)
		}
	}
	return texts, nil
}

// kindLinked is the kind of an asset that was read because a result links to it.
const kindLinked = "resource_link"

func (u *upstreamCall) resource(i int, kind string, b *block) error {
	switch r := b.Resource; {
	case r == nil:
		return errors.New("a resource is missing")
	case r.Text != nil:
		return u.asset(i, kind, cmp.Or(r.MimeType, "text/plain"), r.URI, []byte(*r.Text))
	case r.Blob != nil:
		return u.binary(i, kind, r.MimeType, r.URI, *r.Blob)
	}
	return errors.New("a resource has neither text nor blob")
}

// readLinked reads a resource that the result links to. If it cannot be read, that is logged and changes nothing.
func (u *upstreamCall) readLinked(i int, b *block) {
	raw, err := u.r.upstream.ask(u.ctx, &query{
		method: methodReadResource, name: b.URI, call: u.call,
		params: func(_ *serverInfo, w *strictjson.Writer) { w.Text("uri", b.URI) },
	})
	var got struct {
		Contents []json.RawMessage `json:"contents"`
	}
	if err == nil {
		err = strictjson.Unmarshal(raw, &got)
	}
	for n, one := range got.Contents[:min(len(got.Contents), maxLinked)] {
		var inner block
		if err == nil {
			err = strictjson.Unmarshal(append(append([]byte(`{"resource":`), one...), '}'), &inner)
		}
		if err == nil {
			err = u.resource(i*maxBlocks+n, kindLinked, &inner)
		}
	}
	if err != nil {
		u.emit(tool.LogEvent("info", fmt.Sprintf("the tool refers to %s, which cannot be read: %s", jsonrpc.Clip(b.URI),
			jsonrpc.Clip(err.Error()))))
	}
}

func (u *upstreamCall) binary(i int, kind, mime, uri, data string) error {
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return errors.New("its data is not base64")
	}
	return u.asset(i, kind, cmp.Or(mime, "application/octet-stream"), uri, content)
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
