package run

import (
	"encoding/json"
	"slices"
	"strings"

	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// depths are the levels of types that a function shows: fewer if it would be too long.
func depths() []int { return []int{5, 2, 1, 0} }

// fitting writes a function with as much of its types as fits.
func fitting(f function, write func(in, out *shape) (text string, more int)) string {
	for i, deep := range depths() {
		text, more := write(shapeOf(f.spec.Input, deep), shapeOf(f.spec.Output, deep))
		if len(text)+more <= maxStub || i == len(depths())-1 {
			return text
		}
	}
	return ""
}

// pythonStubs writes functions as Python, which type checkers can read.
func pythonStubs(all []function) string {
	p := &pythonTypes{taken: map[string]bool{}}
	var body strings.Builder
	for _, group := range bySource(all) {
		body.WriteString("\n    class " + group[0].source + ":\n")
		for _, f := range group {
			body.WriteString(fitting(f, func(in, out *shape) (string, int) {
				p.begin(f)
				return p.function(f, in, out), len(strings.Join(p.classes, ""))
			}))
			p.kept = append(p.kept, p.classes...)
		}
	}
	text := "from typing import Any, Literal, NotRequired, TypedDict\n\n" + strings.Join(p.kept, "") + "\nclass tools:\n"
	if len(all) == 0 {
		text += "    pass\n"
	}
	return text + strings.TrimPrefix(body.String(), "\n")
}

// pythonTypes writes types. An object becomes a class, which precedes its use.
type pythonTypes struct {
	named   string          // the function
	taken   map[string]bool // names of classes
	mine    []string        // those of the function
	classes []string        // of the function
	kept    []string        // of all
}

// begin begins a function, or begins it again with less of its types.
func (p *pythonTypes) begin(f function) {
	named := f.source + "_" + f.name
	if named == p.named {
		for _, name := range p.mine {
			delete(p.taken, name)
		}
	}
	p.named, p.mine, p.classes = named, nil, nil
}

func (p *pythonTypes) function(f function, in, out *shape) string {
	const indent = "            "
	lines := f.said(in)
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(strings.ReplaceAll(l, `\`, `\\`), `"`, "'")
	}
	doc := `"""` + strings.TrimSpace(strings.Join(lines, "\n"+indent)) + `"""`
	return "        @staticmethod\n        async def " + f.name + "(" + p.parameters(in) + ") -> " +
		p.of(out, "Result") + ":\n" + indent + doc + "\n"
}

// parameters writes the parameters of a function: by name, or as one dictionary if Python cannot write a name.
func (p *pythonTypes) parameters(in *shape) string {
	switch {
	case len(in.members) == 0:
		return "**args: Any"
	case slices.ContainsFunc(in.members, member.odd):
		return "args: " + p.of(in, "Args") + ", /"
	}
	var list []string
	for _, m := range in.members {
		one := m.name + ": " + p.of(m.shape, "Args_"+m.name)
		if !m.required {
			one += " = ..."
		}
		list = append(list, one)
	}
	return "*, " + strings.Join(list, ", ")
}

// of writes a type. The path is its place in the function, for the name of a class.
func (p *pythonTypes) of(s *shape, path string) string {
	switch s.kind {
	case "string", "integer", "number", "boolean", "null":
		return map[string]string{
			"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
		}[s.kind]
	case "array":
		return "list[" + p.of(s.items, path+"_item") + "]"
	case "object":
		if len(s.members) > 0 {
			return p.class(s, path)
		}
		return "dict[str, " + p.of(s.items, path+"_value") + "]"
	case "literal":
		return pythonLiteral(s.literals)
	case "union":
		return union(s, "Any", func(one *shape) string { return p.of(one, path) })
	}
	return "Any"
}

// class makes a class of an object, and returns its name.
func (p *pythonTypes) class(s *shape, path string) string {
	name := identifier(p.named + "_" + path)
	for p.taken[name] {
		name += "_"
	}
	p.taken[name], p.mine = true, append(p.mine, name)
	var fields []string
	plain := !slices.ContainsFunc(s.members, member.odd)
	for _, m := range s.members {
		kind := p.of(m.shape, path+"_"+m.name)
		if !m.required {
			kind = "NotRequired[" + kind + "]"
		}
		if plain {
			fields = append(fields, "    "+m.name+": "+kind+"\n")
		} else {
			fields = append(fields, string(strictjson.Quote(m.name))+": "+kind)
		}
	}
	if plain {
		p.classes = append(p.classes, "\nclass "+name+"(TypedDict):\n"+strings.Join(fields, ""))
	} else {
		p.classes = append(p.classes, "\n"+name+` = TypedDict("`+name+`", {`+strings.Join(fields, ", ")+"})\n")
	}
	return name
}

func pythonLiteral(values []json.RawMessage) string {
	var list []string
	for _, v := range values {
		switch string(v) {
		case "true":
			list = append(list, "True")
		case "false":
			list = append(list, "False")
		case "null":
			list = append(list, "None")
		default:
			if kind := strictjson.KindOf(v); kind != "string" && !isWhole(v) || len(v) > 200 {
				return "Any"
			}
			list = append(list, strings.TrimSpace(string(v)))
		}
	}
	return "Literal[" + strings.Join(list, ", ") + "]"
}

func isWhole(v []byte) bool { return strings.Trim(string(v), "-0123456789") == "" && len(v) < 18 }

// union writes each choice of a union once. If one choice may be anything, so may the union.
func union(s *shape, anything string, of func(*shape) string) string {
	var list []string
	for _, one := range s.choices {
		kind := of(one)
		if kind == anything {
			return anything
		}
		if !slices.Contains(list, kind) {
			list = append(list, kind)
		}
	}
	if len(list) == 0 {
		return anything
	}
	return strings.Join(list, " | ")
}

var identifierForm = regex.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// odd reports whether Python cannot write the name of a member.
func (m member) odd() bool {
	return !isIdentifier(m.name) || slices.Contains(strings.Fields(reserved), m.name)
}

func isIdentifier(name string) bool { return len(name) <= 100 && identifierForm().MatchString(name) }

// typeScript writes functions as declarations.
func typeScript(all []function) string {
	var b strings.Builder
	b.WriteString("declare const tools: {\n")
	for _, group := range bySource(all) {
		b.WriteString("  " + group[0].source + ": {\n")
		for _, f := range group {
			b.WriteString(fitting(f, func(in, out *shape) (string, int) { return typeScriptFunction(f, in, out), 0 }))
		}
		b.WriteString("  };\n")
	}
	b.WriteString("};\n")
	return b.String()
}

func typeScriptFunction(f function, in, out *shape) string {
	lines := f.said(in)
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(l, "*/", "* /")
	}
	optional := "?"
	if slices.ContainsFunc(in.members, func(m member) bool { return m.required }) {
		optional = ""
	}
	if in.kind == "" {
		in = &shape{kind: "object", items: &shape{}}
	}
	return "    /** " + strings.Join(lines, "\n     * ") + " */\n    " + f.name + "(args" + optional + ": " +
		typeScriptType(in) + "): Promise<" + typeScriptType(out) + ">;\n"
}

func typeScriptType(s *shape) string {
	switch s.kind {
	case "string", "number", "boolean", "null":
		return s.kind
	case "integer":
		return "number"
	case "array":
		return "Array<" + typeScriptType(s.items) + ">"
	case "object":
		return typeScriptObject(s)
	case "literal":
		return typeScriptLiteral(s.literals)
	case "union":
		return union(s, "any", typeScriptType)
	}
	return "any"
}

func typeScriptObject(s *shape) string {
	if len(s.members) == 0 {
		return "Record<string, " + typeScriptType(s.items) + ">"
	}
	var list []string
	for _, m := range s.members {
		name := m.name
		if !isIdentifier(name) {
			name = string(strictjson.Quote(name))
		}
		if !m.required {
			name += "?"
		}
		list = append(list, name+": "+typeScriptType(m.shape))
	}
	return "{ " + strings.Join(list, "; ") + " }"
}

func typeScriptLiteral(values []json.RawMessage) string {
	var list []string
	for _, v := range values {
		kind := strictjson.KindOf(v)
		if kind == "object" || kind == "array" || len(v) > 200 {
			return "any"
		}
		list = append(list, strings.TrimSpace(string(v)))
	}
	return strings.Join(list, " | ")
}
