package openapi

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"toolpost/host/backoff"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// Bounds on what is reported of answers.
const (
	maxFailure = 64 << 10 // bytes of a failure's body that are kept
	maxInline  = 64 << 10 // bytes of a binary answer that are returned as base64; a larger one is an asset
	maxSaid    = 500      // bytes of the API's message about a failure
)

// send makes a request and converts its answer to a result.
func (r *Runner) send(client *http.Client, op *operation, req *http.Request, out tool.Sink) (*tool.Result, error) {
	ctx := req.Context()
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreached(ctx, op.server.Host, err)
	}
	defer resp.Body.Close()
	limit, success := r.o.MaxResponse, resp.StatusCode/100 == 2
	if !success {
		limit = min(limit, maxFailure)
	}
	data, err := bounded.ReadDocument(resp.Body, limit)
	if _, large := errors.AsType[*bounded.LimitError](err); large {
		if success {
			return nil, tool.Errorf(tool.CodeProtocol, "the answer of %s is larger than %d bytes: ask for less, or raise "+
				"`max_response`", op.server.Host, limit).Because("too_large")
		}
		data, err = nil, nil // the failure is reported without its message
	}
	if err != nil {
		return nil, unreached(ctx, op.server.Host, err)
	}
	res, err := r.outcome(op, resp, data, out)
	if err == nil {
		res.Summary = clip(resp.Status, 100)
		res.Trace.Details = details(resp)
	}
	return res, err
}

// details returns the status and the headers that callers need to continue: the next page, the new resource.
func details(resp *http.Response) map[string]any {
	d := map[string]any{"status": resp.StatusCode}
	for _, name := range []string{"Link", "Location", "ETag", "Last-Modified", "Retry-After", "X-Total-Count"} {
		if v := resp.Header.Get(name); v != "" {
			d[strings.ToLower(name)] = clip(v, 2000)
		}
	}
	return d
}

func (r *Runner) outcome(op *operation, resp *http.Response, data []byte, out tool.Sink) (*tool.Result, error) {
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" && len(data) > 0 {
		return nil, tool.Errorf(tool.CodeProtocol, "%s answered in the encoding %s, which was not asked for",
			op.server.Host, clip(enc, 40))
	}
	switch {
	case resp.StatusCode/100 == 3:
		return moved(op, resp), nil
	case resp.StatusCode/100 != 2:
		return failure(op, resp, data), nil
	case len(data) == 0:
		return &tool.Result{OK: true}, nil
	}
	kind := mediaOf(resp.Header.Get("Content-Type"))
	switch {
	case isJSON(kind):
		if err := strictjson.Check(data); err != nil {
			return nil, tool.Errorf(tool.CodeProtocol, "the answer of %s is not the JSON that it says it is: %w",
				op.server.Host, err)
		}
		return &tool.Result{OK: true, Output: data}, nil
	case (isText(kind) || kind == "") && utf8.Valid(data):
		return &tool.Result{OK: true, Output: strictjson.Quote(data)}, nil
	}
	return binary(cmp.Or(kind, typeBytes), data, out)
}

// moved is the result for a redirect that is not followed.
func moved(op *operation, resp *http.Response) *tool.Result {
	if resp.StatusCode == http.StatusNotModified {
		return tool.Failed("http_304", op.label()+" answered 304 Not Modified")
	}
	return tool.Failed("redirect", fmt.Sprintf("%s answered %s and sends us to %s, which is not followed: calls stay at "+
		"the server that the document names", op.label(), clip(resp.Status, 100),
		clip(cmp.Or(resp.Header.Get("Location"), "nowhere"), 300)))
}

// failure is the result of a call that the API refused, with the API's message.
func failure(op *operation, resp *http.Response, data []byte) *tool.Result {
	message := op.label() + " answered " + clip(resp.Status, 100)
	if words := said(data); words != "" {
		message += ": " + words
	}
	e := &tool.Error{Code: codeOf(resp.StatusCode), Reason: "http_" + strconv.Itoa(resp.StatusCode), Message: message}
	about := map[string]any{"status": resp.StatusCode}
	if wait := backoff.RetryAfter(resp.Header.Get("Retry-After")); wait > 0 {
		about["retry_after_ms"] = wait.Milliseconds()
	}
	switch {
	case len(data) == 0:
	case strictjson.Check(data) == nil:
		about["body"] = json.RawMessage(data)
	case utf8.Valid(data):
		about["body"] = string(data)
	}
	e.Details, _ = strictjson.Marshal(about)
	return &tool.Result{Failure: e}
}

// said finds the message in the body of a failure: that of a problem document, or of the forms that APIs use instead, or
// else the whole body.
func said(data []byte) string {
	v, err := strictjson.Decode(data)
	all := strings.Join(strings.Fields(string(data)), " ")
	switch o, ok := v.(object); {
	case err != nil && (!utf8.Valid(data) || strings.HasPrefix(all, "<")): // an HTML page is not a message
		return ""
	case ok:
		if inner, ok := o["error"].(object); ok {
			o = inner
		}
		for _, name := range []string{"detail", "message", "error_description", "title", "error"} {
			if words := text(o, name); words != "" {
				return clip(words, maxSaid)
			}
		}
	}
	if words, ok := v.(string); ok {
		all = words
	}
	return clip(all, maxSaid)
}

// binary is the result of an answer that is neither JSON nor text.
func binary(kind string, data []byte, out tool.Sink) (*tool.Result, error) {
	about := map[string]any{"media_type": clip(kind, 100), "bytes": len(data)}
	if len(data) <= maxInline {
		about["base64"] = base64.StdEncoding.EncodeToString(data)
	} else {
		f, err := kernel.Sealed("asset", func(w io.Writer) error { _, err := w.Write(data); return err })
		if err != nil {
			return nil, err
		}
		defer f.Close()
		about["asset"] = "answer"
		ev := tool.NewEvent(tool.KindAsset, tool.Asset{
			AssetID: "answer", Kind: "answer", MediaType: clip(kind, 100), Path: "answer",
		})
		ev.File = f
		if err := out.Emit(ev); err != nil {
			return nil, err
		}
	}
	output, err := strictjson.Marshal(about)
	return &tool.Result{OK: true, Output: output}, err
}
