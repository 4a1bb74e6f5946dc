package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"toolpost/wire/strictjson"
)

// A Property is one member of the objects that a schema describes, as far as it is shown to people.
type Property struct {
	Name        string            `json:"-"`
	Description string            `json:"description"`
	Type        Types             `json:"type"`
	Enum        []json.RawMessage `json:"enum"` // the values that it can have; empty means any
	Required    bool              `json:"-"`
	Schema      json.RawMessage   `json:"-"` // all of it
}

// Types are the types that a schema names; empty means any.
type Types []string

// UnmarshalJSON implements json.Unmarshaler. A value that is neither a type nor a list of types is ignored.
func (t *Types) UnmarshalJSON(b []byte) error {
	var one string
	if strictjson.Unmarshal(b, &one) == nil {
		*t = Types{one}
		return nil
	}
	if strictjson.Unmarshal(b, (*[]string)(t)) != nil {
		*t = nil
	}
	return nil
}

// Properties lists the members that a schema names, the required ones first, as far as they are simple to see. A
// property that is not understood has no details, and a schema that is not understood has no properties.
func Properties(raw json.RawMessage) []Property { return PropertiesIn(raw, raw) }

// PropertiesIn returns the properties of a schema that is a part of root.
func PropertiesIn(root, raw json.RawMessage) (list []Property) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if strictjson.Unmarshal(Referred(root, raw), &s) != nil {
		return nil
	}
	for name, about := range s.Properties {
		var p Property
		if strictjson.Unmarshal(about, &p) != nil {
			p = Property{}
		}
		p.Schema = Referred(root, about)
		if said := p.Description; !bytes.Equal(p.Schema, about) {
			_ = strictjson.Unmarshal(p.Schema, &p) // ignored if it is not understood
			p.Description = cmp.Or(said, p.Description)
		}
		p.Name, p.Required = name, slices.Contains(s.Required, name)
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Property) int {
		if a.Required != b.Required {
			return map[bool]int{true: -1, false: 1}[a.Required]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return list
}

// Referred resolves a part of root: if it is a reference to one of root's own definitions, it returns that.
func Referred(root, raw json.RawMessage) json.RawMessage {
	const most = 8 // references may lead to references, and in circles
	for range most {
		if !bytes.Contains(raw, []byte(`"$ref"`)) {
			return raw
		}
		var s struct {
			Ref string `json:"$ref"`
		}
		if strictjson.Unmarshal(raw, &s) != nil {
			return raw
		}
		name, local := strings.CutPrefix(s.Ref, "#/$defs/")
		if !local {
			return raw
		}
		var defined struct {
			Defs map[string]json.RawMessage `json:"$defs"`
		}
		found := strictjson.Unmarshal(root, &defined) == nil
		if next, ok := defined.Defs[pointerNames.Replace(name)]; ok && found {
			raw = next
			continue
		}
		return raw
	}
	return raw
}

// pointerNames unescapes / and ~ in a JSON pointer.
var pointerNames = strings.NewReplacer("~1", "/", "~0", "~")

// Words describes the first few of some faults, each with its position.
func Words(faults []Fault) string {
	const most = 3
	var words []string
	for _, f := range faults[:min(len(faults), most)] {
		words = append(words, strings.TrimPrefix(f.At+": "+f.Problem, ": "))
	}
	if n := len(faults) - len(words); n > 0 {
		words = append(words, "and "+strconv.Itoa(n)+" more")
	}
	return strings.Join(words, "; ")
}
