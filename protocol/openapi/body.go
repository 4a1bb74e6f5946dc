package openapi

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"mime"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A body is the request body of an operation, in the media type that we send.
type body struct {
	arg      string // among the arguments
	kind     string // the media type
	required bool
	schema   any
	fields   map[string]field // of a form, as far as they are known
}

// A field is one of a form or of a multipart body.
type field struct {
	file   bool       // its value is base64, and is sent decoded
	kind   string     // media type; "" means by its value
	styled *parameter // how it is written in a form; nil means the default
}

// mediaOf returns a media type in lower case and without parameters.
func mediaOf(given string) string {
	kind, _, err := mime.ParseMediaType(given)
	if err != nil {
		return strings.ToLower(strings.TrimSpace(given))
	}
	return kind
}

// rank orders media types: the one that arguments express best is sent.
func rank(kind string) int {
	switch {
	case kind == typeJSON:
		return 0
	case isJSON(kind):
		return 1
	case kind == typeForm:
		return 2
	case kind == typeMultipart:
		return 3
	case isText(kind):
		return 4
	}
	return 5
}

// readBody reads the request body of an operation, or returns nil if it has none.
func (d *document) readBody(v any) (*body, error) {
	if v == nil {
		return nil, nil
	}
	o, err := d.object(v, "the request body")
	if err != nil {
		return nil, err
	}
	content, _ := o["content"].(object)
	if len(content) == 0 {
		return nil, fmt.Errorf("the request body has no content")
	}
	kinds := slices.SortedFunc(maps.Keys(content), func(a, b string) int {
		if c := rank(mediaOf(a)) - rank(mediaOf(b)); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	given := kinds[0]
	media, err := d.object(content[given], "the content of the request body")
	if err != nil {
		return nil, err
	}
	b := &body{kind: mediaOf(given), required: flag(o, "required", false), schema: media["schema"]}
	if b.schema == nil {
		b.schema = object{}
	}
	if strings.Contains(b.kind, "*") {
		b.kind = typeBytes
	}
	if !httpguts.ValidHeaderFieldValue(b.kind) || !strings.Contains(b.kind, "/") {
		return nil, fmt.Errorf("the media type of the request body, %q, is not one", clip(given, 100))
	}
	if b.kind == typeForm || b.kind == typeMultipart {
		err = d.readFields(b, media)
	}
	return b, err
}

// readFields reads how the fields of a form are encoded.
func (d *document) readFields(b *body, media object) error {
	schema, err := d.object(b.schema, "the schema of the request body")
	if err != nil {
		return err
	}
	properties, _ := schema["properties"].(object)
	encodings, _ := media["encoding"].(object)
	b.fields = map[string]field{}
	for name, v := range properties {
		about, err := d.object(v, "the field "+clip(name, 100))
		if err != nil {
			continue // a schema of true describes nothing
		}
		f := field{file: b.kind == typeMultipart && d.isFile(about)}
		if how, ok := encodings[name].(object); ok {
			f.kind = strings.TrimSpace(strings.Split(text(how, "contentType"), ",")[0])
			if f.kind != "" && (!httpguts.ValidHeaderFieldValue(f.kind) || strings.Contains(f.kind, "*")) {
				f.kind = ""
			}
			if how["style"] != nil || how["explode"] != nil || how["allowReserved"] != nil {
				f.styled = &parameter{name: name, arg: name, in: inQuery, reserved: flag(how, "allowReserved", false)}
				if err := f.styled.setStyle(how); err != nil {
					return fmt.Errorf("the field %s: %w", clip(name, 100), err)
				}
			}
		}
		b.fields[name] = f
	}
	return nil
}

// isFile reports whether a field, or each item of a list, is bytes and not text.
func (d *document) isFile(schema object) bool {
	if items, err := d.object(schema["items"], "items"); err == nil {
		schema = items
	}
	kind := text(schema, "contentMediaType")
	return text(schema, "format") == "binary" || kind != "" && !isJSON(kind) && !isText(kind)
}

// fileSchema is the schema of a file among the arguments.
func fileSchema(about string) object {
	schema := object{"anyOf": []any{
		object{"type": "string", "contentEncoding": "base64"},
		object{
			"type": "object", "required": []any{"base64"}, "additionalProperties": false,
			"properties": object{
				"base64":     object{"type": "string", "contentEncoding": "base64"},
				"filename":   object{"type": "string"},
				"media_type": object{"type": "string"},
			},
		},
	}}
	if about != "" {
		schema["description"] = about
	}
	return schema
}

// argument returns the schema of the body's argument, not yet translated.
func (b *body) argument(d *document) any {
	switch {
	case b.kind == typeMultipart:
		return b.withFiles(d)
	case isJSON(b.kind) || b.kind == typeForm:
		return b.schema
	case isText(b.kind):
		return object{"type": "string", "description": "sent as it is, as " + b.kind}
	}
	return object{"type": "string", "contentEncoding": "base64", "description": b.kind + ", in base64"}
}

// withFiles returns the schema of a multipart body, with fileSchema in place of its files.
func (b *body) withFiles(d *document) any {
	schema, err := d.object(b.schema, "the schema of the request body")
	if err != nil {
		return b.schema
	}
	schema = maps.Clone(schema)
	properties, _ := schema["properties"].(object)
	properties = maps.Clone(properties)
	for name, f := range b.fields {
		if !f.file {
			continue
		}
		about, _ := d.object(properties[name], name)
		if _, several := about["items"]; several {
			properties[name] = object{"type": "array", "items": fileSchema(""), "description": text(about, "description")}
		} else {
			properties[name] = fileSchema(text(about, "description"))
		}
	}
	if properties != nil {
		schema["properties"] = properties
	}
	return schema
}

// encode writes the body, and returns its content type.
func (b *body) encode(v any) (data []byte, kind string, err error) {
	switch {
	case isJSON(b.kind):
		data, err = strictjson.Marshal(v)
		return data, b.kind, err
	case b.kind == typeForm:
		data, err = b.form(v)
		return data, b.kind, err
	case b.kind == typeMultipart:
		return b.parts(v)
	}
	s, ok := v.(string)
	if !ok {
		return nil, "", b.invalid("must be text")
	}
	if isText(b.kind) {
		return []byte(s), b.kind + "; charset=utf-8", nil
	}
	if data, err = base64.StdEncoding.DecodeString(s); err != nil {
		return nil, "", b.invalid("must be base64")
	}
	return data, b.kind, nil
}

func (b *body) invalid(what string) error {
	return tool.Errorf(tool.CodeInvalidInput, "%s %s, since it is sent as %s", b.arg, what, b.kind)
}

// form writes a form. Lists repeat their name and objects are JSON, unless the document says otherwise.
func (b *body) form(v any) ([]byte, error) {
	o, ok := v.(object)
	if !ok {
		return nil, b.invalid("must be an object")
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		p := b.fields[name].styled
		if p == nil {
			_, isObject := o[name].(object)
			p = &parameter{name: name, arg: name, in: "form", style: styleForm, explode: true, json: isObject}
		}
		texts, err := p.query(o[name])
		if err != nil {
			return nil, err
		}
		list = append(list, texts...)
	}
	return []byte(strings.Join(list, "&")), nil
}

// parts writes a multipart body.
func (b *body) parts(v any) ([]byte, string, error) {
	o, ok := v.(object)
	if !ok {
		return nil, "", b.invalid("must be an object")
	}
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(o)) {
		values, several := o[name].([]any)
		if !several {
			values = []any{o[name]}
		}
		for _, one := range values {
			if err := b.part(w, name, one); err != nil {
				return nil, "", err
			}
		}
	}
	err := w.Close()
	return out.Bytes(), w.FormDataContentType(), err
}

func (b *body) part(w *multipart.Writer, name string, v any) error {
	f := b.fields[name]
	h := textproto.MIMEHeader{}
	var data []byte
	var err error
	if f.file {
		var filename, kind string
		if data, filename, kind, err = file(name, v); err != nil {
			return err
		}
		h.Set("Content-Disposition", multipart.FileContentDisposition(name, filename))
		h.Set("Content-Type", cmp.Or(kind, f.kind, typeBytes))
	} else {
		// The library quotes the name; the empty file name is cut off again.
		disposition := strings.TrimSuffix(multipart.FileContentDisposition(name, ""), `; filename=""`)
		h.Set("Content-Disposition", disposition)
		var kind string
		if data, kind, err = plainPart(name, v); err != nil {
			return err
		}
		h.Set("Content-Type", cmp.Or(f.kind, kind))
	}
	part, err := w.CreatePart(h)
	if err == nil {
		_, err = part.Write(data)
	}
	return err
}

// plainPart writes a part that is not a file: objects and lists are JSON.
func plainPart(name string, v any) (data []byte, kind string, err error) {
	switch v.(type) {
	case object, []any:
		data, err = strictjson.Marshal(v)
		return data, typeJSON, err
	}
	s, err := (&parameter{arg: name}).text(v)
	return []byte(s), "text/plain; charset=utf-8", err
}

// file reads a file among the arguments.
func file(name string, v any) (data []byte, filename, kind string, err error) {
	content, filename := v, name
	if o, ok := v.(object); ok {
		content, kind = o["base64"], text(o, "media_type")
		filename = cmp.Or(text(o, "filename"), name)
	}
	s, ok := content.(string)
	if ok {
		data, err = base64.StdEncoding.DecodeString(s)
	}
	if !ok || err != nil {
		return nil, "", "", tool.Errorf(tool.CodeInvalidInput,
			"the file %s must be base64, or an object with base64, filename and media_type", clip(name, 100))
	}
	if _, _, bad := mime.ParseMediaType(kind); kind != "" && (bad != nil || !httpguts.ValidHeaderFieldValue(kind)) {
		return nil, "", "", tool.Errorf(tool.CodeInvalidInput,
			"the file %s: %q is not a media type", clip(name, 100), clip(kind, 100))
	}
	return data, filename, kind, nil
}
