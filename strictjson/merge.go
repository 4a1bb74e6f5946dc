package strictjson

import "maps"

// Merge gives state with patch merged in, as RFC 7396 says: objects merge key by key at every depth,
// everything else replaces, null removes. Nothing null is stored by a patch. Neither argument is changed.
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
