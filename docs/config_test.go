package docs_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

var update = flag.Bool("update", false, "write the generated pages anew")

// The page is written from the schema of the config, which is derived from the structs that a config is decoded into.
func TestConfigPageIsWhatTheSchemaSays(t *testing.T) {
	b := kit.Must(node.Schema())(t)
	var s part
	kit.OK(t, json.Unmarshal(b, &s))
	want := newReference(&s).page()
	const page = "config.md"
	if *update {
		kit.OK(t, os.WriteFile(page, want, 0o644))
	}
	got := kit.Must(os.ReadFile(page))(t)
	kit.Equal(t, cmp.Diff(strings.Split(string(got), "\n"), strings.Split(string(want), "\n")),
		"", "config.md is stale; write it anew with `go test ./docs -run ConfigPage -update`")
}

// Defaults are written by hand in tags: each must be valid for its own field.
func TestDefaultsOfTheSchemaAreValuesOfTheirFields(t *testing.T) {
	b := kit.Must(node.Schema())(t)
	top := kit.Must(strictjson.Decode(b))(t)
	seen := 0
	var visit func(path string, v any)
	visit = func(path string, v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				visit(path, item)
			}
		case map[string]any:
			if usual, ok := v["default"]; ok && v["description"] != nil {
				seen++
				if faults := compiled(t, v).Validate(usual); len(faults) > 0 {
					t.Errorf("%s: the default %v: %v", path, usual, faults)
				}
			}
			for name, below := range v {
				visit(path+"/"+name, below)
			}
		}
	}
	visit("", top)
	if seen < 50 {
		t.Errorf("only %d defaults were found", seen)
	}
}

func compiled(t *testing.T, v any) *schema.Schema {
	t.Helper()
	b := kit.Must(strictjson.Marshal(v))(t)
	return kit.Must(schema.Compile(b))(t)
}

// A part is a JSON Schema, with the keywords that the schema of the config uses.
type part struct {
	Type        any              `json:"type"` // a name, or a list of names
	Description string           `json:"description"`
	Title       string           `json:"title"`
	Const       string           `json:"const"`
	Enum        []any            `json:"enum"`
	Default     json.RawMessage  `json:"default"`
	Minimum     json.RawMessage  `json:"minimum"`
	Maximum     json.RawMessage  `json:"maximum"`
	Properties  map[string]*part `json:"properties"`
	Items       *part            `json:"items"`
	More        more             `json:"additionalProperties"`
	OneOf       []*part          `json:"oneOf"`
	AnyOf       []*part          `json:"anyOf"`
	Required    []string         `json:"required"`
}

// protocols returns the schemas of sources.
func (p *part) protocols() []*part { return p.Properties["sources"].Items.OneOf }

// more describes an object's values beside its properties: none, or values of one kind.
type more struct{ *part }

func (m *more) UnmarshalJSON(b []byte) error {
	if string(b) == "false" {
		return nil
	}
	return json.Unmarshal(b, &m.part)
}

// object returns the schema of the fields below a part, and the suffix of a field's path there.
func (p *part) object() (fields *part, path string) {
	switch {
	case p == nil:
		return nil, ""
	case len(p.Properties) > 0:
		return p, "."
	case p.Items != nil:
		fields, path = p.Items.object()
		return fields, "[]" + path
	case p.More.part != nil:
		fields, path = p.More.object()
		return fields, ".NAME" + path
	}
	for _, short := range p.AnyOf {
		if fields, path = short.object(); fields != nil {
			return fields, path
		}
	}
	return nil, ""
}

// kind describes a value in a word or two.
func (p *part) kind() string {
	switch {
	case len(p.Enum) > 0:
		var words []string
		for _, e := range p.Enum {
			words = append(words, fmt.Sprintf("`%v`", e))
		}
		return strings.Join(words, ", ")
	case len(p.Minimum) > 0 && len(p.Maximum) > 0:
		return fmt.Sprintf("%s to %s", p.Minimum, p.Maximum)
	case len(p.OneOf) == 2:
		return "duration"
	case len(p.AnyOf) == 2 && p.AnyOf[1].Items != nil:
		return p.AnyOf[0].kind() + ", or a list"
	case len(p.AnyOf) == 2:
		return "string, or fields"
	case p.Items != nil:
		return "list of " + plural(p.Items.kind())
	case p.More.part != nil:
		return "map of " + plural(p.More.kind())
	case len(p.Properties) > 0:
		return "fields"
	}
	switch t := p.Type.(type) {
	case string:
		return t
	case []any: // text that looks like a number is still text
		if t[0] == "integer" {
			return "bytes"
		}
		return "string"
	}
	return "any"
}

func plural(kind string) string {
	if strings.HasSuffix(kind, "string") || strings.HasSuffix(kind, "integer") {
		return kind + "s"
	}
	return kind
}

// usual returns the default, with sizes in readable units.
func (p *part) usual() string {
	if len(p.Default) == 0 {
		return ""
	}
	var text string
	if json.Unmarshal(p.Default, &text) == nil {
		return "`" + text + "`"
	}
	var n int64
	if p.kind() == "bytes" && json.Unmarshal(p.Default, &n) == nil && n > 0 {
		for unit, name := int64(1)<<30, "GMK"; unit > 1; unit, name = unit>>10, name[1:] {
			if n%unit == 0 {
				return fmt.Sprintf("`%d%ciB`", n/unit, name[0])
			}
		}
	}
	return "`" + string(p.Default) + "`"
}

// A reference writes the page. An object that occurs several times in the schema gets a section of its own.
type reference struct {
	out    bytes.Buffer
	top    *part
	shared map[string]string // maps the schema of an object, as JSON, to the name of its section
}

func newReference(top *part) *reference {
	r := &reference{top: top, shared: map[string]string{}}
	seen, names := map[string]int{}, map[string]string{}
	var visit func(name string, p *part)
	visit = func(name string, p *part) {
		fields, _ := p.object()
		if fields == nil {
			return
		}
		seen[fields.key()]++
		names[fields.key()] = max(names[fields.key()], name) // one of them, and always the same
		for _, name := range slices.Sorted(maps.Keys(fields.Properties)) {
			visit(name, fields.Properties[name])
		}
	}
	for _, s := range append(slices.Collect(maps.Values(top.Properties["doors"].Properties)), top.protocols()...) {
		for name, p := range s.Properties {
			visit(name, p)
		}
	}
	for name, p := range top.Properties {
		if name != "doors" && name != "sources" {
			visit(name, p)
		}
	}
	for key, n := range seen {
		if n > 1 {
			r.shared[key] = names[key]
		}
	}
	return r
}

func (p *part) key() string {
	b, err := json.Marshal(p.Properties)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(b)
}

const intro = `# Config reference

<!-- Written by the test of this folder from the schema of the config: go test ./docs -run ConfigPage -update -->

Every field of ` + "`toolpost.yaml`" + `. The same schema is what ` + "`toolpost config schema`" + ` prints; give it to your editor and it completes and
checks as you type. ` + "`toolpost config check`" + ` reads your file and opens its sources.

- The file is strict: an unknown field, a duplicate key or a wrong type is an error with its line and column.
- A relative path starts at the folder of the config, unless its field says otherwise. ` + "`~/`" + ` at the beginning of a path, or of a word of a
  command, is the home folder of the user who runs Toolpost. Variables are not replaced.
- A duration is text such as ` + "`30s`, `5m` or `24h`" + `: a number and its unit.
- A size is a number of bytes, or has a unit: ` + "`64KiB`, `512MiB` or `2GiB`" + `.
- A boolean without a default is ` + "`false`" + `.
- ` + "`rules[].name`" + ` is the field ` + "`name`" + ` of each item of the list ` + "`rules`; in `roles.NAME.tools` you choose the name." + `

`

func (r *reference) page() []byte {
	r.out.WriteString(intro)
	r.overview()
	r.sources()
	r.doors()
	for _, name := range slices.Sorted(maps.Keys(r.top.Properties)) {
		if p := r.top.Properties[name]; name != "sources" && name != "doors" {
			r.heading(2, name, p)
			fields, path := p.object()
			r.table(fields, strings.TrimPrefix(path, "."), nil)
		}
	}
	r.objects()
	return r.out.Bytes()
}

func (r *reference) overview() {
	r.out.WriteString("| section | meaning |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.top.Properties)) {
		fmt.Fprintf(&r.out, "| [`%s`](#%s) | %s |\n", name, name, r.top.Properties[name].Description)
	}
	r.out.WriteByte('\n')
}

func (r *reference) heading(level int, name string, p *part) {
	fmt.Fprintf(&r.out, "%s %s\n\n", strings.Repeat("#", level), name)
	if p.Description != "" {
		r.out.WriteString(sentence(p.Description) + "\n\n")
	}
}

// sources writes the fields that several protocols share once, and then the fields of each protocol.
func (r *reference) sources() {
	r.heading(2, "sources", r.top.Properties["sources"])
	all := r.top.protocols()
	common := inCommon(all)
	r.out.WriteString("### Fields that several protocols share\n\n" +
		"Most of them are about the programs that Toolpost starts for the tools of a source.\n\n" +
		"| field | value | default | meaning | protocols |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(common)) {
		protocols, p := common[name], all[0].Properties[name]
		for _, s := range all {
			if s.Title == protocols[0] {
				p = s.Properties[name]
			}
		}
		who := strings.Join(protocols, ", ")
		if len(protocols) == len(all) {
			who = "all"
		}
		fmt.Fprintf(&r.out, "| `%s` | %s | %s | %s | %s |\n", name, r.kind(p), p.usual(), cell(p.Description), who)
	}
	r.out.WriteByte('\n')
	for _, s := range all {
		r.heading(3, s.Title, s)
		r.table(s, "", func(name string) bool { return slices.Contains(common[name], s.Title) })
	}
}

// inCommon finds the fields that are the same in three protocols or more, and in which.
func inCommon(all []*part) map[string][]string {
	common := map[string][]string{}
	for _, s := range all {
		for name, p := range s.Properties {
			if name == "protocol" {
				continue
			}
			var same []string
			for _, o := range all {
				if q := o.Properties[name]; q != nil && cmp.Equal(p, q, cmp.AllowUnexported(more{})) {
					same = append(same, o.Title)
				}
			}
			if len(same) > max(2, len(common[name])) {
				common[name] = same
			}
		}
	}
	return common
}

func (r *reference) doors() {
	r.heading(2, "doors", r.top.Properties["doors"])
	doors := r.top.Properties["doors"].Properties
	for _, name := range slices.Sorted(maps.Keys(doors)) {
		r.heading(3, "door "+name, doors[name])
		r.table(doors[name], "", nil)
	}
}

// objects writes the sections of objects that occur several times.
func (r *reference) objects() {
	byName := map[string]*part{}
	var visit func(p *part)
	visit = func(p *part) {
		fields, _ := p.object()
		if fields == nil {
			return
		}
		if name, ok := r.shared[fields.key()]; ok {
			byName[name] = fields
		}
		for _, q := range fields.Properties {
			visit(q)
		}
	}
	visit(r.top)
	for _, s := range r.top.protocols() {
		visit(s)
	}
	r.out.WriteString("## Objects that several fields share\n\n")
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		r.heading(3, name+" fields", &part{})
		r.table(byName[name], "", nil)
	}
}

// table lists the fields of an object, including those of nested objects, unless they have a section of their own.
func (r *reference) table(fields *part, path string, skip func(name string) bool) {
	var rows []string
	r.rows(fields, path, skip, &rows)
	if len(rows) == 0 {
		return
	}
	r.out.WriteString("| field | value | default | meaning |\n|---|---|---|---|\n" + strings.Join(rows, "") + "\n")
}

func (r *reference) rows(fields *part, path string, skip func(name string) bool, rows *[]string) {
	if fields == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields.Properties)) {
		p := fields.Properties[name]
		if p.Const != "" || skip != nil && skip(name) {
			continue
		}
		*rows = append(*rows, fmt.Sprintf("| `%s%s` | %s | %s | %s |\n", path, name, r.kind(p), p.usual(), cell(p.Description)))
		if below, next := p.object(); below != nil && r.shared[below.key()] == "" {
			r.rows(below, path+name+next, nil, rows)
		}
	}
}

// kind links to the section of an object that has one.
func (r *reference) kind(p *part) string {
	fields, _ := p.object()
	if fields == nil || r.shared[fields.key()] == "" {
		return p.kind()
	}
	name := r.shared[fields.key()]
	link := fmt.Sprintf("[%s fields](#%s-fields)", name, name)
	return strings.Replace(p.kind(), "fields", link, 1)
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }
