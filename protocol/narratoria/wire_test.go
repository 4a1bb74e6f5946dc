package narratoria

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Each line breaks a rule of the contract; the error contains the words.
var broken = map[string]struct{ line, words string }{
	"not JSON":                     {`hello`, "invalid character"},
	"nothing":                      {``, "ends too early"},
	"output that is no object":     {`{"version":"0","type":"done","ok":true,"output":[1]}`, "output must be a JSON object, not array"},
	"half an object":               {`{"version":"0","type":"log"`, "ends too early"},
	"an array":                     {`[]`, "got array"},
	"a string":                     {`"done"`, "got string"},
	"two objects":                  {`{"version":"0","type":"done","ok":true}{}`, "more than one"},
	"invalid UTF-8":                {"{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"\xff\"}", "UTF-8"},
	"duplicate names":              {`{"version":"0","version":"0","type":"done","ok":true}`, "duplicate"},
	"too deep":                     {`{"version":"0","type":"state_patch","patch":` + strings.Repeat(`{"a":`, 300) + `1` + strings.Repeat(`}`, 300) + `}`, "deeper"},
	"no version":                   {`{"type":"done","ok":true}`, "version is missing"},
	"version null":                 {`{"version":null,"type":"done","ok":true}`, "version is missing"},
	"version 1":                    {`{"version":"1","type":"done","ok":true}`, `version is "1"`},
	"version a number":             {`{"version":0,"type":"done","ok":true}`, "version must be a JSON string, not number"},
	"version in another case":      {`{"Version":"0","type":"done","ok":true}`, "version is missing"},
	"no type":                      {`{"version":"0"}`, "type is missing"},
	"type a number":                {`{"version":"0","type":1}`, "type must be a JSON string, not number"},
	"unknown type":                 {`{"version":"0","type":"progress"}`, `unknown event type "progress"`},
	"type in another case":         {`{"version":"0","type":"Done","ok":true}`, `unknown event type "Done"`},
	"requestId a number":           {`{"version":"0","type":"done","ok":true,"requestId":7}`, "requestId must be a JSON string, not number"},
	"timestamp a number":           {`{"version":"0","type":"done","ok":true,"timestamp":7}`, "timestamp must be a JSON string, not number"},
	"log without level":            {`{"version":"0","type":"log","message":"m"}`, "level is missing"},
	"log of level trace":           {`{"version":"0","type":"log","level":"trace","message":"m"}`, `level is "trace"`},
	"log without message":          {`{"version":"0","type":"log","level":"info"}`, "message is missing"},
	"log with fields as a list":    {`{"version":"0","type":"log","level":"info","message":"m","fields":[]}`, "fields must be a JSON object, not array"},
	"state_patch without patch":    {`{"version":"0","type":"state_patch"}`, "patch is missing"},
	"patch a list":                 {`{"version":"0","type":"state_patch","patch":[1]}`, "patch must be a JSON object, not array"},
	"patch null":                   {`{"version":"0","type":"state_patch","patch":null}`, "patch is missing"},
	"ui_event without event":       {`{"version":"0","type":"ui_event"}`, "event is missing"},
	"ui_event's event a number":    {`{"version":"0","type":"ui_event","event":1}`, "event must be a JSON string, not number"},
	"error without code":           {`{"version":"0","type":"error","errorMessage":"m"}`, "errorCode is missing"},
	"error without message":        {`{"version":"0","type":"error","errorCode":"c"}`, "errorMessage is missing"},
	"error with text as details":   {`{"version":"0","type":"error","errorCode":"c","errorMessage":"m","details":"d"}`, "details must be a JSON object"},
	"done without ok":              {`{"version":"0","type":"done"}`, "ok is missing"},
	"done with ok as text":         {`{"version":"0","type":"done","ok":"true"}`, "ok must be a JSON boolean, not string"},
	"done with summary as a list":  {`{"version":"0","type":"done","ok":true,"summary":[]}`, "summary must be a JSON string, not array"},
	"a name with an escape, twice": {`{"version":"0","type":"done","ok":true,"\u006fk":false}`, "duplicate"},
}

func TestBrokenLinesSayWhatIsWrong(t *testing.T) {
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			_, err := newDecoder(false).decode([]byte(b.line))
			kit.Fails(t, err, b.words)
		})
	}
}

func TestLenientTakesAMissingVersionForZero(t *testing.T) {
	typ, err := newDecoder(true).decode([]byte(`{"type":"done","ok":true}`))
	if typ != typeDone || err != nil {
		t.Errorf("got %q, %v", typ, err)
	}
	kit.Fails(t, kit.Err(newDecoder(true).decode([]byte(`{"version":"1","type":"done","ok":true}`))),
		"", "another version passes")
}

var sound = map[string]string{
	`{"version":"0","type":"log","level":"info","message":"m"}`:                                            typeLog,
	`{"version":"0","type":"log","level":"error","message":"","fields":null,"requestId":null}`:             typeLog,
	`{"version":"0","type":"state_patch","patch":{"a":null}}`:                                              typeStatePatch,
	`{"version":"0","type":"asset"}`:                                                                       typeAsset, // bad assets do not break the stream
	`{"version":"0","type":"ui_event","event":"x"}`:                                                        typeUIEvent,
	`{"version":"0","type":"error","errorCode":"c","errorMessage":"m","details":{"a":1}}`:                  typeError,
	`{"version":"0","type":"done","ok":false}`:                                                             typeDone,
	"{\"version\":\"0\",\"type\":\"done\",\"ok\":true}\r":                                                  typeDone,
	`{"\u0076ersion":"\u0030","type":"d\u006fne","ok":true,"output":{},"future":{"x":[1]},"TYPE":"other"}`: typeDone,
}

// contract(narratoria): `type`: string. One of: `log`, `state_patch`, `asset`, `ui_event`, `error`, `done`.
// contract(narratoria): Tools MAY emit events in any order.
func TestSoundLines(t *testing.T) {
	for line, want := range sound {
		if typ, err := newDecoder(false).decode([]byte(line)); typ != want || err != nil {
			t.Errorf("%s: got %q, %v", line, typ, err)
		}
	}
}

func TestDecoderKeepsNothingOfTheLastLine(t *testing.T) {
	d := newDecoder(false)
	kit.Must(d.decode([]byte(`{"version":"0","type":"log","level":"info","message":"m","fields":{"a":1}}`)))(t)
	kit.Fails(t, kit.Err(d.decode([]byte(`{"type":"log"}`))), "", "the version of the line before was taken")
	kit.Must(d.decode([]byte(`{"version":"0","type":"log","level":"info","message":"n"}`)))(t)
	kit.Equal(t, string(d.data(formOf(typeLog))), `{"level":"info","message":"n"}`)
}

func TestDecodingALogAllocatesItsDataAlone(t *testing.T) {
	line := []byte(`{"version":"0","type":"log","level":"info","message":"Starting","fields":{"n":17}}`)
	d := newDecoder(false)
	allocations := testing.AllocsPerRun(100, func() {
		kit.Must(d.decode(line))(t)
		_ = d.data(formOf(typeLog))
	})
	if allocations > 1 {
		t.Errorf("%v allocations", allocations)
	}
}

func TestTimestamps(t *testing.T) {
	at := func(s string) time.Time {
		d := newDecoder(false)
		line, _ := json.Marshal(map[string]any{"version": "0", "type": "done", "ok": true, "timestamp": s})
		kit.OK(t, kit.Err(d.decode(line)), s)
		return d.time()
	}
	want := time.Date(2026, 1, 24, 10, 0, 0, 500_000_000, time.UTC)
	for _, s := range []string{"2026-01-24T10:00:00.5Z", "2026-01-24T12:00:00.5+02:00", "2026-01-24T10:00:00.500000", "2026-01-24T12:00:00.5+0200"} {
		if got := at(s); !got.Equal(want) {
			t.Errorf("%s: got %v", s, got)
		}
	}
	for _, s := range []string{"", "yesterday", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+10:00", "2026-13-01T00:00:00Z"} {
		got := at(s)
		if !got.IsZero() {
			t.Errorf("%q: got %v", s, got)
		}
		kit.Check(t, kit.Err(json.Marshal(got)), "%q cannot be passed on", s)
	}
}

func TestQuotesAreShortAndSafe(t *testing.T) {
	long := bytes.Repeat([]byte("é\x1b[31m\u202e\xff"), 1000)
	got := quote(long)
	if n := utf8.RuneCountInString(strings.NewReplacer(`\x1b`, "x", `\u202e`, "x", `\xff`, "x").Replace(got)); n > 80+3 {
		t.Errorf("%d characters", n)
	}
	if strings.ContainsAny(got, "\x1b\u202e\xff") || !utf8.ValidString(got) {
		t.Errorf("not safe: %q", got)
	}
}

func TestMediaTypes(t *testing.T) {
	for _, s := range []string{"image/png", "text/plain; charset=utf-8", "model/gltf+json", "application/x-never-heard-of"} {
		kit.Check(t, checkMediaType(s))
	}
	for _, s := range []string{"", "png", "image/", "/png", "image png", "image/png/x", "a/b; c", "image/png\n"} {
		if checkMediaType(s) == nil {
			t.Errorf("%q passes", s)
		}
	}
}

func TestACallRegistersOnlySoManyAssets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a")
	kit.OK(t, os.WriteFile(file, nil, 0o600))
	list := assets{open: func(_, path string) (*os.File, error) { return os.Open(path) }}
	for n := range maxAssets + 1 {
		d := newDecoder(false)
		line := fmt.Appendf(nil, `{"assetId":"%d","mediaType":"text/plain","path":%q}`, n, file)
		kit.OK(t, d.Read(line))
		_, f, err := list.register(d)
		kit.MustEqual(t, (err == nil), (n < maxAssets), "asset %d: %v", n, err)
		_ = f.Close()
	}
}

func TestTheRequestIsOneLineWithTheInputsFieldsRepeated(t *testing.T) {
	args := "{\n\t\"who\": \"b\\nc\",\r\n\"n\": 1.50, \"tool\": \"mine\", \"requestId\": 1, \"operation\": 2, \"input\": 3, \"q\\\"x\": []}"
	b := kit.Must(encodeRequest("torch", "run", &tool.Call{ID: "r1", Args: []byte(args)}))(t)
	if n := bytes.Count(b, []byte("\n")); n != 1 || b[len(b)-1] != '\n' || bytes.ContainsRune(b, '\r') {
		t.Errorf("%d lines: %q", n, b)
	}
	got, err := strictjson.Decode(b)
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	input, _ := strictjson.Decode([]byte(args))
	want := map[string]any{
		"requestId": "r1", "tool": "torch", "operation": "run", "input": input,
		"who": "b\nc", "n": json.Number("1.50"), `q"x`: []any{},
	}
	kit.Equal(t, cmp.Diff(want, got), "")
}

func TestArgumentsThatAreNoObjectAreNotSent(t *testing.T) {
	for _, args := range []string{`[]`, `1`, `{`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}"} {
		kit.Fails(t, kit.Err(encodeRequest("t", "run", &tool.Call{ID: "r", Args: []byte(args)})),
			"", "%s was sent", args)
	}
	kit.Contains(t, string(kit.Must(encodeRequest("t", "run", &tool.Call{ID: "r", Args: nil}))(t)), `"input":{}`, "no arguments: got")
}

func TestRequestsAreRead(t *testing.T) {
	for doc, want := range map[string]request{
		``:     {args: []byte(`{}`)},
		" \n ": {args: []byte(`{}`)},
		`{}`:   {args: []byte(`{}`)},
		`{"requestId":"r","tool":"t","operation":"o","input":{"a":1.0}}`:           {id: []byte(`"r"`), args: []byte(`{"a":1.0}`)},
		`{"requestId":"r","input":{"a":1},"a":1,"b":2}`:                            {id: []byte(`"r"`), args: []byte(`{"a":1}`)},
		`{"requestId":null,"input":null,"tool":"t","operation":"o","a\"":1,"b":2}`: {args: []byte(`{"a\"":1,"b":2}`)},
	} {
		got, err := decodeRequest([]byte(doc))
		if err != nil || string(got.id) != string(want.id) || string(got.args) != string(want.args) {
			t.Errorf("%s: got id %s, args %s, %v", doc, got.id, got.args, err)
		}
	}
	for _, doc := range []string{`[]`, `{`, `{"requestId":1}`, `{"input":[]}`, `{"input":{},"input":{}}`, "\xff"} {
		kit.Fails(t, kit.Err(decodeRequest([]byte(doc))), "", "%s passes", doc)
	}
}

// An accepted line is also an event to the standard library's decoder, and its data is strict JSON.
func FuzzEnvelope(f *testing.F) {
	for _, b := range broken {
		f.Add([]byte(b.line), false)
		f.Add([]byte(b.line), true)
	}
	for line := range sound {
		f.Add([]byte(line), false)
	}
	f.Add([]byte(`{"version":"0","type":"asset","assetId":"a","kind":"image","mediaType":"image/png","path":"/x","metadata":{}}`), false)
	f.Add([]byte(`{"version":"0","type":"ui_event","event":"narrative_choice","payload":{"choices":["a",{"label":"b"}]},"timestamp":"2026-01-24T10:00:00Z"}`), false)
	f.Fuzz(func(t *testing.T, line []byte, lenient bool) {
		d := newDecoder(lenient)
		typ, err := d.decode(line)
		_ = quote(line)
		if err != nil {
			return
		}
		var std map[string]any
		kit.OK(t, json.Unmarshal(line, &std), "accepted, but")
		if version, there := std["version"]; version != "0" && (!lenient || there && version != nil) {
			t.Fatalf("accepted version %v", version)
		}
		kit.MustEqual[any](t, std["type"], typ, "read as")
		useEvent(t, d, typ)
	})
}

// useEvent uses an accepted event like the runner.
func useEvent(t *testing.T, d *decoder, typ string) {
	kit.Must(json.Marshal(d.time()))(t)
	data := d.data(formOf(typ))
	switch typ {
	case typeStatePatch:
		data = d.get("patch")
	case typeUIEvent:
		a, err := questionOf(string(text(d.get("event"))), d.get("payload"))
		if err == nil && a != nil && a.ID == "" {
			t.Fatal("a question without an id")
		}
	case typeDone:
		data = d.done().Output
	case typeAsset:
		_, _ = d.asset()
		return
	}
	if err := strictjson.CheckObject(data); err != nil {
		t.Fatalf("data of %s: %v: %s", typ, err, data)
	}
}

// The door passes an accepted request on as one strict object, whatever was sent.
func FuzzRequest(f *testing.F) {
	for _, doc := range []string{``, `{}`, `{"requestId":"r","tool":"t","operation":"o","input":{"a":1}}`, `{"a\"":1}`, `{"input":[]}`, `{"requestId":1}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := decodeRequest(doc)
		if err != nil {
			return
		}
		if err := strictjson.CheckObject(r.args); err != nil {
			t.Fatalf("arguments: %v: %s", err, r.args)
		}
		b := kit.Must(encodeRequest("tool", "run", &tool.Call{ID: "id", Args: r.args}))(t)
		again, err := decodeRequest(b)
		if err != nil && strings.Contains(err.Error(), "deeper") {
			return // the arguments were at the depth limit, and the request is one level deeper
		}
		if err != nil || !bytes.Equal(again.args, bytes.TrimRight(oneLine(bytes.Clone(r.args)), "\n")) {
			t.Fatalf("sent %s, read %s, %v", r.args, again.args, err)
		}
	})
}
