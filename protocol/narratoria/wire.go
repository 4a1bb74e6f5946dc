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
	"unicode/utf8"

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

// members are what the contract knows of an event, as raw JSON. Nil is absent or null: a tool whose
// language writes null for nothing is understood.
type members struct {
	version, typ, requestID, timestamp       []byte
	level, message, fields                   []byte
	patch                                    []byte
	assetID, kind, mediaType, path, metadata []byte
	event, payload                           []byte
	errorCode, errorMessage, details         []byte
	ok, summary, output                      []byte
}

// slot is where the member of that name goes; nil for names that the contract does not know.
func (m *members) slot(name []byte) *[]byte {
	switch string(name) {
	case "version":
		return &m.version
	case "type":
		return &m.typ
	case "requestId":
		return &m.requestID
	case "timestamp":
		return &m.timestamp
	case "level":
		return &m.level
	case "message":
		return &m.message
	case "fields":
		return &m.fields
	case "patch":
		return &m.patch
	case "assetId":
		return &m.assetID
	case "kind":
		return &m.kind
	case "mediaType":
		return &m.mediaType
	case "path":
		return &m.path
	case "metadata":
		return &m.metadata
	}
	return m.laterSlot(name)
}

func (m *members) laterSlot(name []byte) *[]byte {
	switch string(name) {
	case "event":
		return &m.event
	case "payload":
		return &m.payload
	case "errorCode":
		return &m.errorCode
	case "errorMessage":
		return &m.errorMessage
	case "details":
		return &m.details
	case "ok":
		return &m.ok
	case "summary":
		return &m.summary
	case "output":
		return &m.output
	}
	return nil
}

// A decoder reads events line by line. What it finds are parts of the line; it allocates nothing.
type decoder struct {
	members
	lenient bool
	odd     error // what is wrong with an output that a lenient reader leaves out
	scan    strictjson.Scanner
	each    func(name, value []byte) error
}

func newDecoder(lenient bool) *decoder {
	d := &decoder{lenient: lenient}
	d.each = func(name, value []byte) error {
		if slot := d.slot(name); slot != nil && value[0] != 'n' {
			*slot = value
		}
		return nil
	}
	return d
}

// decode reads one line and gives the event's type. Its error says what is wrong with the line.
func (d *decoder) decode(line []byte) (string, error) {
	d.members, d.odd = members{}, nil
	if err := d.scan.Object(line, d.each); err != nil {
		return "", err
	}
	if err := d.checkVersion(); err != nil {
		return "", err
	}
	typ, err := d.eventType()
	if err != nil {
		return "", err
	}
	if d.lenient && typ == typeDone {
		if d.odd = d.checkOutput(); d.odd != nil {
			d.output = nil
		}
	}
	return typ, d.check(typ)
}

func (d *decoder) checkVersion() error {
	if d.version == nil && d.lenient {
		return nil
	}
	if err := need(rule{"version", d.version, "string"}); err != nil {
		return err
	}
	if v := text(d.version); string(v) != protocolVersion {
		return fmt.Errorf("version is %s; this side speaks version %q", quote(v), protocolVersion)
	}
	return nil
}

func (d *decoder) eventType() (string, error) {
	if err := need(rule{"type", d.typ, "string"}); err != nil {
		return "", err
	}
	switch typ := text(d.typ); string(typ) {
	case typeLog:
		return typeLog, nil
	case typeStatePatch:
		return typeStatePatch, nil
	case typeAsset:
		return typeAsset, nil
	case typeUIEvent:
		return typeUIEvent, nil
	case typeError:
		return typeError, nil
	case typeDone:
		return typeDone, nil
	default:
		return "", fmt.Errorf("unknown event type %s", quote(typ))
	}
}

// check holds an event against the structure that the contract gives for its type. What is wrong with
// an asset is not a fault of the line: see asset.
func (m *members) check(typ string) error {
	if err := may(rule{"requestId", m.requestID, "string"}, rule{"timestamp", m.timestamp, "string"}); err != nil {
		return err
	}
	switch typ {
	case typeLog:
		return m.checkLog()
	case typeStatePatch:
		return need(rule{"patch", m.patch, "object"})
	case typeUIEvent:
		return need(rule{"event", m.event, "string"})
	case typeError:
		if err := need(rule{"errorCode", m.errorCode, "string"},
			rule{"errorMessage", m.errorMessage, "string"}); err != nil {
			return err
		}
		return may(rule{"details", m.details, "object"})
	case typeDone:
		if err := need(rule{"ok", m.ok, "boolean"}); err != nil {
			return err
		}
		if err := may(rule{"summary", m.summary, "string"}); err != nil {
			return err
		}
		return m.checkOutput()
	}
	return nil
}

// checkOutput refuses a result that has no place in a call's outcome: it would be lost without a word. The contract
// itself has no output of done.
func (m *members) checkOutput() error { return may(rule{"output", m.output, "object"}) }

func (m *members) checkLog() error {
	if err := need(rule{"level", m.level, "string"}, rule{"message", m.message, "string"}); err != nil {
		return err
	}
	switch level := text(m.level); string(level) {
	case "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("level is %s; it must be debug, info, warn or error", quote(level))
	}
	return may(rule{"fields", m.fields, "object"})
}

// A rule says of which kind a member must be.
type rule struct {
	name  string
	value []byte
	kind  string
}

func need(rules ...rule) error {
	for _, r := range rules {
		if r.value == nil {
			return fmt.Errorf("%s is missing", r.name)
		}
	}
	return may(rules...)
}

func may(rules ...rule) error {
	for _, r := range rules {
		if r.value == nil {
			continue
		}
		if kind := strictjson.KindOf(r.value); kind != r.kind {
			return fmt.Errorf("%s must be a JSON %s, not %s", r.name, r.kind, kind)
		}
	}
	return nil
}

// text is what a checked JSON string says. Without escapes it is part of the string and costs nothing.
func text(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	if err := strictjson.Unmarshal(raw, &s); err != nil { // raw was checked with its line
		return nil
	}
	return []byte(s)
}

// quote shows at most 80 characters of what a tool wrote, safe for any terminal and log.
func quote(b []byte) string {
	return strconv.Quote(clip(string(b[:min(len(b), 4*80)]), 80))
}

// clip cuts s to at most n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i] + "…"
		}
		n--
	}
	return s
}

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

// The data of the events, in the words of package tool.

func (m *members) logData() json.RawMessage {
	return object(member{"level", m.level}, member{"message", m.message}, member{"fields", m.fields})
}

// progressData returns the progress that a log event tells in its fields; nil: it tells none.
func (m *members) progressData() json.RawMessage {
	if !bytes.Contains(m.fields, []byte("progress")) { // nearly all of them
		return nil
	}
	var progress, total []byte
	_ = strictjson.Object(m.fields, func(name, value []byte) error { // it was checked with its line
		switch {
		case !isNumber(value):
		case string(name) == "progress":
			progress = value
		case string(name) == "total":
			total = value
		}
		return nil
	})
	if progress == nil {
		return nil
	}
	return object(member{"progress", progress}, member{"total", total}, member{"message", m.message})
}

// isNumber reports whether JSON is a number that a reader of progress can take.
func isNumber(value []byte) bool {
	_, err := strconv.ParseFloat(string(value), 64)
	return strictjson.KindOf(value) == "number" && err == nil
}

func (m *members) uiData() json.RawMessage {
	return object(member{"event", m.event}, member{"payload", m.payload})
}

func (m *members) errorData() json.RawMessage {
	return object(member{"errorCode", m.errorCode}, member{"errorMessage", m.errorMessage}, member{
		"details", m.details,
	})
}

// time is when the tool says that the event happened; zero when it does not say, or not as a date that
// we can pass on.
func (m *members) time() time.Time {
	if m.timestamp == nil {
		return time.Time{}
	}
	said := string(text(m.timestamp))
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700"} {
		t, err := time.Parse(layout, said)
		if t = t.UTC(); err == nil && t.Year() >= 0 && t.Year() <= 9999 {
			return t
		}
	}
	return time.Time{}
}

// A done is what the contract's last event says.
type done struct {
	ok      bool
	summary string
	output  json.RawMessage // nil: none
}

func (m *members) done() *done {
	d := &done{ok: m.ok[0] == 't'}
	if m.summary != nil {
		d.summary = string(text(m.summary))
	}
	if m.output != nil {
		d.output = bytes.Clone(m.output)
	}
	return d
}

// result is the output of a call: what done carries, else what done says.
func (d *done) result() json.RawMessage {
	if d.output != nil {
		return d.output
	}
	said := struct {
		OK      bool   `json:"ok"`
		Summary string `json:"summary,omitempty"`
	}{d.ok, d.summary}
	b, _ := strictjson.Marshal(said) // a boolean and a checked string
	return b
}

// maxAssetID bounds what is remembered to tell assets apart.
const maxAssetID = 256

// asset reads an asset event. The file itself is not looked at here.
func (m *members) asset() (tool.Asset, error) {
	a := tool.Asset{Metadata: bytes.Clone(m.metadata)}
	if err := need(rule{"assetId", m.assetID, "string"}, rule{"mediaType", m.mediaType, "string"},
		rule{"path", m.path, "string"}); err != nil {
		return a, err
	}
	if err := may(rule{"kind", m.kind, "string"}, rule{"metadata", m.metadata, "object"}); err != nil {
		return a, err
	}
	a.AssetID, a.MediaType, a.Path = string(text(m.assetID)), string(text(m.mediaType)), string(text(m.path))
	if m.kind != nil {
		a.Kind = string(text(m.kind))
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

// checkChoices holds the payload of a narrative_choice against the contract: choices are strings or
// objects with a label, and with an id and a hint where they have them.
func checkChoices(payload []byte) error {
	var p struct {
		Choices []json.RawMessage `json:"choices"`
	}
	if strictjson.KindOf(payload) != "object" {
		return errors.New("its payload is not an object with choices")
	}
	if err := strictjson.Unmarshal(payload, &p); err != nil || len(p.Choices) == 0 {
		return errors.New("its payload has no list of choices")
	}
	for i, choice := range p.Choices {
		if err := checkChoice(choice); err != nil {
			return fmt.Errorf("choice %d %w", i+1, err)
		}
	}
	return nil
}

func checkChoice(choice json.RawMessage) error {
	switch strictjson.KindOf(choice) {
	case "string":
		return nil
	case "object":
		var c struct {
			ID    *string `json:"id"`
			Label *string `json:"label"`
			Hint  *string `json:"hint"`
		}
		if err := strictjson.Unmarshal(choice, &c); err != nil {
			return errors.New("must have strings as id, label and hint")
		}
		if c.Label == nil {
			return errors.New("has no label")
		}
		return nil
	}
	return errors.New("must be a string or an object {id, label, hint}")
}
