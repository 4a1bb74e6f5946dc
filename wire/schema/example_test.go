package schema_test

import (
	"encoding/json"
	"fmt"

	"toolpost/wire/schema"
)

func Example() {
	s, err := schema.Compile(json.RawMessage(`{
		"type": "object",
		"properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
		"required": ["name"]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range s.Validate(map[string]any{"age": json.Number("-1")}) {
		fmt.Printf("%q %s\n", f.At, f.Problem)
	}
	// Output:
	// "" missing property 'name'
	// "/age" -1 is less than the minimum 0
}
