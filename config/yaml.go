package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// Bounds on what reaches the parser, whose time is not linear in them.
const (
	maxDepth   = 64
	maxIndent  = 256
	maxEntries = 10_000
)

// byteOrderMark begins every file that some editors write. It has no meaning.
const byteOrderMark = "\ufeff"

// A document is a parsed file that can show its lines in errors.
type document struct {
	path string
	data []byte
	root ast.Node // nil if the file is empty
}

// DecodeYAML reads another file that people write, such as a manifest, as strictly as a config: into a struct with yaml
// tags, within the same bounds, and with errors that name the position. A struct that may also be written as text alone
// implements encoding.TextUnmarshaler.
func DecodeYAML(path string, data []byte, into any) error {
	d, err := parse(path, data)
	if err != nil {
		return err
	}
	return d.explain(decodeFields(d.root, into))
}

// ParseYAML parses untrusted text into its root node, within the same bounds; the node is nil if the text is empty.
// Errors name line and column.
func ParseYAML(data []byte) (root ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil { // the lexer is trusted no more than the parser
			err = fmt.Errorf("not valid YAML: the lexer gave up: %v", p)
		}
	}()
	d, err := parse("", data)
	if err != nil {
		return nil, cmp.Or(errors.Unwrap(err), err)
	}
	return d.root, nil
}

func parse(path string, data []byte) (*document, error) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	d := &document{path: path, data: data}
	if len(data) > MaxSize {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: larger than %d bytes", path, MaxSize)
	}
	line := 1
	for text := range bytes.Lines(data) {
		if !utf8.Valid(text) {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s:%d: not valid UTF-8; save it as UTF-8", path, line)
		}
		line++
	}
	tokens := lexer.Tokenize(string(data))
	if err := checkTokens(tokens); err != nil {
		return nil, d.explain(err)
	}
	f, err := parseTokens(tokens)
	if err != nil {
		return nil, d.explain(err)
	}
	if len(f.Docs) > 1 {
		return nil, d.explain(faultAt(f.Docs[1], "a second document; expected only one"))
	}
	if len(f.Docs) == 1 {
		d.root = f.Docs[0].Body
	}
	return d, nil
}

// checkTokens refuses what has no place in a config, and whatever would keep the parser busy for a long time, before
// the parser sees it. Anchors and aliases are refused altogether: a few lines of them can stand for gigabytes.
func checkTokens(tokens token.Tokens) error {
	depth, entries, dashes, line := 0, 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return &fault{t.Position, "anchors, aliases and merge keys are not allowed here; write the value out"}
		case token.TagType:
			return &fault{t.Position, "tags are not allowed here; quote the value if it is text"}
		case token.MappingKeyType:
			return &fault{t.Position, "keys are plain text; `?` is not allowed here"}
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType:
			entries++
			dashes++
		case token.MappingValueType:
			entries++
		}
		if !utf8.ValidString(t.Value) {
			return &fault{t.Position, "an escape here stands for half a character"}
		}
		if depth+dashes > maxDepth || t.Position.IndentNum > maxIndent {
			return &fault{t.Position, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
		}
		if entries > maxEntries {
			return &fault{t.Position, fmt.Sprintf("more than %d entries", maxEntries)}
		}
	}
	return nil
}

// parseTokens does not trust the parser: an attacker may have written the file to make it panic.
func parseTokens(tokens token.Tokens) (f *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not valid YAML: the parser gave up: %v", p)
		}
	}()
	if f, err = parser.Parse(tokens, 0); err != nil {
		return nil, syntaxFault(err)
	}
	return f, nil
}

// syntaxFault takes message and position from the parser's error. The error's own Error method would print the source,
// in time that grows with its square.
func syntaxFault(err error) error {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil {
		return fmt.Errorf("not valid YAML: %w", err)
	}
	t, message := e.GetToken(), e.GetMessage()
	switch {
	case strings.Contains(message, "'\t'"):
		message = "the line begins with a tab; indent with spaces"
	case strings.HasPrefix(message, "tab character"):
		message = "there is a tab before this; write spaces"
	case isKey(t) && (strings.HasSuffix(message, "not allowed in this context") || message == "unexpected key name"):
		return misplaced(t)
	}
	return &fault{t.Position, "not valid YAML: " + message}
}

// misplaced explains a key that the parser does not expect, or a text whose last word is meant to be one: mostly it is not
// indented like the keys that it belongs to.
func misplaced(t *token.Token) error {
	at, name, above := *t.Position, t.Value, keyAbove(t)
	if colon := t.Next.Position; colon.Line > at.Line {
		i := strings.LastIndexByte(t.Value, ' ') + 1
		last := t.Value[i:]
		if key, value, ok := strings.Cut(strings.TrimSpace(t.Value[:i]), ":"); ok && (t.Prev == nil || t.Prev.Type != token.MappingValueType) {
			return &fault{&at, fmt.Sprintf("there is no space after a colon: write `%.40s: %.40s`", key, value)}
		}
		name, at.Line, at.Column = last, colon.Line, colon.Column-utf8.RuneCountInString(last)
	} else if t.Prev != nil && t.Prev.Type == token.MappingValueType && t.Prev.Position.Line == at.Line {
		return &fault{&at, "a value with a colon and a space in it needs quotes"}
	}
	switch {
	case above == nil:
		return &fault{&at, fmt.Sprintf("`%.40s` is not indented like the keys above it", name)}
	case strings.HasPrefix(above.Value, "-"):
		return &fault{above.Position, fmt.Sprintf("there is no space after a dash: write `- %.40s`", above.Value[1:])}
	}
	return &fault{&at, fmt.Sprintf("`%.40s` is not indented like `%.40s` above it: begin it in column %d if both belong to one entry",
		name, above.Value, above.Position.Column)}
}

// keyAbove returns the first key of the nearest line above a token that begins with one.
func keyAbove(t *token.Token) (key *token.Token) {
	for p := t.Prev; p != nil && key == nil; p = p.Prev {
		before := p.Prev
		for before != nil && before.Type == token.SequenceEntryType {
			before = before.Prev
		}
		if isKey(p) && (before == nil || before.Position.Line < p.Position.Line) {
			key = p
		}
	}
	return key
}

func isKey(t *token.Token) bool { return t.Next != nil && t.Next.Type == token.MappingValueType }

// A fault is a mistake at one position of the file.
type fault struct {
	at      *token.Position
	message string
}

// Error implements error, for decoding without a document.
func (f *fault) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", f.at.Line, f.at.Column, f.message)
}

func faultAt(n ast.Node, format string, args ...any) error {
	return &fault{position(n), fmt.Sprintf(format, args...)}
}

// position returns where a reader would say that n starts.
func position(n ast.Node) *token.Position {
	switch v := n.(type) {
	case nil:
		return &token.Position{Line: 1, Column: 1}
	case *ast.DocumentNode:
		switch {
		case v.Body != nil:
			return position(v.Body)
		case v.Start != nil:
			return v.Start.Position
		}
		return position(nil)
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return position(v.Values[0])
		}
	case *ast.MappingValueNode:
		return v.Key.GetToken().Position
	}
	return n.GetToken().Position
}

// explain turns a fault into an error for people: the file, the position, what is wrong, the line itself.
func (d *document) explain(err error) error {
	var f *fault
	switch {
	case err == nil:
		return nil
	case d == nil || !errors.As(err, &f):
		return tool.Errorf(tool.CodeInvalidInput, "%w", err)
	}
	at := f.at
	details, _ := strictjson.Marshal(map[string]any{"file": d.path, "line": at.Line, "column": at.Column})
	return &tool.Error{
		Code:    tool.CodeInvalidInput,
		Message: fmt.Sprintf("%s:%d:%d: %s%s", d.path, at.Line, at.Column, f.message, d.excerpt(at)),
		Details: details,
		Err:     err,
	}
}

// excerpt shows the line with a mark below the column. It leaves out a line that would not fit on a screen.
func (d *document) excerpt(at *token.Position) string {
	lines := bytes.SplitN(d.data, []byte("\n"), at.Line+1)
	if at.Line < 1 || at.Line > len(lines) {
		return ""
	}
	line := strings.TrimRight(string(lines[at.Line-1]), "\r")
	if line == "" || len(line) > 160 || strings.ContainsFunc(line, isControl) {
		return ""
	}
	line = keyInClear().ReplaceAllStringFunc(strings.ReplaceAll(line, "\t", " "), func(text string) string {
		before, value, _ := strings.Cut(text, ":")
		if key := strings.Trim(value, ` "'`); key == "pasted" || strings.Contains(key, "/") || isSecretName().MatchString(key) {
			return text
		}
		return before + ":" + strings.Repeat("*", len(value))
	})
	mark := strings.Repeat(" ", max(at.Column-1, 0))
	return fmt.Sprintf("\n%5d | %s\n      | %s^", at.Line, line, mark)
}

var (
	// keyInClear matches the field key with its value: the name of a secret, a file, or, by mistake, the key itself.
	keyInClear   = regex.Lazy(`\bkey["']?\s*:\s*("[^"]*"|'[^']*'|[^\s,}\]]+)`)
	isSecretName = regex.Lazy(`^[A-Z_]{1,40}$`)
)

func isControl(r rune) bool { return r != '\t' && (r < ' ' || 0x7f <= r && r < 0xa0) }
