// Package appfile reads the files that describe a namel3ss app and its tools: app.ai, and the bindings in tools.yaml.
package appfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// DeclarationsFile is the file in which an app declares its tools.
const DeclarationsFile = "app.ai"

// A Declaration is a tool block of app.ai.
type Declaration struct {
	Name          string
	Description   string
	Kind          string // python or node; empty if not declared
	Purity        string // pure or impure; empty if not declared
	Timeout       time.Duration
	Input, Output *Shape // nil if not declared
	Problem       error  // why it cannot be used, or nil
	line          int    // of its header
}

// A Shape is an input or output block.
type Shape struct{ fields []field }

type field struct {
	name, typ string
	optional  bool
}

// schemas are the types of the language as JSON Schema. Older apps use other names for some types, which the language treats
// as synonyms: an int is any number.
var schemas = map[string]string{
	"text": `{"type":"string"}`, "string": `{"type":"string"}`, "str": `{"type":"string"}`,
	"number": `{"type":"number"}`, "int": `{"type":"number"}`, "integer": `{"type":"number"}`,
	"float": `{"type":"number"}`, "boolean": `{"type":"boolean"}`, "bool": `{"type":"boolean"}`,
	"list": `{"type":"array"}`, "map": `{"type":"object"}`, "json": `{}`,
}

// Arguments returns the shape of an input as JSON Schema, closed to fields that it does not list.
func (s *Shape) Arguments() json.RawMessage {
	if s == nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return append(bytes.TrimSuffix(s.Schema(), []byte("}")), `,"additionalProperties":false}`...)
}

// Schema returns the shape as JSON Schema and leaves it open: a result may have more fields.
func (s *Shape) Schema() json.RawMessage {
	if s == nil {
		return nil
	}
	var properties, required []string
	for _, f := range s.fields {
		name, _ := strictjson.Marshal(f.name) // valid UTF-8: the whole file was checked
		properties = append(properties, string(name)+":"+schemas[f.typ])
		if !f.optional {
			required = append(required, string(name))
		}
	}
	b := `{"type":"object","properties":{` + strings.Join(properties, ",") + `}`
	if len(required) > 0 {
		b += `,"required":[` + strings.Join(required, ",") + `]`
	}
	return json.RawMessage(b + "}")
}

// Parse reads the tool blocks of an app.ai, keyed by tool name, and ignores the rest of the language. A language error in a
// block becomes the Problem of that block's tool.
func Parse(data []byte) (tools map[string]*Declaration, err error) {
	if !utf8.Valid(data) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: not valid UTF-8; save it as UTF-8", DeclarationsFile)
	}
	p := &appParser{tools: map[string]*Declaration{}}
	for line := range bytes.Lines(data) {
		p.line++
		err := p.next(strings.TrimRight(string(line), "\r\n"))
		if err != nil && p.tool.Problem == nil {
			p.tool.Problem = err
		}
	}
	p.close()
	return p.tools, nil
}

type appParser struct {
	line  int
	col   int // of the first character that is not a space
	tools map[string]*Declaration

	tool   *Declaration // the current block, or nil
	shape  *Shape       // the current input or output block, or nil
	indent int          // of the line that opened shape
}

func (p *appParser) errorf(format string, args ...any) error {
	return tool.Errorf(tool.CodeInvalidInput, "%s:%d:%d: %s", DeclarationsFile, p.line, p.col, fmt.Sprintf(format, args...))
}

func (p *appParser) next(line string) error {
	line = withoutComment(line)
	words := strings.TrimSpace(line)
	if words == "" {
		return nil
	}
	indent := len(line) - len(strings.TrimLeft(line, " \t"))
	p.col = indent + 1
	switch {
	case indent == 0:
		p.close()
		if strings.HasPrefix(words, "tool ") {
			return p.open(words)
		}
		return nil
	case p.tool == nil:
		return nil
	case strings.Contains(line[:indent], "\t"):
		return p.errorf("indented with a tab; use spaces")
	case p.shape != nil && indent > p.indent:
		return p.field(words)
	}
	p.shape, p.indent = nil, indent
	return p.statement(words)
}

// close ends a block. A missing required statement is reported at the block's header.
func (p *appParser) close() {
	d := p.tool
	p.tool, p.shape = nil, nil
	if d == nil || d.Problem != nil {
		return
	}
	var missing string
	switch {
	case d.Kind == "":
		missing = "implementation; add a line such as `implemented using python`"
	case d.Input == nil:
		missing = "`input:` block; add one, with a line such as `name is text` for each field"
	case d.Output == nil:
		missing = "`output:` block; add one, with a line such as `message is text` for each field"
	default:
		return
	}
	d.Problem = tool.Errorf(tool.CodeInvalidInput, "%s:%d:1: tool %q has no %s", DeclarationsFile, d.line, d.Name, missing)
}

var toolHeader = regex.Lazy(`^tool\s+("(?:[^"\\]|\\.)*"|[^\s":]+)\s*(.*)$`)

// open starts a block. A block with a faulty header is kept so that its problem is listed; without a name it goes by its
// line.
func (p *appParser) open(words string) error {
	p.tool = &Declaration{line: p.line}
	m := append(toolHeader().FindStringSubmatch(words), "", "", "")
	name, err := strconv.Unquote(m[1])
	if err != nil {
		name = m[1]
	}
	if strings.TrimSpace(name) == "" || !utf8.ValidString(name) {
		name, m[2] = fmt.Sprintf("%s:%d", DeclarationsFile, p.line), ""
	}
	if first := p.tools[name]; first != nil {
		first.Problem = p.errorf("tool %q is declared twice", name)
		return nil
	}
	p.tool.Name, p.tools[name] = name, p.tool
	if err != nil || m[2] != ":" {
		return p.errorf("a tool block starts like this: tool \"greet someone\":")
	}
	return nil
}

// statement reads a line directly inside a tool block.
func (p *appParser) statement(words string) error {
	switch rest := ""; {
	case cut(words, "implemented using ", &rest):
		kind := strings.ToLower(unquoted(rest))
		if kind != KindPython && kind != KindNode {
			return p.errorf("tool %q is implemented using %q, which cannot be run here; python and node can",
				p.tool.Name, kind)
		}
		p.tool.Kind = kind
	case cut(words, "description is ", &rest):
		p.tool.Description = unquoted(rest)
	case cut(words, "purity is ", &rest):
		purity := strings.ToLower(unquoted(rest))
		if purity != "pure" && purity != "impure" {
			return p.errorf(`purity is "pure" or "impure", not %s`, rest)
		}
		p.tool.Purity = purity
	case cut(words, "timeout_seconds is ", &rest):
		d, err := Seconds(rest)
		if err != nil {
			return p.errorf("timeout_seconds: %v", err)
		}
		p.tool.Timeout = d
	case words == "input:":
		return p.block(&p.tool.Input)
	case words == "output:":
		return p.block(&p.tool.Output)
	default:
		return p.errorf("tool %q has an unknown line: %.80s; known are `implemented using`, `description is`, `purity is`, "+
			"`timeout_seconds is`, `input:` and `output:`", p.tool.Name, words)
	}
	return nil
}

// unquoted returns s without surrounding quotes, if it has any.
func unquoted(s string) string {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	return s
}

func cut(words, prefix string, rest *string) (found bool) {
	*rest, found = strings.CutPrefix(words, prefix)
	*rest = strings.TrimSpace(*rest)
	return found
}

func (p *appParser) block(into **Shape) error {
	if *into != nil {
		return p.errorf("tool %q has two such blocks", p.tool.Name)
	}
	*into = &Shape{}
	p.shape = *into
	return nil
}

var fieldLine = regex.Lazy(`^("(?:[^"\\]|\\.)*"|[^"]+?)\s+is\s+(.+)$`)

// field reads `name is type`, `name is optional type` or `name is type optional`. A name may have several words.
func (p *appParser) field(words string) error {
	m := fieldLine().FindStringSubmatch(words)
	if m == nil {
		return p.errorf("a field is written like this: name is text")
	}
	f := field{name: strings.Join(strings.Fields(m[1]), " ")}
	if strings.HasPrefix(f.name, `"`) {
		name, err := strconv.Unquote(m[1])
		if err != nil || !utf8.ValidString(name) {
			return p.errorf("%s is not a name for a field", f.name)
		}
		f.name = name
	}
	types := strings.Fields(m[2])
	if i := slices.Index(types, "optional"); i >= 0 {
		f.optional = true
		types = slices.Delete(types, i, i+1)
	}
	said := strings.Join(types, " ")
	if f.typ = strings.ToLower(said); schemas[f.typ] == "" {
		return p.errorf("field %s has the type %q; known are text, number, boolean, list, map and json", f.name, said)
	}
	if slices.ContainsFunc(p.shape.fields, func(o field) bool { return o.name == f.name }) {
		return p.errorf("field %s is declared twice", f.name)
	}
	p.shape.fields = append(p.shape.fields, f)
	return nil
}

// withoutComment cuts a line at a # that is not inside a string.
func withoutComment(line string) string {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '#' && !quoted:
			return line[:i]
		}
	}
	return line
}

// Seconds reads a positive number of seconds.
func Seconds(s string) (time.Duration, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("expected a number of seconds, got %.40q", s)
	}
	return FromSeconds(n)
}

// MaxTimeout is the longest time of a call. It keeps mistyped numbers from overflowing.
const MaxTimeout = 30 * 24 * time.Hour

// FromSeconds converts a positive number of seconds to a duration.
func FromSeconds(n float64) (time.Duration, error) {
	if !(n > 0 && n <= MaxTimeout.Seconds()) { // NaN fails both
		return 0, fmt.Errorf("expected more than 0 and at most %v seconds, got %v", MaxTimeout.Seconds(), n)
	}
	return time.Duration(n * float64(time.Second)), nil
}
