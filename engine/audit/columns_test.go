package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/receipt"
	"toolpost/wire/strictjson"
)

// fill sets every value of a record, and each text to a different one.
func fill(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch field := v.Addr().Interface().(type) {
	case *time.Time:
		*field = time.Date(2026, 11, 15, 1, 2, 3, 4000, time.UTC)
	case *json.RawMessage:
		*field = json.RawMessage(`{"` + name + `":"the canary"}`)
	case *[]string:
		*field = []string{"the canary of " + name}
	case *[][]string:
		*field = [][]string{{"ls", "the canary of " + name}}
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("the canary of " + name)
		case reflect.Int, reflect.Int64:
			v.SetInt(1500)
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).Tag.Get("json") == "-" { // only for policy
					continue
				}
				fill(t, v.Field(i), v.Type().Field(i).Name)
			}
		default:
			t.Fatalf("%s is a %v, which no column can be", name, v.Type())
		}
	}
}

// leaves collects the addresses of all values of a record.
func leaves(v reflect.Value, name string, into map[any]string) {
	if _, isTime := v.Interface().(time.Time); v.Kind() == reflect.Struct && !isTime {
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") == "-" {
				continue
			}
			leaves(v.Field(i), v.Type().Field(i).Name, into)
		}
		return
	}
	into[v.Addr().UnsafePointer()] = name
}

func filled(t *testing.T) *tool.Record {
	t.Helper()
	r := new(tool.Record)
	fill(t, reflect.ValueOf(r).Elem(), "record")
	return r
}

// A field of a record without a column would be in no store, no JSON and no CSV.
func TestEveryFieldOfARecordHasOneColumn(t *testing.T) {
	r := new(tool.Record)
	fields := map[any]string{}
	leaves(reflect.ValueOf(r).Elem(), "", fields)
	delete(fields, reflect.ValueOf(&r.Begun).UnsafePointer()) // only for the stage, while the call runs
	delete(fields, reflect.ValueOf(&r.ReadOnly).UnsafePointer())
	for _, c := range Columns() {
		at := reflect.ValueOf(c.Value(r)).UnsafePointer()
		if fields[at] == "" {
			t.Errorf("column %s: its value is no field of the record, or that of another column", c.Name)
		}
		delete(fields, at)
	}
	if len(fields) > 0 {
		t.Errorf("no column has %v", fields)
	}
}

func TestEveryColumnIsInEveryForm(t *testing.T) {
	r, columns := filled(t), Columns()
	doc := kit.Must(columns.Marshal(r))(t)
	v, err := strictjson.Decode(doc)
	if err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	cells, empty := columns.Cells(r), columns.Cells(new(tool.Record))
	for i, c := range columns {
		object, _ := v.(map[string]any)
		if c.Object != "" {
			object, _ = object[c.Object].(map[string]any)
		}
		if object[c.Name] == nil {
			t.Errorf("%s is not in JSON", c.Name)
		}
		if cells[i] == "" || cells[i] == empty[i] {
			t.Errorf("%s is not in CSV: %q", c.Name, cells[i])
		}
		if columns.Names()[i] != c.Name || slices.Index(columns.Names(), c.Name) != i {
			t.Errorf("%s is not the name of one column in CSV", c.Name)
		}
		if c.Empty(r) || !c.Empty(new(tool.Record)) {
			t.Errorf("%s: nobody can tell whether it is empty", c.Name)
		}
		if _, text := c.Value(r).(*string); c.Part == Shared && !text {
			t.Errorf("%s is shared, and no text", c.Name)
		}
	}
	for name, want := range map[string]string{"duration_ms": "0.002", "time": "2026-11-15T01:02:03.000004Z", "dry_run": "true", "reads": "the canary of Reads"} {
		kit.Equal(t, cells[slices.Index(columns.Names(), name)], want, name)
	}
}

func TestRecordsSurviveJSON(t *testing.T) {
	columns := Columns()
	for _, want := range []*tool.Record{filled(t), {}, {Tool: "a\"b\\c\n\u2028ä"}, {Duration: -time.Hour}} {
		want.Begun, want.ReadOnly = false, false
		doc := kit.Must(columns.Marshal(want))(t)
		got := new(tool.Record)
		if err := columns.Unmarshal(doc, got); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
		kit.Equal(t, cmp.Diff(want, got), "", doc)
	}
	for _, bad := range []string{"", "[]", `{"":1}`, `{"toul":"x"}`, `{"touches":{"at":{}}}`, `{"touches":1}`, `{"tool":1}`, `{"touches":{"nosuch":1}}`} {
		kit.Fails(t, columns.Unmarshal([]byte(bad), new(tool.Record)), "", bad)
	}
	if doc, err := columns.Marshal(&tool.Record{Args: json.RawMessage(`{`)}); tool.CodeOf(err) != tool.CodeInternal || !strings.Contains(err.Error(), "args") {
		t.Errorf("%s, %v", doc, err)
	}
}

// A new column is redacted unless it declares that only this program writes it.
func TestEveryForeignColumnIsRedacted(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "canary"), []byte("the canary"), 0o600))
	redactor := secret.Open(t.Context(), dir, map[string]secret.From{"CANARY": {File: "canary"}}, nil).Redactor()
	was := filled(t)
	clean := (&Trail{columns: Columns()}).clean(was, redactor)
	kit.Equal(t, cmp.Diff(filled(t), was), "", "the record itself was changed")
	ours := []string{}
	for _, c := range Columns() {
		if c.Ours {
			ours = append(ours, c.Name)
		} else if got := c.text(clean); strings.Contains(got, "the canary") {
			t.Errorf("%s has the secret: %s", c.Name, got)
		}
	}
	if want := []string{"digest", "decision", "lease", "outcome", "approval", "approval_state", "kind", "definition"}; !slices.Equal(ours, want) {
		t.Errorf("%v are not redacted, want %v", ours, want)
	}
}

func TestNamesOfSecrets(t *testing.T) {
	for _, name := range []string{"pwd", "db_pwd", "pass", "dbPass", "DBPass", "PASS", "smtp-pass", "pin", "userPin", "pin2",
		"aws_creds", "bearer", "X-Bearer", "passPhrase", "pass_phrase", "passphrase", "key-passphrase"} {
		if !SpeaksOfSecrets(name, nil) {
			t.Errorf("%s is not taken for the name of a secret", name)
		}
	}
	for _, name := range []string{"spin", "pinned", "bypass", "compass", "passage", "opinion", "forbearers", "cwd", "path", "pinch"} {
		if SpeaksOfSecrets(name, nil) {
			t.Errorf("%s is taken for the name of a secret", name)
		}
	}
}

// A receipt is kept as it came, or not at all; and if a secret was replaced in the arguments, nothing helps to guess it.
func TestAReceiptIsKeptWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "canary"), []byte("the canary"), 0o600))
	redactor := secret.Open(t.Context(), dir, map[string]secret.From{"CANARY": {File: "canary"}}, nil).Redactor()
	signed := func(document string) []byte {
		return kit.Must(strictjson.Marshal(receipt.Signed{Document: document, Signature: []byte("s"), Key: "U", Salt: []byte("salt")}))(t)
	}
	clean := func(r *tool.Record) receipt.Signed {
		return kit.Must(receipt.Read((&Trail{columns: Columns()}).clean(r, redactor).Receipt))(t)
	}
	const document = `{"call": "\u0063"}`
	kit.DeepEqual(t, clean(&tool.Record{Args: []byte(`{"a":1}`), Receipt: signed(document)}),
		receipt.Signed{Document: document, Signature: []byte("s"), Key: "U", Salt: []byte("salt")})
	kit.DeepEqual(t, clean(&tool.Record{Args: []byte(`{"a":"the canary"}`), Receipt: signed(document)}),
		receipt.Signed{Document: document, Signature: []byte("s"), Key: "U"})
	dropped := (&Trail{columns: Columns()}).clean(&tool.Record{Receipt: signed(`{"tool":"the canary"}`)}, redactor)
	kit.Equal(t, string(dropped.Receipt), "")
}
