package schema_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

type suiteGroup struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// loadSuite reads the required tests of the JSON Schema Test Suite, by draft and file.
func loadSuite(t testing.TB) map[string]map[string][]suiteGroup {
	t.Helper()
	f := kit.Must(os.Open("testdata/suite.json.gz"))(t)
	defer f.Close()
	z := kit.Must(gzip.NewReader(f))(t)
	b := kit.Must(io.ReadAll(z))(t)
	var suite map[string]map[string][]suiteGroup
	kit.OK(t, json.Unmarshal(b, &suite))
	return suite
}

// remote are the groups that fetch documents from a server, besides those of refRemote. By design we never load
// anything: each of these must be refused, with the reason.
var remote = map[string]bool{
	"dynamicRef/strict-tree schema, guards against misspelled properties":       true,
	"dynamicRef/tests for implementation dynamic anchor and reference link":     true,
	"dynamicRef/$ref and $dynamicAnchor are independent of order - $defs first": true,
	"dynamicRef/$ref and $dynamicAnchor are independent of order - $ref first":  true,
	"dynamicRef/$ref to $dynamicRef finds detached $dynamicAnchor":              true,
}

func TestOfficialSuite(t *testing.T) {
	type tally struct{ passed, refused int }
	want := map[string]tally{"draft2020-12": {1055, 44}, "draft7": {890, 23}}
	for draft, files := range loadSuite(t) {
		var got tally
		for _, file := range slices.Sorted(maps.Keys(files)) {
			for _, g := range files[file] {
				s, err := schema.Compile(ofDraft(draft, g.Schema))
				name := file + "/" + g.Description
				switch {
				case err == nil:
					got.passed += runGroup(t, draft+"/"+name, s, g)
				case strings.Contains(err.Error(), "put it under $defs") && (file == "refRemote" || remote[name]):
					got.refused += len(g.Tests)
				default:
					t.Errorf("%s/%s: %v", draft, name, err)
				}
			}
		}
		kit.Equal(t, got, want[draft], draft)
	}
}

// ofDraft adds the draft to the schema; those of draft 7 do not declare it.
func ofDraft(draft string, raw json.RawMessage) json.RawMessage {
	if draft != "draft7" || raw[0] != '{' || strings.Contains(string(raw), `"$schema"`) {
		return raw
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return raw
	}
	members["$schema"] = json.RawMessage(`"http://json-schema.org/draft-07/schema#"`)
	raw, _ = json.Marshal(members)
	return raw
}

func runGroup(t *testing.T, name string, s *schema.Schema, g suiteGroup) (passed int) {
	for _, c := range g.Tests {
		v, err := strictjson.Decode(c.Data)
		kit.OK(t, err, name)
		if faults := s.Validate(v); (faults == nil) != c.Valid {
			t.Errorf("%s/%s: %v", name, c.Description, faults)
			continue
		}
		passed++
	}
	return passed
}
