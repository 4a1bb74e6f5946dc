// Package strictjson is the one way to read JSON from outside: from a tool, a caller, a file.
//
// It refuses what lenient decoders accept and readers then disagree about: duplicate keys, keys in another case,
// invalid UTF-8, lone surrogates, more than one value, nesting deeper than MaxDepth, and numbers longer than MaxDigits.
// Numbers keep the digits they were written with. The code that reads the input limits its size; see package process.
package strictjson

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"toolpost/tool"
)

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 256

// MaxDigits is how many digits a number may have: exact arithmetic on a number of a million digits, which a schema's
// minimum needs, takes seconds. An exponent has at most four.
const (
	MaxDigits         = 1000
	maxExponentDigits = 4
)

// MaxMembers is how many members an object may have, together with those of the objects around it: all names of an
// object are kept while it is read, to find duplicates.
const MaxMembers = 500_000

// Check reports whether b is exactly one strict JSON value.
func Check(b []byte) error {
	s := scanners.Get().(*Scanner)
	defer putBack(s)
	return s.check(b)
}

// CheckObject reports whether b is exactly one strict JSON object.
func CheckObject(b []byte) error {
	if err := Check(b); err != nil {
		return err
	}
	if k := KindOf(b); k != "object" {
		return fmt.Errorf("expected a JSON object, got %s", k)
	}
	return nil
}

// OrEmpty returns an empty object in place of a missing one, such as the params of a request that has none.
func OrEmpty(object stdjson.RawMessage) stdjson.RawMessage {
	if len(object) == 0 {
		return stdjson.RawMessage("{}")
	}
	return object
}

// Loose reports whether b is one JSON object that can be passed on though it is not strict: below its top level names may
// repeat, and strings may have half of a surrogate pair.
func Loose(b []byte) bool {
	var doc map[string]jsontext.Value
	if _, err := Weigh(b); err != nil || !utf8.Valid(b) ||
		json.Unmarshal(b, &doc, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return false
	}
	names := 0
	err := Walk(b, func(_, _ []byte) error { names++; return nil })
	return err == nil && names == len(doc)
}

// KindOf names the kind of a JSON value by its first byte, for messages: object, array, string,
// number, boolean, null, or nothing.
func KindOf(b []byte) string {
	for len(b) > 0 && b[0] <= ' ' {
		b = b[1:]
	}
	if len(b) == 0 {
		return "nothing"
	}
	if kind := kinds[b[0]]; kind != "" {
		return kind
	}
	return "number"
}

var kinds = [256]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}

// Unmarshal reads b into a typed value. Names match in exact case; names that the type does not have
// are ignored. Use json.RawMessage, not any, for parts whose numbers must keep their digits.
func Unmarshal(b []byte, into any) error { return unmarshal(b, into, false) }

// UnmarshalClosed is Unmarshal for documents of our own making, such as our HTTP bodies: an unknown name is an error.
func UnmarshalClosed(b []byte, into any) error { return unmarshal(b, into, true) }

func unmarshal(b []byte, into any, closed bool) error {
	if _, err := Weigh(b); err != nil {
		return err
	}
	return explain(json.Unmarshal(b, into, durations, json.RejectUnknownMembers(closed)))
}

// Marshal writes v on one line. Map keys are sorted, so that equal values give equal bytes; numbers that Decode read
// keep their digits.
func Marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v, marshalOptions)
	return b, explain(err)
}

// A duration is its number of nanoseconds, as in encoding/json: the library itself has no default form for it, and
// refuses it.
var durations = jsonv1.FormatDurationAsNano(true)

// Without this, the library would write encoding/json's Number as the string that it is underneath.
var marshalOptions = json.JoinOptions(json.Deterministic(true), durations, json.WithMarshalers(
	json.MarshalToFunc(func(e *jsontext.Encoder, n stdjson.Number) error {
		return e.WriteValue(jsontext.Value(n))
	})))

// MaxTree is the approximate number of bytes that the decoded values of one request may take: a few bytes of JSON can
// take a hundred, and a caller chooses them. It is enough for half a million numbers, or for 30,000 records of eight
// members.
const MaxTree = 20 << 20

// The size of a value, of an object with up to eight members, and of eight further members of one that has grown.
const (
	valueBytes = 40
	firstBytes = 320
	moreBytes  = 900
)

// ErrTree says that a document weighs more than MaxTree.
var ErrTree = fmt.Errorf("too many values for one document: it can have about %d numbers and texts, or %d objects of few members; "+
	"send fewer at a time", MaxTree/valueBytes, MaxTree/(valueBytes+firstBytes))

// Decode reads b into map[string]any, []any, string, bool, nil and encoding/json's Number.
func Decode(b []byte) (v any, err error) { return DecodeWithin(b, math.MaxInt) }

// DecodeWithin is Decode for a tree that takes at most about most bytes of memory.
func DecodeWithin(b []byte, most int) (v any, err error) {
	if text, ok := unquoted(b); ok {
		return text, nil
	}
	if weight, err := Weigh(b); err != nil {
		return nil, err
	} else if weight > most {
		return nil, ErrTree
	}
	s := scanners.Get().(*Scanner)
	defer putBack(s)
	t := tree{s.reset(b, jsontext.AllowDuplicateNames(true)), false}
	v, err = t.value()
	switch {
	case errors.Is(err, errTwice):
		return nil, cmp.Or(s.check(b), err) // the library reports the place
	case err != nil:
		return nil, explain(err)
	}
	return v, atEnd(t.d)
}

// Mend returns JSON as lenient readers understand it, for senders that cannot be made to write it strictly: of members
// with the same name the last counts, and text that is not Unicode, such as half of a surrogate pair, becomes U+FFFD.
func Mend(b []byte) ([]byte, error) {
	if weight, err := Weigh(b); err != nil || weight > MaxTree {
		return nil, cmp.Or(err, ErrTree)
	}
	t := tree{new(Scanner).reset(b, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), true}
	v, err := t.value()
	if err = cmp.Or(err, atEnd(t.d)); err != nil {
		return nil, explain(err)
	}
	return Marshal(v)
}

// A tree decodes a document. It finds duplicate names with its own maps: the library would keep all names once more.
type tree struct {
	d    *jsontext.Decoder
	last bool // of members with the same name the last counts
}

var errTwice = errors.New("a name is there twice")

func (t *tree) value() (any, error) {
	token, err := t.d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		return t.object()
	case '[':
		return t.array()
	case '"':
		return token.String(), nil
	case '0':
		return stdjson.Number(token.String()), nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	}
	return nil, nil
}

func (t *tree) object() (any, error) {
	m := map[string]any{}
	for t.d.PeekKind() != '}' {
		token, err := t.d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := token.String()
		if _, twice := m[name]; twice && !t.last {
			return nil, errTwice
		}
		if m[name], err = t.value(); err != nil {
			return nil, err
		}
	}
	_, err := t.d.ReadToken()
	return m, err
}

func (t *tree) array() (any, error) {
	a := []any{}
	for t.d.PeekKind() != ']' {
		v, err := t.value()
		if err != nil {
			return nil, err
		}
		a = append(a, v)
	}
	_, err := t.d.ReadToken()
	return a, err
}

func atEnd(d *jsontext.Decoder) error {
	switch _, err := d.ReadToken(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return explain(err)
	}
	return errors.New("more than one JSON value")
}

// Weigh returns about how many bytes the values of a document take when they are decoded, without the texts. It refuses
// what would make a reader work without bound: nesting, numbers and names. Brackets, colons and digits count only
// outside strings; whether the rest is well formed is left to the decoder.
func Weigh(b []byte) (weight int, err error) {
	depth, digits, members := 0, 0, 0
	var own [MaxDepth + 1]int // the members of the object at each depth
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			end := endOfString(b, i+1)
			i, digits = end, 0
		case '{', '[':
			if depth++; depth > MaxDepth {
				return 0, fmt.Errorf("nested deeper than %d levels", MaxDepth)
			}
			if weight += valueBytes; c == '{' {
				weight += firstBytes - valueBytes
			}
		case '}', ']':
			if depth > 0 {
				members, own[depth] = members-own[depth], 0
			}
			depth, digits = depth-1, 0
		case ':':
			if members++; members > MaxMembers {
				return 0, fmt.Errorf("an object of more than %d members", MaxMembers)
			}
			if own[max(depth, 0)]++; own[max(depth, 0)]%8 == 1 && own[max(depth, 0)] > 1 {
				weight += moreBytes
			}
			digits = 0
		case ',': // the first value of a list or an object is part of its weight
			weight, digits = weight+valueBytes, 0
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			if digits++; digits > MaxDigits {
				return 0, fmt.Errorf("a number of more than %d digits", MaxDigits)
			}
		case 'e', 'E':
			digits = MaxDigits - maxExponentDigits
		case '.', '+', '-':
		default:
			digits = 0
		}
	}
	return weight, nil
}

// endOfString returns the index of the quote that closes the string whose content starts at i.
func endOfString(b []byte, i int) int {
	for i < len(b) {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		i += n
		backslashes := 0
		for k := i - 1; k >= 0 && b[k] == '\\'; k-- {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i
		}
		i++
	}
	return len(b)
}

// maxExplanation is the maximum length of an error in bytes: it names keys, and a key may be as long as a document.
const maxExplanation = 1000

// explain rewrites an error in terms of JSON: its reader knows nothing of the library, or of our types.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return errors.New("the JSON ends too early")
	}
	msg := unprefixed(err)
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		msg = misfit(wrong)
	}
	return errors.New(tool.Brief(msg, maxExplanation))
}

func unprefixed(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "jsontext: "), "json: ")
}

// misfit describes JSON that is well formed but not what was expected.
func misfit(e *json.SemanticError) string {
	at := e.JSONPointer
	var what string
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		what = fmt.Sprintf("unknown member %q", at.LastToken())
		at = at.Parent()
	case e.Err != nil:
		what = unprefixed(e.Err)
		if e.JSONKind == '0' && 0 < len(e.JSONValue) && len(e.JSONValue) <= 100 {
			what = string(e.JSONValue) + ": " + what
		}
	default:
		what = "a value that does not belong here"
		got, want := jsonKinds[e.JSONKind], ""
		if e.GoType != nil {
			want = goKinds[e.GoType.Kind()]
		}
		if got != "" && want != "" && got != want {
			what = "expected " + want + ", got " + got
		}
	}
	if at != "" {
		what = string(at) + ": " + what
	}
	return what
}

// jsonKinds and goKinds are the words for what was found and for what was expected.
var (
	jsonKinds = map[jsontext.Kind]string{
		'{': "an object", '[': "an array", '"': "a string", '0': "a number", 't': "a boolean", 'f': "a boolean", 'n': "null",
	}
	goKinds = map[reflect.Kind]string{
		reflect.Struct: "an object", reflect.Map: "an object", reflect.Slice: "an array", reflect.Array: "an array",
		reflect.String: "a string", reflect.Bool: "a boolean", reflect.Float32: "a number", reflect.Float64: "a number",
		reflect.Int: "a number", reflect.Int8: "a number", reflect.Int16: "a number", reflect.Int32: "a number",
		reflect.Int64: "a number", reflect.Uint: "a number", reflect.Uint8: "a number", reflect.Uint16: "a number",
		reflect.Uint32: "a number", reflect.Uint64: "a number",
	}
)
