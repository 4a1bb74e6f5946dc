package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/internal/kit"
)

type shelf struct {
	Tools map[string]*plank `yaml:"tools"`
}

type plank struct {
	Entry string `yaml:"entry"`
	Kind  string `yaml:"kind"`
}

func (p *plank) UnmarshalText(b []byte) error {
	p.Entry = string(b)
	return nil
}

func TestDecodeYAMLTakesTextForAStructThatAllowsIt(t *testing.T) {
	var got shelf
	kit.OK(t, config.DecodeYAML("x.yaml", []byte("tools:\n  a: one\n  b: {entry: two, kind: k}\n"), &got))
	want := shelf{map[string]*plank{"a": {Entry: "one"}, "b": {Entry: "two", Kind: "k"}}}
	kit.Equal(t, cmp.Diff(want, got), "")
}

func TestDecodeYAMLIsAsStrictAsAConfig(t *testing.T) {
	for text, want := range map[string]string{
		"tools:\n  a: {entri: x}":         `x.yaml:2:7: unknown field "entri"; did you mean "entry"?`,
		"tools: {a: x, a: y}":             "already defined",
		"tools: &x {a: *x}":               "not allowed",
		"tools: [a]":                      "x.yaml:1:8: expected a mapping",
		"tools: {}\n---\ntools: {}":       "second document",
		strings.Repeat("[", 10_000):       "nested deeper",
		"\xff":                            "not valid UTF-8",
		strings.Repeat("#", 2<<20) + "\n": "larger than",
	} {
		var into shelf
		kit.Fails(t, config.DecodeYAML("x.yaml", []byte(text), &into), want, text, want)
	}
}

// Invalid untrusted text is refused with the position, and without a file name, which the caller knows.
func TestParseYAMLSaysWhereItIsWrong(t *testing.T) {
	for text, want := range map[string]string{"a: [1": "line 1, column 4: ", "a: 1\na: 2\n": "line 2, column 1: ", "a: \"x": "line 1, column 4: "} {
		root, err := config.ParseYAML([]byte(text))
		if root != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error at %q", text, root, err, want)
		}
	}
	if root, err := config.ParseYAML(nil); root != nil || err != nil {
		t.Errorf("nothing: %v, %v", root, err)
	}
}
