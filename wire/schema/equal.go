package schema

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
)

// values are the values that a const or an enum allows.
type values struct {
	listed  []any
	strings map[string]bool
	others  []any
}

func newValues(listed []any) *values {
	vs := &values{listed: listed, strings: map[string]bool{}}
	for _, v := range listed {
		if s, ok := v.(string); ok {
			vs.strings[s] = true
		} else {
			vs.others = append(vs.others, v)
		}
	}
	return vs
}

func (vs *values) hold(v any) bool {
	if s, ok := v.(string); ok {
		return vs.strings[s]
	}
	return slices.ContainsFunc(vs.others, func(other any) bool { return equal(v, other) })
}

// equal compares as JSON does: 1 and 1.0 are the same number, and an object's members have no order.
func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || parseDecimal(string(a)) == parseDecimal(string(b)))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	case string, bool, nil:
		return a == b
	}
	return false
}

// sizeOf returns the approximate size of v in memory, in bytes.
func sizeOf(v any) int64 {
	size := int64(8)
	switch v := v.(type) {
	case string:
		size += int64(len(v))
	case json.Number:
		size += int64(len(v))
	case []any:
		for _, item := range v {
			size += sizeOf(item)
		}
	case map[string]any:
		for name, member := range v {
			size += int64(len(name)) + sizeOf(member)
		}
	}
	return size
}

// fewItems is the number of items up to which comparing every pair is faster than a set.
const fewItems = 12

// firstTwins finds two equal items.
func (r *run) firstTwins(items []any) (i, k int, found bool) {
	if !r.spend(sizeOf(items) / 8) {
		return 0, 0, false
	}
	if len(items) > fewItems {
		return firstTwinsOfMany(items)
	}
	for k := range items {
		for i := range k {
			if equal(items[i], items[k]) {
				return i, k, true
			}
		}
	}
	return 0, 0, false
}

func firstTwinsOfMany(items []any) (i, k int, found bool) {
	seen, seed := make(map[uint64]int, len(items)), maphash.MakeSeed() // keeping the forms themselves would take as much memory as the items
	var form []byte
	for k, item := range items {
		form = appendForm(form[:0], item)
		sum := maphash.Bytes(seed, form)
		if i, ok := seen[sum]; ok && equal(items[i], item) {
			return i, k, true
		}
		seen[sum] = k
	}
	return 0, 0, false
}

// appendForm writes a form of v that two values share exactly when they are equal.
func appendForm(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'n')
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return appendText(append(b, 's'), v)
	case json.Number:
		d := parseDecimal(string(v))
		b = strconv.AppendBool(append(b, 'd'), d.negative)
		return appendText(strconv.AppendInt(b, d.exp, 10), d.digits)
	case []any:
		b = strconv.AppendInt(append(b, 'a'), int64(len(v)), 10)
		for _, item := range v {
			b = appendForm(append(b, ','), item)
		}
	case map[string]any:
		b = strconv.AppendInt(append(b, 'o'), int64(len(v)), 10)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b = appendForm(appendText(append(b, ','), name), v[name])
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = append(strconv.AppendInt(append(b, ' '), int64(len(s)), 10), ':')
	return append(b, s...)
}
