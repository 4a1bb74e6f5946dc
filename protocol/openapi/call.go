package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// maxURL and maxHeaders bound the URL and the headers that arguments make, in bytes. Servers accept less.
const (
	maxURL     = 64 << 10
	maxHeaders = 64 << 10
)

// request builds the HTTP request of a call. Arguments can only become values at their places.
func (op *operation) request(ctx context.Context, args object) (*http.Request, error) {
	var data []byte
	header := http.Header{"Accept": {"application/json, */*;q=0.5"}, "User-Agent": {"toolpost"}}
	if op.body != nil {
		if v, there := args[op.body.arg]; there {
			var err error
			var kind string
			if data, kind, err = op.body.encode(v); err != nil {
				return nil, err
			}
			header.Set("Content-Type", kind)
		}
	}
	u, err := op.url(args)
	if err != nil {
		return nil, err
	}
	if err := op.headers(args, header); err != nil {
		return nil, err
	}
	var content io.Reader
	if op.body != nil { // a body that is left out is sent as empty
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, op.method, u.String(), content)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be asked: %w", op.label(), err)
	}
	req.Header = header
	for _, c := range op.auth {
		c.put(req)
	}
	return req, nil
}

func (op *operation) url(args object) (*url.URL, error) {
	path, err := op.fillPath(args)
	if err != nil {
		return nil, err
	}
	parts := slices.Clone(op.fixed)
	for _, p := range op.parameters {
		if v, there := args[p.arg]; there && p.in == inQuery {
			texts, err := p.query(v)
			if err != nil {
				return nil, err
			}
			parts = append(parts, texts...)
		}
	}
	u := *op.server
	u.RawQuery = strings.Join(parts, "&")
	full := u.EscapedPath() + path
	if len(full)+len(u.RawQuery) > maxURL {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments make a URL of more than %d bytes", maxURL)
	}
	if u.Path, err = url.PathUnescape(full); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the path of %s cannot be encoded", op.label())
	}
	u.RawPath = full
	return &u, nil
}

// fillPath puts values into the path. No value can become a step of its own, remove a step or leave one empty: the
// request would then be for another resource than the operation's.
func (op *operation) fillPath(args object) (string, error) {
	var failed error
	fill := func(in string) string {
		for _, p := range op.parameters {
			if p.in != inPath || p.name != in[1:len(in)-1] {
				continue
			}
			v, there := args[p.arg]
			text, err := p.pathText(v)
			switch {
			case err != nil:
				failed = err
			case !there || v == nil || text == "":
				failed = tool.Errorf(tool.CodeInvalidInput, "%s is a part of the path and cannot be empty", p.arg)
			}
			return text
		}
		return in
	}
	steps := strings.Split(op.route, "/")
	for i, step := range steps {
		parts := inPathTemplate().FindAllStringIndex(step, -1)
		filled, last := "", 0
		for _, at := range parts {
			filled += escape(step[last:at[0]], pathStays) + fill(step[at[0]:at[1]])
			last = at[1]
		}
		filled += escape(step[last:], pathStays)
		if len(parts) > 0 && (filled == "." || filled == "..") && failed == nil {
			failed = tool.Errorf(tool.CodeInvalidInput, "%q cannot be a step of the path %s", filled, op.path)
		}
		steps[i] = filled
	}
	return strings.Join(steps, "/"), failed
}

// pathStays are the characters that a path of the document may contain besides the unreserved ones. Encoded characters
// stay encoded.
const pathStays = "!$&'()*+,;=:@%"

// queryStays are those of a query in the document.
const queryStays = pathStays + "/"

// headers adds the parameters that are headers and cookies to a request's headers.
func (op *operation) headers(args object, h http.Header) error {
	size := 0
	cookies := []string{}
	for _, p := range op.parameters {
		v, there := args[p.arg]
		if !there {
			continue
		}
		switch p.in {
		case inHeader:
			text, err := p.headerText(v)
			if err != nil {
				return err
			}
			h.Set(p.name, text)
			size += len(text)
		case inCookie:
			parts, err := p.query(v)
			if err != nil {
				return err
			}
			cookies = append(cookies, parts...)
		}
	}
	if len(cookies) > 0 {
		h.Set("Cookie", strings.Join(cookies, "; "))
	}
	if size+len(h.Get("Cookie")) > maxHeaders {
		return tool.Errorf(tool.CodeInvalidInput, "the arguments make headers of more than %d bytes", maxHeaders)
	}
	return nil
}

// described gives a schema the description of its parameter if it has none of its own.
func described(raw json.RawMessage, about string) any {
	schema := decoded(raw)
	if schema == nil || about == "" || schema["description"] != nil {
		return raw
	}
	schema["description"] = clip(about, maxDescription)
	return schema
}

// decoded reads a schema that we wrote, or returns nil if it is true or false.
func decoded(raw json.RawMessage) object {
	v, err := strictjson.Decode(raw)
	if err != nil {
		return nil
	}
	o, _ := v.(object)
	return o
}
