package strictjson_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

func object(t *testing.T, doc string) map[string]any {
	t.Helper()
	v, err := strictjson.Decode([]byte(doc))
	kit.OK(t, err, doc)
	return v.(map[string]any)
}

// contract(narratoria): Narratoria MUST merge this patch into session state using **deep merge** semantics
// contract(narratoria): Nested objects are merged recursively (keys added/updated, not replaced entirely)
// contract(narratoria): Arrays are replaced entirely (not merged element-by-element)
// contract(narratoria): Null values remove keys from the state tree
func TestMerge(t *testing.T) {
	for _, c := range []struct{ name, state, patch, want string }{
		{"the contract's example", `{"a":{"b":1,"c":2}}`, `{"a":{"c":3,"d":4}}`, `{"a":{"b":1,"c":3,"d":4}}`},
		{"arrays are replaced", `{"a":[1,2,3]}`, `{"a":[9]}`, `{"a":[9]}`},
		{"null removes", `{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		{"null removes at depth", `{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":null}}}`, `{"a":{"b":{"d":2}}}`},
		{"null where nothing is", `{}`, `{"a":null,"b":{"c":null}}`, `{"b":{}}`},
		{"null inside a new object", `{"a":5}`, `{"a":{"b":null,"c":1}}`, `{"a":{"c":1}}`},
		{"a null inside an array is a value", `{}`, `{"a":[null,{"b":null}]}`, `{"a":[null,{"b":null}]}`},
		{"an object replaces a scalar", `{"a":5}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"a scalar replaces an object", `{"a":{"b":1}}`, `{"a":5}`, `{"a":5}`},
		{"an empty patch changes nothing", `{"a":{"b":1}}`, `{}`, `{"a":{"b":1}}`},
		{"numbers keep their digits", `{"a":1}`, `{"a":1.50}`, `{"a":1.50}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, patch := object(t, c.state), object(t, c.patch)
			got := strictjson.Merge(state, patch)
			kit.Equal(t, cmp.Diff(object(t, c.want), got), "")
			kit.Equal(t, cmp.Diff(object(t, c.state), state), "", "the state was changed")
			kit.Equal(t, cmp.Diff(object(t, c.patch), patch), "", "the patch was changed")
		})
	}
}

func values() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Just[any](true), rapid.Just[any]("x"),
		rapid.Map(rapid.IntRange(0, 3), func(i int) any { return json.Number(string(rune('0' + i))) }),
		rapid.Just[any]([]any{json.Number("1")}),
	)
	key := rapid.SampledFrom([]string{"a", "b", "c"})
	nested := rapid.Map(rapid.MapOfN(key, leaf, 0, 3), func(m map[string]any) any { return m })
	return rapid.OneOf(leaf, nested, rapid.Map(rapid.MapOfN(key, rapid.OneOf(leaf, nested), 0, 3), func(m map[string]any) any { return m }))
}

func objects() *rapid.Generator[map[string]any] {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), values(), 0, 3)
}

func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := strictjson.Merge(nil, objects().Draw(t, "state"))
		patch := objects().Draw(t, "patch")
		once := strictjson.Merge(state, patch)
		kit.MustEqual(t, cmp.Diff(once, strictjson.Merge(once, patch)),
			"", "a patch merged twice is not the patch merged once")
		kit.MustEqual(t, cmp.Diff(state, strictjson.Merge(state, nil)), "", "no patch changes something")
		if holdsNull(once) {
			t.Fatalf("a null is stored: %v", once)
		}
	})
}

func holdsNull(m map[string]any) bool {
	for _, v := range m {
		if under, ok := v.(map[string]any); v == nil || ok && holdsNull(under) {
			return true
		}
	}
	return false
}

func TestADiffLeadsFromOneStateToTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := strictjson.Merge(nil, objects().Draw(t, "from")), objects().Draw(t, "to")
		patch, want := strictjson.Diff(from, to), strictjson.Merge(nil, to) // without null values
		kit.MustEqual(t, cmp.Diff(want, strictjson.Merge(from, patch)), "", patch)
		if !holdsNull(to) && cmp.Equal(from, to) != (len(patch) == 0) {
			t.Fatalf("%v", patch)
		}
	})
}
