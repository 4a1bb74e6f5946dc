package config

import (
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"toolpost/examples"
	"toolpost/internal/kit"
)

var memory = Fields{
	{"name", "memory"}, {"protocol", "mcp"}, {"command", []string{"/usr/bin/node", "a b", "-y", "yes", "1.0", "c: d", "{x}", "#", "é\n"}},
	{"walls", Fields{{"network", []string{"*.example.org"}}, {"off", true}}},
}

const memoryFlow = `{name: memory, protocol: mcp, command: [/usr/bin/node, "a b", "-y", "yes", "1.0", "c: d", "{x}", "#", "é\n"], walls: {network: ["*.example.org"], off: true}}`

func block(indent string) string {
	lines := []string{
		"- name: memory # of agents", "  protocol: mcp",
		`  command: [/usr/bin/node, "a b", "-y", "yes", "1.0", "c: d", "{x}", "#", "é\n"]`, `  walls: {network: ["*.example.org"], off: true}`,
	}
	return indent + strings.Join(lines, "\n"+indent) + "\n"
}

func TestASourceIsAddedAndTakenOutAgain(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"nothing", "", "sources:\n" + block("  ")},
		{"no sources", "# mine\ndoors: {http: {}} # open\n", "# mine\ndoors: {http: {}} # open\n\nsources:\n" + block("  ")},
		{"empty", "sources:\ndoors: {}\n", "sources:\n" + block("  ") + "doors: {}\n"},
		{"last", "sources:\n  - {name: a, protocol: builtin} # a\n", "sources:\n  - {name: a, protocol: builtin} # a\n" + block("  ")},
		{"no newline", "sources:\n- name: a\n  protocol: builtin", "sources:\n- name: a\n  protocol: builtin\n" + block("")},
		{
			"comments", "sources:\n    # first\n    - name: a\n      protocol: builtin\n    # - name: off\n\n# the doors\ndoors: {}\n",
			"sources:\n    # first\n    - name: a\n      protocol: builtin\n    # - name: off\n" + block("    ") + "\n# the doors\ndoors: {}\n",
		},
		{
			"apart", "sources:\n  - name: a\n    protocol: x\n\n  - name: b\n    protocol: y\n\ndoors: {}\n",
			"sources:\n  - name: a\n    protocol: x\n\n  - name: b\n    protocol: y\n\n" + block("  ") + "\ndoors: {}\n",
		},
		{
			"a long text", "sources:\n  - name: a\n    protocol: x\n    description: |\n      one\n\n      # two\ndoors: {}\n",
			"sources:\n  - name: a\n    protocol: x\n    description: |\n      one\n\n      # two\n" + block("  ") + "doors: {}\n",
		},
		{"brackets", "sources: [{name: é, protocol: x}] # all\ndoors: {}\n", "sources: [{name: é, protocol: x}, " + memoryFlow + "] # all\ndoors: {}\n"},
		{"empty brackets", "sources: []\n", "sources: [" + memoryFlow + "]\n"},
		{
			"brackets on lines", "sources: [\n  {name: a, protocol: x},\n  {name: b, protocol: y},\n]\n",
			"sources: [\n  {name: a, protocol: x},\n  {name: b, protocol: y}, " + memoryFlow + "\n]\n",
		},
		{"all in brackets", `{"sources": [{"name": "a", "protocol": "x"}]}`, `{"sources": [{"name": "a", "protocol": "x"}, ` + memoryFlow + `]}`},
	} {
		got, err := AddSource("t.yaml", []byte(c.before), "of agents", memory)
		if err != nil || string(got) != c.after {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got, c.after)
			continue
		}
		back, err := RemoveSource("t.yaml", got, "memory")
		want := c.before
		switch c.name {
		case "nothing":
			want = "sources:\n"
		case "no sources":
			want += "\nsources:\n"
		case "no newline":
			want += "\n"
		case "brackets on lines":
			want = strings.Replace(want, "y},\n", "y}\n", 1)
		}
		if err != nil || string(back) != want {
			t.Errorf("%s, taken out: %v\n%q\nwant\n%q", c.name, err, back, want)
		}
		if _, err := Parse("t.yaml", back); err != nil && !strings.Contains(err.Error(), "source name") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRemoveSourceRemovesOnlyTheNamedOne(t *testing.T) {
	const text = "sources:\n  # the first\n  - name: a\n    protocol: x # why\n\n  # the second\n  - name: b\n    protocol: y\n  - {name: c, protocol: z}\n"
	for name, want := range map[string]string{
		"a": "sources:\n  # the first\n\n  # the second\n  - name: b\n    protocol: y\n  - {name: c, protocol: z}\n",
		"b": "sources:\n  # the first\n  - name: a\n    protocol: x # why\n\n  # the second\n  - {name: c, protocol: z}\n",
		"c": "sources:\n  # the first\n  - name: a\n    protocol: x # why\n\n  # the second\n  - name: b\n    protocol: y\n",
	} {
		kit.Equal(t, string(kit.Must(RemoveSource("t.yaml", []byte(text), name))(t)), want, name)
	}
	kit.Fails(t, kit.Err(RemoveSource("t.yaml", []byte(text), "d")), `no source "d"`)
	got, err := RemoveSource("t.yaml", []byte("sources: [{name: a, protocol: x}, {name: b, protocol: y}, {name: c, protocol: z}]"), "b")
	if err != nil || string(got) != "sources: [{name: a, protocol: x}, {name: c, protocol: z}]" {
		t.Errorf("%v: %s", err, got)
	}
}

func TestSecretsAreAddedAndTakenOut(t *testing.T) {
	from := Fields{{"file", ".toolpost/secrets/KEY"}}
	for before, after := range map[string]string{
		"a: 1\n": "a: 1\n\nsecrets:\n  KEY: {file: .toolpost/secrets/KEY}\n",
		"secrets:\n  OTHER: {env: X} # x\nb: 1\n": "secrets:\n  OTHER: {env: X} # x\n  KEY: {file: .toolpost/secrets/KEY}\nb: 1\n",
		"secrets: {OTHER: {env: X}}\n":            "secrets: {OTHER: {env: X}, KEY: {file: .toolpost/secrets/KEY}}\n",
	} {
		// the field that AddEntry writes is a mapping in a mapping
		got, err := AddEntry("t.yaml", []byte(before), "secrets", "KEY", from)
		want := after
		if err != nil || string(got) != want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
			continue
		}
		back, err := RemoveEntry("t.yaml", got, "secrets", "KEY")
		if err != nil || string(back) != before {
			t.Errorf("taken out: %v\n%s", err, back)
		}
	}
}

func TestAddSourceRefusesAnUnknownLayout(t *testing.T) {
	for _, text := range []string{"{doors: {}}", "sources: ~\n", "sources: null\n", "sources: 7\n", "sources: {a: 1}\n"} {
		if got, err := AddSource("t.yaml", []byte(text), "", memory); err == nil {
			t.Errorf("%q became\n%s", text, got)
		} else if !strings.Contains(err.Error(), "by hand: {name: memory") && !strings.Contains(err.Error(), "t.yaml") {
			t.Errorf("%q: %v", text, err)
		}
	}
	kit.Fails(t, kit.Err(AddSource("t.yaml", []byte("sources: [\n"), "", memory)), "t.yaml:")
}

// Most people have the config that init writes.
func TestTheExampleKeepsItsComments(t *testing.T) {
	text := kit.Must(examples.Files.ReadFile("toolpost.yaml"))(t)
	got := kit.Must(AddSource("toolpost.yaml", text, "", memory))(t)
	for line := range strings.Lines(string(text)) {
		kit.Contains(t, string(got), line, "gone")
	}
	kit.Equal(t, string(kit.Must(RemoveSource("toolpost.yaml", got, "memory"))(t)), string(text))
}

func TestAnyTextSurvivesBeingWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.String()).Draw(t, "words")
		for i := range words {
			words[i] = strings.ToValidUTF8(words[i], "?")
		}
		source := Fields{{"name", "a"}, {"protocol", "mcp"}, {"command", words}}
		for _, before := range []string{"", "sources: []", "sources:\n- {name: b, protocol: c}\n"} {
			if _, err := AddSource("t.yaml", []byte(before), "", source); err != nil && !strings.Contains(err.Error(), "by hand") {
				t.Fatalf("%q: %v", words, err)
			}
		}
	})
}

func FuzzEdit(f *testing.F) {
	if text, err := os.ReadFile("../examples/toolpost.yaml"); err == nil {
		f.Add(string(text))
	}
	for _, seed := range []string{"", "sources: []", "sources:\n- name: a\n  protocol: b\n", "sources:\n", "a: |\n  x\nsources: [ ]", "\ufeffsources:\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := AddSource("t.yaml", []byte(text), "note", memory)
		if err != nil {
			return
		}
		if _, err := RemoveSource("t.yaml", got, "memory"); err != nil && !strings.Contains(err.Error(), "by hand") {
			t.Fatalf("%q: %v", got, err)
		}
	})
}
