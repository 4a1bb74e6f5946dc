package schema

import "strings"

// A draft is an edition of the standard. The keywords of all of them are read in each, as long as no edition
// gives a keyword two meanings; where one does, the draft decides.
type draft int

const (
	draft4 draft = iota
	draft6
	draft7
	draft2019
	draft2020
)

// draft reads a schema's $schema; one that has none is of the draft of what is around it.
func (s *source) draft() draft {
	uri, ok := read[string](s, "$schema", "string")
	if !ok {
		return s.place.res.draft
	}
	_, name, _ := strings.Cut(strings.TrimSuffix(uri, "#"), "://")
	switch name {
	case "json-schema.org/draft/2020-12/schema", "json-schema.org/schema":
		return draft2020
	case "json-schema.org/draft/2019-09/schema":
		return draft2019
	case "json-schema.org/draft-07/schema":
		return draft7
	case "json-schema.org/draft-06/schema":
		return draft6
	case "json-schema.org/draft-04/schema":
		return draft4
	}
	s.fail("$schema", "%q is not known; leave it out or use https://json-schema.org/draft/2020-12/schema", brief(uri))
	return draft2020
}

// A shape says how schemas stand under a keyword.
type shape int

const (
	oneSchema  shape = 1 << iota // a schema
	schemaList                   // an array of schemas
	schemaMap                    // an object of schemas
	nameLists                    // and of arrays of property names
)

func shapeOf(keyword string) shape {
	switch keyword {
	case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions":
		return schemaMap
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return schemaList
	case "items":
		return oneSchema | schemaList // an array: what prefixItems is now
	case "dependencies":
		return schemaMap | nameLists
	case "additionalProperties", "unevaluatedProperties", "propertyNames", "additionalItems", "unevaluatedItems",
		"contains", "not", "if", "then", "else", "contentSchema":
		return oneSchema
	}
	return 0
}
