package schema

import (
	_ "embed"
	"strings"
	"sync"

	"toolpost/wire/strictjson"
)

// A draft is an edition of the standard. The keywords of all drafts are read in each; if a keyword has changed its
// meaning, the draft decides.
type draft int

const (
	draft4 draft = iota
	draft6
	draft7
	draft2019
	draft2020
)

var drafts = map[string]draft{
	"json-schema.org/draft/2020-12/schema": draft2020, "json-schema.org/schema": draft2020,
	"json-schema.org/draft/2019-09/schema": draft2019, "json-schema.org/draft-07/schema": draft7,
	"json-schema.org/draft-06/schema": draft6, "json-schema.org/draft-04/schema": draft4,
}

// draft reads a schema's $schema; without one the draft of its surroundings applies.
func (s *source) draft() draft {
	uri, ok := read[string](s, "$schema", "string")
	if !ok {
		return s.place.res.draft
	}
	_, name, _ := strings.Cut(strings.TrimSuffix(uri, "#"), "://")
	d, known := drafts[name]
	if !known {
		s.fail("$schema", "%q is not known; leave it out or use https://json-schema.org/draft/2020-12/schema", brief(uri))
	}
	return d
}

// A shape says how a keyword contains schemas.
type shape int

const (
	oneSchema  shape = 1 << iota // a schema
	schemaList                   // an array of schemas
	schemaMap                    // an object of schemas
	nameLists                    // and of arrays of property names
)

var shapes = map[string]shape{
	"properties": schemaMap, "patternProperties": schemaMap, "dependentSchemas": schemaMap, "$defs": schemaMap,
	"definitions": schemaMap, "dependencies": schemaMap | nameLists,
	"allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList, "prefixItems": schemaList,
	"items":                oneSchema | schemaList, // an array has the meaning of today's prefixItems
	"additionalProperties": oneSchema, "unevaluatedProperties": oneSchema, "propertyNames": oneSchema,
	"additionalItems": oneSchema, "unevaluatedItems": oneSchema, "contains": oneSchema, "not": oneSchema,
	"if": oneSchema, "then": oneSchema, "else": oneSchema, "contentSchema": oneSchema,
}

//go:embed metaschemas.json
var metaText []byte

// metaschemas are the schemas of schemas by their URIs, without the parts that only people read. They are parsed on the
// first reference to one of them.
var metaschemas = sync.OnceValue(func() map[string]any {
	docs, _ := strictjson.Decode(metaText) // a test refers to them
	byURI, _ := docs.(map[string]any)
	return byURI
})
