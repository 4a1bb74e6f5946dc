package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
	"golang.org/x/sys/unix"

	"toolpost/tool"
	"toolpost/wire/regex"
)

// Redacted replaces the parts of a file that are not shown.
const Redacted = "[redacted]"

// Shown returns the text of a config as it may be shown: without the values whose names suggest a secret, and without
// passwords in URLs. Lines keep their numbers. It works on tokens and not on the meaning of the file, so that a file
// with mistakes can be shown too; of a text that is not YAML at all it shows nothing.
//
// A config should not contain secrets but name them: `secrets`, and fields such as password_env. Shown is for configs
// that contain them.
func Shown(data []byte, speaksOfSecrets func(name string) bool) (text string) {
	defer func() {
		if recover() != nil { // the lexer is trusted no more than the parser
			text = ""
		}
	}()
	secret := func(name string) bool { return speaksOfSecrets(name) && !namesSecrets(name) }
	var b strings.Builder
	var flag, key bool // the next scalar is the value of a secret flag, of a secret key
	for _, t := range lexer.Tokenize(string(data)) {
		switch {
		case t.Type == token.CommentType:
			b.WriteString(inText(t.Origin, secret))
			continue
		case !isScalar(t):
			b.WriteString(t.Origin)
			continue
		case t.Next != nil && t.Next.Type == token.MappingValueType:
			key, flag = secret(t.Value), false
			b.WriteString(t.Origin)
			continue
		case (key || flag) && !strings.Contains(t.Value, "${secret:"):
			b.WriteString(blank(t.Origin))
		default:
			b.WriteString(inText(t.Origin, secret))
		}
		flag = strings.HasPrefix(t.Value, "-") && !strings.Contains(t.Value, "=") && secret(t.Value)
	}
	if strings.HasSuffix(string(data), "\n") && !strings.HasSuffix(b.String(), "\n") { // no token includes the last one
		b.WriteByte('\n')
	}
	return b.String()
}

// variable matches a reference to a variable, as shells have it.
var variable = regex.Lazy(`^\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))$`)

// InClear finds the values in env and headers of a source whose names suggest a secret, and values of env that are meant to
// be another variable's; each error says what to write instead, and not the value.
func (s Source) InClear(speaksOfSecrets func(name string) bool) (found []error) {
	fields, _ := pairsOf(s.entry.node)
	for _, field := range fields {
		if field.name != "env" && field.name != "headers" {
			continue
		}
		pairs, _ := pairsOf(field.value)
		for _, p := range pairs {
			value, _ := text(p.value)
			m := variable().FindStringSubmatch(value)
			var advice string
			switch {
			case field.name == "env" && m != nil:
				advice = fmt.Sprintf("the program gets %s as it is written: to pass on our own variable, write `pass_env: [%s]`", value, m[1]+m[2])
			case value == "" || strings.Contains(value, "${") || !speaksOfSecrets(p.name) || namesSecrets(p.name):
				continue
			case field.name == "env":
				advice = fmt.Sprintf("%s looks like a secret: keep it out of the file with `secrets: {%[1]s: {env: %[1]s}}` (or `file: PATH`) "+
					"at the top, and `secrets: [%[1]s]` in the source", p.name)
			default:
				advice = fmt.Sprintf("%s looks like a secret: keep it out of the file with `secrets: {KEY: {env: KEY}}` (or `file: PATH`) at the "+
					"top, and ${secret:KEY} in the header", p.name)
			}
			at := position(p.key)
			found = append(found, tool.Errorf(tool.CodeInvalidInput, "%s:%d:%d: %s", s.entry.doc.path, at.Line, at.Column, advice))
		}
	}
	return found
}

// namesSecrets reports whether a field is about secrets, such as where one is kept, and does not contain one.
func namesSecrets(name string) bool {
	for _, end := range []string{"_env", "_file", "_files", "secrets", "secrets_allowed", "_tier"} {
		if strings.HasSuffix(strings.ToLower(name), end) {
			return true
		}
	}
	return false
}

func isScalar(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.SingleQuoteType, token.DoubleQuoteType, token.IntegerType, token.FloatType,
		token.BoolType, token.NullType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType:
		return true
	}
	return false
}

// blank replaces the value of a scalar, and keeps the space around it and its line breaks.
func blank(origin string) string {
	trimmed := strings.TrimSpace(origin)
	before, after, _ := strings.Cut(origin, trimmed)
	return before + Redacted + strings.Repeat("\n", strings.Count(trimmed, "\n")) + after
}

var (
	passwordInURL = regex.Lazy(`(://[^/\s:@"']*:)[^@\s"']+@`)
	member        = regex.Lazy(`([\w.-]+)["']?\s*[:=]\s*([^\s,}\]]+)`)
)

// inText redacts what looks like a secret inside a text or a comment: a password in a URL, name=value.
func inText(text string, secret func(string) bool) string {
	text = passwordInURL().ReplaceAllString(text, "${1}"+Redacted+"@")
	return member().ReplaceAllStringFunc(text, func(found string) string {
		m := member().FindStringSubmatch(found)
		if m[1] == "secret" || !secret(m[1]) { // ${secret:NAME} names one
			return found
		}
		return strings.TrimSuffix(found, m[2]) + Redacted
	})
}

// Text returns the file as it was read, or nil if there was none.
func (c *Config) Text() []byte {
	if c.Path == "" {
		return nil
	}
	return c.doc.data
}

// Look reads a file as LoadTrusted does, and returns its text even if it is not a valid config.
func Look(path string) (text []byte, cfg *Config, err error) {
	cfg, err = LoadTrusted(path)
	if err == nil {
		return cfg.doc.data, cfg, nil
	}
	f, failed := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // do not wait for the writer of a pipe
	if failed != nil {
		return nil, nil, err
	}
	text, _ = read(path, f)
	return text, nil, err
}
