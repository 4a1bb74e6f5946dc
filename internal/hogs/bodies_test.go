package hogs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/served"
)

// TestOneRequestTakesLittleMemory sends bodies that make many values of a few bytes each, each body to its own server,
// and checks the server's memory: its peak, and what is left after it.
func TestOneRequestTakesLittleMemory(t *testing.T) {
	bin := served.Build(t)
	const size, most = 7 << 20, 100 << 20
	fill := func(before, after string, item func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(item(i) + ",")
		}
		return before + strings.TrimSuffix(b.String(), ",") + after
	}
	for name, c := range map[string]struct{ schema, args string }{
		"unknown members": {`{"type":"object","additionalProperties":false}`,
			fill("{", "}", func(i int) string { return fmt.Sprintf(`"k%06d":1`, i) })},
		"numbers": {`{"type":"object","properties":{"a":{"items":{"type":"string"}}}}`,
			fill(`{"a":[`, "]}", func(int) string { return "1" })},
		"empty objects": {`{"type":"object","properties":{"a":{"maxItems":0}}}`, fill(`{"a":[`, "]}", func(int) string { return "{}" })},
		"different items": {`{"type":"object","properties":{"a":{"uniqueItems":true}}}`,
			fill(`{"a":[`, "]}", func(i int) string { return fmt.Sprint(i) })},
		"one of many": {`{"type":"object","properties":{"a":{"items":{"enum":["x"]}}}}`,
			fill(`{"a":[`, "]}", func(i int) string { return fmt.Sprintf(`"%d"`, i) })},
		"lacking": {`{"type":"object","properties":{"a":{"items":{"required":["x","y","z"]}}}}`,
			fill(`{"a":[`, "]}", func(int) string { return "{}" })},
		"alternatives": {`{"type":"object","properties":{"a":{"items":{"anyOf":[{"type":"string"},{"required":["x"]},{"enum":[1]}]}}}}`,
			fill(`{"a":[`, "]}", func(int) string { return "{}" })},
		"patterns": {`{"type":"object","patternProperties":{"^k":{"type":"string"}},"propertyNames":{"maxLength":2}}`,
			fill("{", "}", func(i int) string { return fmt.Sprintf(`"k%06d":1`, i) })},
		"duplicates": {`{"type":"object"}`, fill("{", "}", func(int) string { return `"k":1` })},
		"nesting": {`{"type":"object"}`, fill(`{"a":[`, "]}",
			func(int) string { return strings.Repeat("[", 200) + strings.Repeat("]", 200) })},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := "sources: [{name: s, protocol: command, tools: [{tool: t, description: d, command: [sleep, '0'], output: json, input: " + c.schema + "}]}]\n"
			kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(config), 0o600))
			s := &server{served.Start(t, bin, dir)}
			kit.Must(s.Call(t.Context(), "t", `{}`))(t)
			before := s.memory(t, "VmRSS")
			o, err := s.Call(t.Context(), "t", c.args)
			if grown := s.memory(t, "VmHWM") - before; err != nil || o.OK || o.Error.Code != "invalid_input" || grown > most {
				t.Errorf("%v, %+v; the server's memory grew by %d MiB", err, o.Error, grown>>20)
			}
			kit.Until(t, func() error {
				if kept := s.memory(t, "VmRSS") - before; kept > 48<<20 {
					return fmt.Errorf("%d MiB are not given back", kept>>20)
				}
				return nil
			})
			s.Stop(t)
		})
	}
}
