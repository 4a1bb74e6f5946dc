package machina

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// anySlots draws a state of a few slots.
func anySlots(t *rapid.T, name string) slots {
	s := slots{}
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 6), 0, 5, rapid.ID).Draw(t, name) {
		content := rapid.SampledFrom([]string{`1`, `"ü"`, `{}`, `[1.50]`}).Draw(t, "content")
		s[n], _ = strictjson.Marshal(map[string]any{"type": "note", "provenance": "rapid", "content_json": content, "size_bytes": len(content)})
		s[n], _ = plainSlot(s[n])
	}
	return s
}

// model is a DSState as the field notes describe it, step by step and independent of the code under test.
func model(s map[int]string, c *change) map[int]string {
	if c == nil {
		return s
	}
	next := map[int]string{}
	if c.Delta {
		maps.Copy(next, s)
	}
	for n, value := range c.Slots {
		next[n] = string(value)
	}
	for _, n := range c.Removed {
		delete(next, n)
	}
	return next
}

func texts(s slots) map[int]string {
	m := map[int]string{}
	for n, value := range s {
		m[n] = string(value)
	}
	return m
}

func TestDeltasFollowTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, want := slots{}, map[int]string{}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			var c *change
			if rapid.Bool().Draw(t, "told") {
				c = &change{Delta: rapid.Bool().Draw(t, "delta"), Slots: anySlots(t, "slots")}
				c.Removed = rapid.SliceOfN(rapid.IntRange(0, 6), 0, 3).Draw(t, "removed")
			}
			raw := kit.Must(strictjson.Marshal(c))(t) // and over the wire
			read, err := decodeChange(raw)
			kit.OK(t, err, raw)
			state, want = state.apply(read), model(want, c)
			if got := texts(state); !reflect.DeepEqual(got, want) {
				t.Fatalf("after %s: %v, want %v", raw, got, want)
			}
		}
	})
}

func TestADeltaLeadsFromOneStateToTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := anySlots(t, "from"), anySlots(t, "to")
		d := from.delta(to)
		if got := from.apply(d); !reflect.DeepEqual(texts(got), texts(to)) {
			t.Fatalf("%v", got)
		}
		kit.MustEqual(t, d.empty(), reflect.DeepEqual(texts(from), texts(to)), d)
	})
}

// anyDocument draws a state document: slots, things that look like slots, and anything else.
func anyDocument(t *rapid.T, name string) map[string]any {
	leaf := rapid.SampledFrom([]any{"text", true, json.Number("1.50"), []any{json.Number("1"), nil}})
	object := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "type", "content_json"}), leaf, 0, 3)
	value := rapid.OneOf(leaf, rapid.Map(object, func(m map[string]any) any { return m }))
	doc := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "slots"}), value, 0, 3).Draw(t, name)
	if rapid.Bool().Draw(t, "slots") {
		doc["slots"] = rapid.MapOfN(rapid.SampledFrom([]string{"0", "7", "254", "255", "007", "-1", "x"}), value, 0, 5).Draw(t, "under")
	}
	return doc
}

func TestStateDocumentSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := anyDocument(t, "doc")
		s := kit.Must(slotsOf(doc))(t)
		back := kit.Must(s.document())(t)
		if _, isMap := doc["slots"].(map[string]any); !isMap && doc["slots"] == nil {
			doc["slots"] = map[string]any{}
		} else if !isMap {
			return // a document whose slots are not a map cannot be a Machina state; the slots win
		}
		if !same(doc, back) {
			t.Fatalf("%v came back as %v, by %v", doc, back, s)
		}
	})
}

func TestBadStatesAreRefused(t *testing.T) {
	for raw, want := range map[string]string{
		`7`: "", `[]`: "", `"x"`: "", `{"delta":"no"}`: "true or false", `{"delta":[]}`: "", `{"delta":{}}`: "",
		`{"slots":[]}`: "", `{"slots":{"1":7}}`: "object", `{"slots":{"1":null}}`: "object",
		`{"slots":{"01":{}}}`: "slot", `{"slots":{"-1":{}}}`: "slot", `{"slots":{"1.0":{}}}`: "slot", `{"slots":{"9999999999":{}}}`: "slot",
		`{"slots":{"1":{},"1":{}}}`: "duplicate", `{"removed_slots":7}`: "", `{"removed_slots":[null]}`: "slot", `{"removed_slots":["x"]}`: "slot",
		`{"slots":{"1":{"a":1,"a":2}}}`: "duplicate", "{\"slots\":{\"1\":{\"a\":\"\xff\"}}}": "UTF-8",
	} {
		kit.Fails(t, kit.Err(decodeChange([]byte(raw))), want, raw)
	}
	for _, raw := range []string{``, `null`} {
		if c, err := decodeChange([]byte(raw)); c != nil || err != nil {
			t.Errorf("%q: %v, %v", raw, c, err)
		}
	}
	for raw, want := range map[string]bool{ // json-c, and with it the known toolhost, reads numbers as booleans
		`{}`: false, `{"delta":null}`: false, `{"delta":false}`: false, `{"delta":0}`: false, `{"delta":0.0}`: false,
		`{"delta":true}`: true, `{"delta":1}`: true, `{"delta":-0.5}`: true,
	} {
		kit.Equal(t, kit.Must(decodeChange([]byte(raw)))(t).Delta, want, raw)
	}
	c, err := decodeChange([]byte(`{"delta":true,"removed_slots":[1,"2"]}`))
	if err != nil || !reflect.DeepEqual(c.Removed, []int{1, 2}) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRestGoesIntoTheLastFreeSlot(t *testing.T) {
	under := map[string]any{"255": map[string]any{}, "254": map[string]any{}}
	s, err := slotsOf(map[string]any{"slots": under, "torch": "lit"})
	if err != nil || len(s) != 3 || !strings.Contains(string(s[253]), restType) {
		t.Errorf("%v, %v", s, err)
	}
}

func TestAIDs(t *testing.T) {
	var specs []*tool.Spec
	for _, name := range []string{"readFile", "read-file", "read_file", "files.list", "größe", "x"} {
		specs = append(specs, &tool.Spec{Name: name, Source: "files"})
	}
	specs[3].Own = "list" // another source also has a tool of this name
	specs[5].Aliases = []string{"file.x", "AID.OWN.X.v7"}
	got := map[string]string{}
	for _, o := range offers("files", specs) {
		got[o.spec.Name] = o.aid
	}
	want := map[string]string{
		"readFile": "AID.FILES.READFILE.v1", "read-file": "AID.FILES.READ_FILE.v1", "read_file": "AID.FILES.READ_FILE_2.v1",
		"files.list": "AID.FILES.LIST.v1", "größe": "AID.FILES.GR__E.v1", "x": "AID.OWN.X.v7",
	}
	kit.DeepEqual(t, got, want)
	for aid, name := range map[string]string{"AID.MEMORY.QUERY.v1": "memory.query", "AID.NET.HTTP.GET.v1": "net.http.get", "odd": "odd"} {
		kit.Equal(t, nameOf(aid), name, aid)
	}
}

func TestAIDsAreUniqueForAnyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var specs []*tool.Spec
		for _, name := range rapid.SliceOfDistinct(rapid.StringMatching(`(AID\.)?[aA_.-]{1,4}(_2)?`), rapid.ID).Draw(t, "names") {
			specs = append(specs, &tool.Spec{Name: name})
		}
		seen := map[string]bool{}
		for _, o := range offers("s", specs) {
			if seen[o.aid] {
				t.Fatalf("%s twice", o.aid)
			}
			seen[o.aid] = true
		}
	})
}

func TestSideEffectWordsMapToEffects(t *testing.T) {
	for words, want := range map[string]tool.Effects{
		`["none"]`:                               {Reads: true},
		`["filesystem_read"]`:                    {Reads: true},
		`["filesystem_write"]`:                   {Writes: true},
		`["filesystem_read","FILESYSTEM_WRITE"]`: {Reads: true, Writes: true},
		`["memory_append"]`:                      {Writes: true},
		`["shell"]`:                              {Exec: true},
		`["process"]`:                            {Exec: true},
		`["process_exec","network_call"]`:        {Exec: true, Network: true},
		`["network"]`:                            {Network: true},
		`["network_write"]`:                      {Network: true, Writes: true},
		`["thread_spawn"]`:                       {Destructive: true},
		`["none","network"]`:                     {Network: true},
		`["destructive"]`:                        {Destructive: true},
		`["gpu"]`:                                {Destructive: true}, // its effects are unknown
		`["filesystem_delete"]`:                  {Destructive: true},
		`["none","self_modify"]`:                 {Destructive: true},
		`[""]`:                                   {Destructive: true},
		`[]`:                                     {},
		`null`:                                   {},
	} {
		tools, err := decodeListing(fmt.Appendf(nil, `{"ok":true,"tools":[{"aid":"A","side_effects":%s,"tags":["tier.2","tag.x"]}]}`, words))
		if err != nil || tools[0].effects() != want || *tools[0].tier() != 2 {
			t.Errorf("%s: %+v, %v", words, tools, err)
		}
	}
	for _, e := range []tool.Effects{{}, {Reads: true}, {Reads: true, Writes: true}, {Writes: true, Network: true}, {Exec: true}, {Destructive: true}} {
		kit.Equal(t, (listed{SideEffects: sideEffects(e)}).effects(), e, "came back as")
	}
	for doc, want := range map[string]string{
		`{"ok":false,"error":"no"}`: "no", `{"ok":true,"tools":[{}]}`: "without an aid", `[]`: "", `{"ok":true,"tools":[{"aid":"A"},{"aid":"A"}]}`: "two tools",
	} {
		kit.Fails(t, kit.Err(decodeListing([]byte(doc))), want, doc)
	}
}

func same(a, b any) bool {
	x, errX := strictjson.Marshal(a)
	y, errY := strictjson.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
