package hogs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

// A document whose tools share large schemas takes little memory beside the program itself: the listed schemas of its 400
// tools are ten times as large as the document.
func TestAnOpenAPIDocumentTakesLittleMemory(t *testing.T) {
	bin := served.Build(t)
	peak := func(doc string) int64 {
		dir := t.TempDir()
		config := "sources: [{name: api, protocol: openapi, document: ./api.json, server: 'http://127.0.0.1:1'}]\n"
		kit.OK(t, os.WriteFile(filepath.Join(dir, "toolpost.yaml"), []byte(config), 0o600))
		kit.OK(t, os.WriteFile(filepath.Join(dir, "api.json"), []byte(doc), 0o600))
		list := exec.CommandContext(t.Context(), bin, "tools")
		list.Dir = dir
		kit.Must(list.Output())(t)
		return list.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	doc := sharing()
	const program = 32 << 20 // its share of the 64 MiB that are allowed beside 8 times the document
	grown := peak(doc) - peak(`{"openapi":"3.0.3","paths":{}}`)
	most := int64(8*len(doc) + 64<<20 - program)
	t.Logf("a document of %d KiB takes %d MiB; allowed are %d MiB", len(doc)>>10, grown>>20, most>>20)
	if grown > most {
		t.Error("that is too much")
	}
}

// sharing returns a document of 2.6 MB. The schema of some tools has all 300 schemas in it, that of the others some of
// them, and half of the tools have the schema of another one.
func sharing() string {
	var paths, schemas []string
	long := func(n int) string { return strings.Repeat("what it means, ", n/15) }
	for i := range 200 {
		var parameters []string
		for k := range 20 {
			parameters = append(parameters, fmt.Sprintf(`{"in":"query","name":"p%d_%d","description":%q,"schema":{"type":"string"}}`, i, k, long(60)))
		}
		first := 299 - i%30
		if i%40 == 0 {
			first = 0
		}
		put := fmt.Sprintf(`{"description":%q,"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/S%d"}}}}}`,
			long(2500), first)
		post := put
		if i%2 > 0 {
			post = strings.Replace(put, "requestBody\":{", "requestBody\":{\"required\":true,", 1)
		}
		paths = append(paths, fmt.Sprintf(`"/things%d":{"parameters":[%s],"put":%s,"post":%s}`, i, strings.Join(parameters, ","), put, post))
	}
	for i := range 300 {
		properties := fmt.Sprintf(`"next":{"$ref":"#/components/schemas/S%d"}`, min(i+1, 299))
		for k := range 25 {
			properties += fmt.Sprintf(`,"property%d":{"type":"string","description":%q}`, k, long(80)+"\u200b")
		}
		schemas = append(schemas, fmt.Sprintf(`"S%d":{"type":"object","properties":{%s}}`, i, properties))
	}
	return `{"openapi":"3.0.3","paths":{` + strings.Join(paths, ",") + `},"components":{"schemas":{` + strings.Join(schemas, ",") + `}}}`
}
