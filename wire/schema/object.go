package schema

import (
	"encoding/json"
	"strings"

	"toolpost/wire/strictjson"
)

// Object returns a schema of arguments as clients want it: one that declares an object, since arguments always are one
// here.
func Object(schema json.RawMessage) json.RawMessage {
	body := strings.TrimSpace(string(schema))
	switch {
	case Is(schema, "object"):
		return schema
	case strictjson.KindOf(schema) != "object" || body == "{}":
		return json.RawMessage(`{"type":"object"}`)
	}
	return json.RawMessage(`{"type":"object",` + body[1:])
}

// Is reports whether a schema declares at its top level that it describes values of one kind, such as object.
func Is(schema json.RawMessage, kind string) bool {
	found := false
	err := strictjson.Object(schema, func(name, value []byte) error {
		found = found || string(name) == "type" && string(value) == `"`+kind+`"`
		return nil
	})
	return err == nil && found
}
