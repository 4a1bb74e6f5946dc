package form

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"toolpost/tool"
	jsonschema "toolpost/wire/schema"
)

// An Input is one property of a tool's arguments.
type Input struct {
	Name, Type, Description string
	Need                    string // required or optional
}

// InputLines returns a line for each property of a schema.
func InputLines(schema json.RawMessage) string {
	width, types := 0, 8
	inputs := Inputs(schema)
	for _, in := range inputs {
		width, types = max(width, utf8.RuneCountInString(in.Name)), max(types, utf8.RuneCountInString(in.Type))
	}
	var lines []string
	for _, in := range inputs {
		line := fmt.Sprintf("  %-*s  %-*s  %s  %s", width, in.Name, types, in.Type, in.Need, in.Description)
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

// Inputs reads the simple properties of a schema, the required ones first.
func Inputs(schema json.RawMessage) (inputs []Input) {
	for _, p := range jsonschema.Properties(schema) {
		need := "optional"
		if p.Required {
			need = "required"
		}
		said := strings.Join(strings.Fields(about(schema, p)), " ")
		inputs = append(inputs, Input{tool.VisibleName(p.Name), tool.VisibleName(typeOf(p)), tool.VisibleName(said), need})
	}
	return inputs
}

// typeOf describes what a property may be: one of a few values, or types.
func typeOf(p jsonschema.Property) string {
	var values []string
	for _, v := range p.Enum {
		values = append(values, PlainText(v))
	}
	if text := strings.Join(values, "|"); text != "" && utf8.RuneCountInString(text) <= 40 {
		return text
	}
	return strings.Join(p.Type, "|")
}

// maxMembers is how many members of an object are listed.
const maxMembers = 12

// about returns the description of a property, or the members of an object that has none.
func about(whole json.RawMessage, p jsonschema.Property) string {
	if p.Description != "" || !slices.Contains(p.Type, "object") {
		return p.Description
	}
	var names []string
	for _, m := range jsonschema.PropertiesIn(whole, p.Schema) {
		name := m.Name
		if !m.Required {
			name += "?"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	if more := len(names) - maxMembers; more > 0 {
		names = append(names[:maxMembers], fmt.Sprintf("and %d more", more))
	}
	return "{" + strings.Join(names, ", ") + "}"
}
