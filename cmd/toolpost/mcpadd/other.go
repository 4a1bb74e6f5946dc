package mcpadd

import (
	"cmp"
	"slices"
	"strings"

	"toolpost/builtin/operate"
	"toolpost/config"
	"toolpost/wire/regex"
)

// argument matches an argument in a command.
var argument = regex.Lazy(`\{(\w+)\}`)

// Other returns a source that is no MCP server, and names it if its operator did not.
func Other(a *operate.AddArgs) config.Fields {
	source := func(protocol, name string, more ...any) config.Fields {
		a.Name = cmp.Or(a.Name, name)
		return fields(append([]any{"name", a.Name, "protocol", protocol}, more...)...)
	}
	if a.API != "" {
		return source("openapi", "api", "document", a.API)
	}
	var names []string
	members := config.Fields{}
	for _, found := range argument().FindAllStringSubmatch(strings.Join(a.Command, " "), -1) {
		if name := found[1]; !slices.Contains(names, name) {
			names, members = append(names, name), append(members, fields(name, fields("type", "string"))...)
		}
	}
	return source("command", a.Tool, "tool", a.Tool, "description", cmp.Or(a.About, a.Tool), "command", a.Command,
		"input", fields("type", "object", "required", names, "properties", members))
}

// fields makes fields of names and values.
func fields(pairs ...any) (all config.Fields) {
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, config.Field{Name: pair[0].(string), Value: pair[1]})
	}
	return all
}
