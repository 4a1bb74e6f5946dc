package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The places of parameters.
const (
	inPath   = "path"
	inQuery  = "query"
	inHeader = "header"
	inCookie = "cookie"
)

// The styles of values with parts.
const (
	styleSimple = "simple"
	styleLabel  = "label"
	styleMatrix = "matrix"
	styleForm   = "form"
	styleSpace  = "spaceDelimited"
	stylePipe   = "pipeDelimited"
	styleDeep   = "deepObject"
)

// A parameter is a parameter of an operation.
type parameter struct {
	name     string // on the wire
	arg      string // among the arguments
	in       string
	style    string
	explode  bool
	reserved bool // reserved characters of URLs stay unencoded, as far as that is safe
	json     bool // its value is a JSON document
	required bool
	about    string
	schema   any // of the document
}

// readParameter reads a parameter. It returns nil for one that OpenAPI says to ignore, since the body or our
// credentials decide it.
func (d *document) readParameter(v any) (*parameter, error) {
	o, err := d.object(v, "a parameter")
	if err != nil {
		return nil, err
	}
	p := &parameter{name: text(o, "name"), in: text(o, "in"), required: flag(o, "required", false), schema: o["schema"]}
	// Elsewhere allowReserved has no meaning: a semicolon in a cookie would begin another one.
	p.about, p.reserved = text(o, "description"), p.in == inQuery && flag(o, "allowReserved", false)
	if p.name == "" || len(p.name) > maxName {
		return nil, fmt.Errorf("a parameter in %q has no name, or a long one", clip(p.in, 40))
	}
	if p.in == inHeader && slices.Contains(ownHeaders(), http.CanonicalHeaderKey(p.name)) {
		return nil, nil
	}
	if err := p.setStyle(o); err != nil {
		return nil, fmt.Errorf("the parameter %s: %w", clip(p.name, 100), err)
	}
	if content, ok := o["content"].(object); ok {
		if kinds := slices.Sorted(maps.Keys(content)); len(kinds) > 0 { // there is exactly one
			media, err := d.object(content[kinds[0]], "the content of the parameter "+clip(p.name, 100))
			if err != nil {
				return nil, err
			}
			p.schema, p.json = media["schema"], isJSON(mediaOf(kinds[0]))
		}
	}
	if p.schema == nil {
		p.schema = object{}
	}
	return p, nil
}

// ownHeaders are headers that no argument may set.
func ownHeaders() []string {
	return []string{
		"Accept", "Content-Type", "Authorization", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Cookie",
		"Accept-Encoding", "Content-Encoding", "Te", "Trailer", "Upgrade", "Proxy-Authorization", "Expect",
	}
}

// setStyle reads how the value is written, and refuses styles that OpenAPI does not define.
func (p *parameter) setStyle(o object) error {
	styles := map[string][]string{
		inPath: {styleSimple, styleLabel, styleMatrix}, inQuery: {styleForm, styleSpace, stylePipe, styleDeep},
		inHeader: {styleSimple}, inCookie: {styleForm},
	}[p.in]
	if styles == nil {
		return fmt.Errorf("it is in %q; parameters are in path, query, header or cookie", clip(p.in, 40))
	}
	p.style = styles[0]
	if given, there := o["style"]; there {
		if p.style, _ = given.(string); !slices.Contains(styles, p.style) {
			return fmt.Errorf("the style %v is none of those in %s: %s", clip(fmt.Sprint(given), 40), p.in,
				strings.Join(styles, ", "))
		}
	}
	p.explode = flag(o, "explode", p.style == styleForm)
	switch {
	case p.in == inPath:
		p.required = true
	case p.in == inHeader && !httpguts.ValidHeaderFieldName(p.name):
		return fmt.Errorf("its name cannot be that of a header")
	case p.in == inCookie && !httpguts.ValidHeaderFieldName(p.name):
		return fmt.Errorf("its name cannot be that of a cookie")
	}
	return nil
}

// A pair is a name and a value, neither of them encoded.
type pair struct{ name, value string }

// An encoder writes a text so that it can only be a value at its place.
type encoder func(string) string

// unreserved reports whether a character has no special meaning anywhere in a URL.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// escape encodes all characters but the unreserved ones and those in stay.
func escape(s, stay string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; unreserved(c) || strings.IndexByte(stay, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func encoded(s string) string { return escape(s, "") }

// encodeReserved is for allowReserved: characters that begin another parameter or end the query are encoded
// nevertheless.
func encodeReserved(s string) string { return escape(s, ":/?[]@!$'()*,;") }

func asIs(s string) string { return s }

// pathText returns a value as it appears in the path.
func (p *parameter) pathText(v any) (string, error) {
	first, between, named := "", ",", false
	switch p.style {
	case styleLabel:
		first = "."
		if p.explode {
			between = "."
		}
	case styleMatrix:
		first, named = ";", true
		if p.explode {
			between = ";"
		}
	}
	text, err := p.joined(v, between, named, encoded)
	return first + text, err
}

// headerText returns the value of a header. Invalid characters are refused, not replaced: a line break would begin
// another header.
func (p *parameter) headerText(v any) (string, error) {
	text, err := p.joined(v, ",", false, asIs)
	if err == nil && !httpguts.ValidHeaderFieldValue(text) {
		err = tool.Errorf(tool.CodeInvalidInput, "%s has characters that the value of a header cannot have", p.arg)
	}
	return text, err
}

// joined writes a value in one piece, for the styles simple, label and matrix.
func (p *parameter) joined(v any, between string, named bool, e encoder) (string, error) {
	own := ""
	if named {
		own = e(p.name) + "="
	}
	if p.json {
		text, err := strictjson.Marshal(v)
		return own + e(string(text)), err
	}
	switch v := v.(type) {
	case []any:
		texts, err := p.texts(v, e)
		if named && p.explode {
			return strings.Join(prefixed(own, texts), between), err
		}
		return own + strings.Join(texts, between), err
	case object:
		texts, err := p.members(v, e, e)
		if p.explode {
			own = ""
		}
		return own + strings.Join(texts, between), err
	}
	text, err := p.text(v)
	return own + e(text), err
}

// members returns the names and values of an object, as pairs if they are exploded.
func (p *parameter) members(v object, name, value encoder) (texts []string, err error) {
	pairs, err := p.pairs(v)
	for _, one := range pairs {
		if p.explode {
			texts = append(texts, name(one.name)+"="+value(one.value))
		} else {
			texts = append(texts, name(one.name), value(one.value))
		}
	}
	return texts, err
}

func prefixed(with string, texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = with + text
	}
	return out
}

// query returns the encoded parts of a query, or of a form, for a value.
func (p *parameter) query(v any) ([]string, error) {
	e := encoder(encoded)
	if p.reserved {
		e = encodeReserved
	}
	name := encoded(p.name)
	if p.json {
		text, err := strictjson.Marshal(v)
		return []string{name + "=" + e(string(text))}, err
	}
	if p.style == styleDeep {
		return p.deep(name, v, e, 0)
	}
	between := map[string]string{styleSpace: "%20", stylePipe: "%7C"}[p.style]
	if between == "" {
		between = ","
	}
	switch v := v.(type) {
	case []any:
		texts, err := p.texts(v, e)
		if p.explode {
			return prefixed(name+"=", texts), err
		}
		return []string{name + "=" + strings.Join(texts, between)}, err
	case object:
		texts, err := p.members(v, encoded, e)
		if p.explode {
			return texts, err
		}
		return []string{name + "=" + strings.Join(texts, between)}, err
	}
	text, err := p.text(v)
	return []string{name + "=" + e(text)}, err
}

// maxDeep bounds the nesting of a deepObject. OpenAPI defines one level; servers that accept more agree on how they are
// written.
const maxDeep = 8

func (p *parameter) deep(name string, v any, e encoder, depth int) (list []string, err error) {
	if depth > maxDeep {
		return nil, p.nested()
	}
	switch v := v.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			more, err := p.deep(name+"%5B"+encoded(key)+"%5D", v[key], e, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
		return list, nil
	case []any:
		texts, err := p.texts(v, e)
		return prefixed(name+"=", texts), err
	}
	text, err := p.text(v)
	return []string{name + "=" + e(text)}, err
}

func (p *parameter) texts(list []any, e encoder) ([]string, error) {
	out := make([]string, len(list))
	for i, one := range list {
		text, err := p.text(one)
		if err != nil {
			return nil, err
		}
		out[i] = e(text)
	}
	return out, nil
}

// pairs returns the members of an object sorted by name, so that equal arguments make equal requests.
func (p *parameter) pairs(o object) ([]pair, error) {
	var list []pair
	for _, name := range slices.Sorted(maps.Keys(o)) {
		text, err := p.text(o[name])
		if err != nil {
			return nil, err
		}
		list = append(list, pair{name, text})
	}
	return list, nil
}

// text writes a scalar value.
func (p *parameter) text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return fmt.Sprint(v), nil
	case nil:
		return "", nil
	}
	return "", p.nested()
}

func (p *parameter) nested() error {
	return tool.Errorf(tool.CodeInvalidInput, "%s has lists or objects inside others, which its place in the request "+
		"(%s, %s) cannot carry", p.arg, p.in, p.style)
}
