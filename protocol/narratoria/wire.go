// Package narratoria speaks the Narratoria tool protocol, version "0": a tool is a process that reads
// one JSON document and prints events, one JSON object a line, until it says done. The package runs
// such tools (Runner) and lets any other tool be run as one (Door). Nobody else knows this JSON.
package narratoria

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// protocolVersion is the one value of an event's version.
const protocolVersion = "0"

// The event types of the contract.
const (
	typeLog        = "log"
	typeStatePatch = "state_patch"
	typeAsset      = "asset"
	typeUIEvent    = "ui_event"
	typeError      = "error"
	typeDone       = "done"
)

// A form is the structure that the contract gives for a type of event.
type form struct {
	typ    string
	fields []field
}

// A field is a member of an event: of which kind of JSON it is (empty: of any), and whether it must be there.
type field struct {
	name, kind string
	needed     bool
}

// forms are those of all types. The contract itself has no output of done.
var forms = [...]form{
	{typeLog, []field{{"level", "string", true}, {"message", "string", true}, {"fields", "object", false}}},
	{typeStatePatch, []field{{"patch", "object", true}}},
	{typeAsset, []field{
		{"assetId", "string", true}, {"kind", "string", false}, {"mediaType", "string", true}, {"path", "string", true},
		{"metadata", "object", false},
	}},
	{typeUIEvent, []field{{"event", "string", true}, {"payload", "", false}}},
	{typeError, []field{{"errorCode", "string", true}, {"errorMessage", "string", true}, {"details", "object", false}}},
	{typeDone, []field{{"ok", "boolean", true}, {"summary", "string", false}}},
}

// names are those of all members that an event can have.
var names = []string{
	"version", "type", "requestId", "timestamp", "level", "message", "fields", "patch", "assetId", "kind", "mediaType",
	"path", "metadata", "event", "payload", "errorCode", "errorMessage", "details", "ok", "summary", "output",
}

// formOf finds the form of a type; nil: the contract has no such type.
func formOf(typ string) *form {
	for i := range forms {
		if forms[i].typ == typ {
			return &forms[i]
		}
	}
	return nil
}

// A decoder reads events line by line. What it finds are parts of the line; it allocates nothing.
type decoder struct {
	*strictjson.Members
	lenient bool
	odd     error // what is wrong with an output that a lenient reader leaves out
}

func newDecoder(lenient bool) *decoder {
	return &decoder{Members: strictjson.NewMembers(names...), lenient: lenient}
}

// get returns a member as raw JSON. Nil is absent or null: a tool whose language writes null for nothing is
// understood.
func (d *decoder) get(name string) json.RawMessage { return unlessNull(d.Get(name)) }

// decode reads one line and gives the event's type. Its error says what is wrong with the line.
func (d *decoder) decode(line []byte) (string, error) {
	if err := d.Read(line); err != nil {
		return "", err
	}
	err := d.check(field{"version", "string", !d.lenient}, field{"type", "string", true},
		field{"requestId", "string", false}, field{"timestamp", "string", false})
	if err != nil {
		return "", err
	}
	version, typ := text(d.get("version")), text(d.get("type"))
	f := formOf(string(typ))
	switch {
	case version != nil && string(version) != protocolVersion:
		return "", fmt.Errorf("version is %s; this side speaks version %q", quote(version), protocolVersion)
	case f == nil:
		return "", fmt.Errorf("unknown event type %s", quote(typ))
	case f.typ == typeAsset: // what is wrong with one is not a fault of the line: see asset
		return f.typ, nil
	}
	return f.typ, d.conforms(f)
}

// conforms holds an event against the form of its type. A result that has no place in a call's outcome would be lost
// without a word: it is refused, or left out with one.
func (d *decoder) conforms(f *form) error {
	if err := d.check(f.fields...); err != nil {
		return err
	}
	switch f.typ {
	case typeLog:
		switch level := text(d.get("level")); string(level) {
		case "debug", "info", "warn", "error":
		default:
			return fmt.Errorf("level is %s; it must be debug, info, warn or error", quote(level))
		}
	case typeDone:
		if d.odd = d.check(field{"output", "object", false}); !d.lenient {
			return d.odd
		}
	}
	return nil
}

func (d *decoder) check(fields ...field) error {
	for _, f := range fields {
		value := d.get(f.name)
		if value == nil && f.needed {
			return fmt.Errorf("%s is missing", f.name)
		}
		if err := isKind(f.name, value, f.kind); err != nil {
			return err
		}
	}
	return nil
}

// isKind reports whether a member, if it is there, is of a kind.
func isKind(name string, value []byte, want string) error {
	if value == nil || want == "" {
		return nil
	}
	if kind := strictjson.KindOf(value); kind != want {
		return fmt.Errorf("%s must be a JSON %s, not %s", name, want, kind)
	}
	return nil
}

func unlessNull(value []byte) []byte {
	if len(value) > 0 && value[0] == 'n' {
		return nil
	}
	return value
}

// text is what a checked JSON string says; nothing says nothing. Without escapes it is part of the string and costs
// nothing.
func text(raw []byte) []byte {
	switch {
	case raw == nil:
		return nil
	case bytes.IndexByte(raw, '\\') < 0:
		return raw[1 : len(raw)-1]
	}
	said, _ := strictjson.Unquote(raw) // it was checked with its line
	return said
}

// quote shows at most 80 characters of what a tool wrote, safe for any terminal and log.
func quote(b []byte) string { return fmt.Sprintf("%.80q", b[:min(len(b), 4*80)]) }

// A member is a name and raw JSON.
type member struct {
	name  string
	value []byte
}

// object writes members as one JSON object, in one allocation. Those without a value are left out.
func object(list ...member) json.RawMessage {
	size := 2
	for _, m := range list {
		size += len(m.name) + len(m.value) + 4
	}
	w := strictjson.NewWriter(size)
	for _, m := range list {
		w.Raw(m.name, m.value)
	}
	return w.Done()
}

// data returns the fields of an event, which is what package tool has as its data.
func (d *decoder) data(f *form) json.RawMessage {
	var list [5]member
	for i, f := range f.fields {
		list[i] = member{f.name, d.get(f.name)}
	}
	return object(list[:]...)
}

// progress returns the progress that a log event tells in its fields, as data; nil: it tells none.
func (d *decoder) progress() json.RawMessage {
	fields := d.get("fields")
	if !bytes.Contains(fields, []byte("progress")) { // nearly all of them
		return nil
	}
	told, _ := strictjson.ReadMembers(fields, "progress", "total") // they were checked with their line
	progress := number(told.Get("progress"))
	if progress == nil {
		return nil
	}
	return object(member{"progress", progress}, member{"total", number(told.Get("total"))},
		member{"message", d.get("message")})
}

// number returns JSON that is a number which a reader of progress can take, else nil.
func number(value []byte) []byte {
	if _, err := strconv.ParseFloat(string(value), 64); err != nil || strictjson.KindOf(value) != "number" {
		return nil
	}
	return value
}

// time is when the tool says that the event happened; zero when it does not say, or not as a date that
// we can pass on.
func (d *decoder) time() time.Time {
	said := string(text(d.get("timestamp")))
	if said == "" {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700"} {
		t, err := time.Parse(layout, said)
		if t = t.UTC(); err == nil && t.Year() >= 0 && t.Year() <= 9999 {
			return t
		}
	}
	return time.Time{}
}

// done is the outcome that the contract's last event tells. Its output is what done carries, else what done says.
func (d *decoder) done() *tool.Result {
	r := &tool.Result{OK: d.get("ok")[0] == 't', Summary: string(text(d.get("summary")))}
	if r.Output = bytes.Clone(d.get("output")); r.Output == nil || d.odd != nil {
		r.Output, _ = strictjson.Marshal(struct { // a boolean and a checked string
			OK      bool   `json:"ok"`
			Summary string `json:"summary,omitempty"`
		}{r.OK, r.Summary})
	}
	return r
}

// maxAssetID bounds what is remembered to tell assets apart.
const maxAssetID = 256

// asset reads an asset event. The file itself is not looked at here.
func (d *decoder) asset() (a tool.Asset, err error) {
	if err := d.check(formOf(typeAsset).fields...); err != nil {
		return a, err
	}
	a = tool.Asset{
		AssetID: string(text(d.get("assetId"))), Kind: string(text(d.get("kind"))), Path: string(text(d.get("path"))),
		MediaType: string(text(d.get("mediaType"))), Metadata: bytes.Clone(d.get("metadata")),
	}
	switch {
	case a.AssetID == "":
		return a, errors.New("assetId is empty")
	case len(a.AssetID) > maxAssetID:
		return a, fmt.Errorf("assetId is longer than %d bytes", maxAssetID)
	case a.Path == "":
		return a, errors.New("path is empty")
	}
	return a, checkMediaType(a.MediaType)
}

func checkMediaType(s string) error {
	parsed, _, err := mime.ParseMediaType(s)
	major, minor, ok := strings.Cut(parsed, "/")
	if err != nil || !ok || major == "" || minor == "" || strings.TrimSpace(s) != s {
		return fmt.Errorf("mediaType %s is not a MIME type such as image/png", quote([]byte(s)))
	}
	return nil
}
