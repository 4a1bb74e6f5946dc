// Package narratoria speaks the Narratoria tool protocol, version "0": a tool is a process that reads one JSON document and
// prints events, one JSON object per line, ending with done. The package runs such tools (Runner) and lets any other tool be
// run as one (Door). No other package knows this JSON.
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

// protocolVersion is the only valid version of an event.
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

// A form is the contract's structure of one type of event.
type form struct {
	typ    string
	fields []field
}

// A field is a member of an event: its JSON kind (empty for any), and whether it is required.
type field struct {
	name, kind string
	needed     bool
}

// forms are the forms of all types. The output of done is not in the contract.
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

// names are all members that an event can have.
var names = []string{
	"version", "type", "requestId", "timestamp", "level", "message", "fields", "patch", "assetId", "kind", "mediaType",
	"path", "metadata", "event", "payload", "errorCode", "errorMessage", "details", "ok", "summary", "output",
}

// formOf returns the form of a type, or nil if the contract has no such type.
func formOf(typ string) *form {
	for i := range forms {
		if forms[i].typ == typ {
			return &forms[i]
		}
	}
	return nil
}

// A decoder reads events line by line. Its results are slices of the line; it allocates nothing.
type decoder struct {
	*strictjson.Members
	lenient bool
	odd     error // the fault of an output that a lenient reader leaves out
}

func newDecoder(lenient bool) *decoder {
	return &decoder{Members: strictjson.NewMembers(names...), lenient: lenient}
}

// get returns a member as raw JSON, or nil if it is absent or null: some languages write null for a missing value.
func (d *decoder) get(name string) json.RawMessage { return unlessNull(d.Get(name)) }

// decode reads one line and returns the event's type. The error reports what is wrong with the line.
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
	case f.typ == typeAsset: // a faulty asset is not a fault of the line: see asset
		return f.typ, nil
	}
	return f.typ, d.conforms(f)
}

// conforms checks an event against the form of its type. An output that does not fit a call's outcome would be lost
// silently: it is refused, or left out with a warning.
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

// isKind checks that a member, if present, is of a kind.
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

// text returns the value of a checked JSON string, or nil if there is none. Without escapes it is a slice of the string and
// costs nothing.
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

// quote shows at most 80 characters of a tool's output, safe for any terminal and log.
func quote(b []byte) string { return fmt.Sprintf("%.80q", b[:min(len(b), 4*80)]) }

// A member is a name and raw JSON.
type member struct {
	name  string
	value []byte
}

// object writes members as one JSON object, in one allocation. Members without a value are left out.
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

// data returns the fields of an event as package tool's event data.
func (d *decoder) data(f *form) json.RawMessage {
	var list [5]member
	for i, f := range f.fields {
		list[i] = member{f.name, d.get(f.name)}
	}
	return object(list[:]...)
}

// progress returns the progress in the fields of a log event as data, or nil if there is none.
func (d *decoder) progress() json.RawMessage {
	fields := d.get("fields")
	if !bytes.Contains(fields, []byte("progress")) { // nearly all log events
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

// number returns value if it is a number that a reader of progress can take, otherwise nil.
func number(value []byte) []byte {
	if _, err := strconv.ParseFloat(string(value), 64); err != nil || strictjson.KindOf(value) != "number" {
		return nil
	}
	return value
}

// time returns the tool's timestamp of the event, or zero if there is none or it is not a date that we can pass on.
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

// done returns the outcome in the contract's last event. Its output is done's own, or else {ok, summary}.
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

// maxAssetID bounds the ids that are remembered to distinguish assets.
const maxAssetID = 256

// asset reads an asset event. It does not examine the file.
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
