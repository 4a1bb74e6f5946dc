package schema

import (
	_ "embed"
	"sync"

	"toolpost/wire/strictjson"
)

//go:embed metaschemas.json
var metaText []byte

// metaschemas are the schemas of schemas by their URIs, without what only people read. They are read when something
// refers to one of them, and never otherwise.
var metaschemas = sync.OnceValue(func() map[string]any {
	docs, _ := strictjson.Decode(metaText) // a test refers to them
	byURI, _ := docs.(map[string]any)
	return byURI
})
