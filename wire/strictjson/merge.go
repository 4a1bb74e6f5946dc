package strictjson

import "maps"

// Merge returns state with patch merged in, as RFC 7396 says: objects merge key by key at every depth, everything else
// replaces, null removes. A patch never stores null. Neither argument is changed.
func Merge(state, patch map[string]any) map[string]any {
	merged := maps.Clone(state)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(merged, key)
		case map[string]any:
			under, _ := merged[key].(map[string]any)
			merged[key] = Merge(under, v)
		default:
			merged[key] = v
		}
	}
	return merged
}

// Diff returns the patch with which Merge turns from into to. A patch cannot express null values in to: they are
// missing afterwards.
func Diff(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range from {
		if _, ok := to[name]; !ok {
			patch[name] = nil
		}
	}
	for name, value := range to {
		old, had := from[name]
		a, wasObject := old.(map[string]any)
		b, isObject := value.(map[string]any)
		switch {
		case isObject && wasObject:
			if under := Diff(a, b); len(under) > 0 {
				patch[name] = under
			}
		case isObject:
			patch[name] = Diff(nil, b)
		case !had || !same(old, value):
			patch[name] = value
		}
	}
	return patch
}

func same(a, b any) bool {
	x, errX := Marshal(a)
	y, errY := Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
