package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
)

type options struct {
	Command []string          `yaml:"command" kind:"path" doc:"what to run"`
	Env     map[string]string `yaml:"env"`
	Input   config.JSON       `yaml:"input"`
	Timeout config.Duration   `yaml:"timeout"`
	Grace   time.Duration     `yaml:"grace"`
	Tier    int               `yaml:"tier"`
	Ratio   float64           `yaml:"ratio"`
	Lenient bool              `yaml:"lenient"`
	Sandbox *bool             `yaml:"sandbox"`
	Walls   tool.Guarantees   `yaml:"guarantees"`
	Roots   []root            `yaml:"roots"`
	Memory  int64             `yaml:"memory" kind:"bytes"`
	Lines   int               `yaml:"lines" kind:"bytes"`
}

type root struct {
	Path  string `yaml:"path" kind:"path"`
	Write bool   `yaml:"write"`
}

const whole = `
sources:
  - name: torch
    protocol: narratoria
    command: [python3, "torch.py"]
    env: {LEVEL: "3"}
    input: {type: object, z: 1, a: 12345678901234567890.10, e: 1E400, list: [1, 2.50, ~, "x\u00e9"]}
    timeout: 500ms
    grace: 1.5s
    tier: 2
    ratio: 0.25
    lenient: true
    sandbox: false
    guarantees: {no_network: true, secrets_allowed: []}
    roots: [{path: ., write: true}]
limits: {timeout: 5s, drain: 1m30s}
doors: {http: {listen: "127.0.0.1:0", hosts: [box.local]}}
`

func mustParse(t *testing.T, text string) *config.Config {
	t.Helper()
	return kit.Must(config.Parse(filepath.Join(t.TempDir(), "toolpost.yaml"), []byte(text)))(t)
}

func TestAWholeFileIsRead(t *testing.T) {
	c := mustParse(t, whole)
	var o options
	kit.OK(t, c.Sources[0].Decode(&o))
	no := false
	want := options{
		Command: []string{"python3", "torch.py"}, Env: map[string]string{"LEVEL": "3"},
		Input:   config.JSON(`{"type":"object","z":1,"a":12345678901234567890.10,"e":1E400,"list":[1,2.50,null,"xé"]}`),
		Timeout: config.Duration(500 * time.Millisecond), Grace: 1500 * time.Millisecond,
		Tier: 2, Ratio: 0.25, Lenient: true, Sandbox: &no,
		Walls: tool.Guarantees{NoNetwork: true, SecretsAllowed: []string{}},
		Roots: []root{{Path: ".", Write: true}},
	}
	kit.Equal(t, cmp.Diff(want, o), "")
	if c.Limits.Timeout != config.Duration(5*time.Second) || c.Limits.Drain != config.Duration(90*time.Second) {
		t.Errorf("limits: %+v", c.Limits)
	}
	var d door
	if err := c.Doors[0].Decode(&d); err != nil || len(c.Doors) != 1 || c.Doors[0].Name != "http" || d.Listen != "127.0.0.1:0" || d.Hosts[0] != "box.local" {
		t.Errorf("doors: %+v, %+v, %v", c.Doors, d, err)
	}
}

// Every entry is a file and what its error must contain.
var refused = []struct{ name, text, want string }{
	{"unknown field, near miss", "sorces: []", `toolpost.yaml:1:1: unknown field "sorces"; did you mean "sources"?`},
	{"unknown field, far off", "frobnicate: 1", "known are sources, doors, limits"},
	{"the line is shown", "limits:\n  timeot: 1s", "\n    2 |   timeot: 1s\n      |   ^"},
	{"source without a name", "sources: [{protocol: x}]", "has no name"},
	{"source with a mistyped protocol", "sources: [{name: x, protokol: p}]", `:1:21: unknown field "protokol"; did you mean "protocol"?`},
	{"source without a protocol", "sources: [{name: x}]", `source "x" has no protocol`},
	{"two sources of one name", "sources:\n- {name: x, protocol: p}\n- {name: x, protocol: q}", `:3:10: two sources are called "x"`},
	{"name in capitals", "sources: [{name: Files, protocol: p}]", `source name "Files"`},
	{"name that is a path", "sources: [{name: ../x, protocol: p}]", "lower-case letters"},
	{"name that is a number", "sources: [{name: 12, protocol: p}]", "put it in quotes"},
	{"list at the top", "- a", "expected a mapping, such as `{sources: ...}`"},
	{"a tab", "sources:\n\t- {name: a}", ":2:1: not valid YAML: the line begins with a tab; indent with spaces"},
	{"text at the top", "hello", "expected a mapping"},
	{"sources as a mapping", "sources: {a: b}", "expected a list"},
	{"an empty item", "sources:\n  -\n", "empty item"},
	{"duplicate key", "limits: {}\nlimits: {}", `:2:1: not valid YAML: mapping key "limits" already defined`},
	{"duplicate key in a source", "sources: [{name: x, name: y, protocol: p}]", "already defined"},
	{"days too many", "limits: {timeout: 106752d}", "expected a time, such as 2s, 500ms or 30d"},
	{"bad time", "limits: {timeout: soon}", "expected a time, such as 2s"},
	{"negative time", "limits: {timeout: -1s}", "cannot be negative"},
	{"huge time", "limits: {timeout: 99999999999999999999s}", "expected a time"},
	{"time without a unit", "limits: {timeout: 30}", ":1:19: a time has a unit: write 30s for seconds; the units are ms, s, m, h and d"},
	{"quoted time without a unit", "limits: {timeout: '1.5'}", "write 1.5s"},
	{"anchor", "a: &x [1]", "anchors, aliases"},
	{"alias bomb", bomb(), "anchors, aliases"},
	{"merge key", "limits: {<<: {timeout: 1}}", "anchors, aliases and merge keys"},
	{"tag", "limits: !!map {}", "tags are not allowed"},
	{"two documents", "limits: {}\n---\nlimits: {}", "a second document"},
	{"an empty second document", "limits: {}\n---", ":2:1: a second document"},
	{"not YAML", "sources: [", "not valid YAML"},
	{"tab as indent", "sources:\n\t- a", "not valid YAML"},
	{"invalid UTF-8", "limits:\n  \xff", "toolpost.yaml:2: not valid UTF-8"},
	{"lone surrogate", `sources: [{name: a, protocol: "\ud800"}]`, "toolpost.yaml"},
	{"too large", strings.Repeat("#\n", config.MaxSize), "larger than 1048576 bytes"},
	{"deep flow", "limits: " + strings.Repeat("[", 50_000), "nested deeper"},
	{"deep dashes", strings.Repeat("- ", 50_000), "nested deeper"},
	{"deep maps", strings.Repeat("{a: ", 50_000), "nested deeper"},
	{"deep indent", deepIndent(), "nested deeper"},
	{"many keys", manyKeys(), "more than 10000 entries"},
	{"hexadecimal", "sources: [{name: a, protocol: p, x: 0x1f}]", "0x1f cannot be written as JSON"},
	{"not a number", "sources: [{name: a, protocol: p, x: .nan}]", "cannot be written as JSON"},
	{"a field too far in", "sources:\n  - name: a\n    protocol: p\n     roots: [b]",
		":4:6: `roots` is not indented like `protocol` above it: begin it in column 5 if both belong to one entry"},
	{"a field not far enough in", "sources:\n  - name: a\n  protocol: p", ":3:3: `protocol` is not indented like `name` above it: begin it in column 5"},
	{"a section with an indent", "limits: {timeout: 3s}\n sources: []", ":2:2: `sources` is not indented like `limits` above it: begin it in column 1"},
	{"no space after a colon", "sources:\n  - name:a\n    protocol: p", ":2:5: there is no space after a colon: write `name: a`"},
	{"no space after a dash", "sources:\n  -name: a\n   protocol: p", ":2:3: there is no space after a dash: write `- name`"},
	{"a key after a text", "a b\nc: d", ":2:1: `c` is not indented like the keys above it"},
	{"a colon in a value", "sources:\n  - name: a: b", ":2:11: a value with a colon and a space in it needs quotes"},
	{"entries without dashes", "sources:\n  name: a\n  protocol: p", ":2:3: expected a list, got a mapping; begin each entry with `- `"},
	{"a door that is a port", "doors: {http: 8700}", "expected a mapping, such as `{listen: 8700}`, got the number"},
	{"~ is null", "state: ~", ":1:8: ~ alone means nothing in YAML; write ~/ for your home folder"},
	{"key that is a number", "sources: [{name: a, protocol: p, x: {1: a}}]", "expected a string as a key"},
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	return b.String()
}

func deepIndent() string {
	var b strings.Builder
	for i := range 1000 {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func manyKeys() string {
	var b strings.Builder
	for i := range 80_000 {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	return b.String()
}

func TestErrorsNameTheirPlace(t *testing.T) {
	for _, c := range refused {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			cfg, err := config.Parse("toolpost.yaml", []byte(c.text))
			if err == nil {
				err = cfg.Only(nil)
			}
			if err == nil {
				t.Fatal("accepted")
			}
			kit.Contains(t, tool.AsError(err).Message, c.want)
			kit.Refused(t, err, tool.CodeInvalidInput, "")
			if d := time.Since(start); d > time.Minute {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestASourcesFaultsNameTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"comand: [a]":                            `toolpost.yaml:4:3: unknown field "comand"; did you mean "command"?`,
		"command: [sleep, 10]":                   `:4:20: expected a string, got the number "10"; put it in quotes`,
		"lenient: yes":                           `expected true or false, got the string "yes"`,
		"tier: 1.5":                              "expected a whole number",
		"tier: 9999999999999999999999":           "expected a whole number",
		"ratio: much":                            "expected a number",
		"guarantees: {no_netwrk: true}":          `did you mean "no_network"?`,
		"roots: [{path: .}, .]":                  "expected a mapping, such as `{path: .}`",
		"guarantees: [no_network]":               "expected a mapping, such as `{no_filesystem_read: true}`",
		"env: [A=1]":                             "expected a mapping, such as `{NAME: VALUE}`",
		"command: python3 x.py":                  `expected a list, got the string "python3 x.py"; write [python3, x.py]`,
		"env: {A: 1}":                            "expected a string",
		"lenient: 'on'":                          "; write true",
		"roots: .":                               ":4:10: expected a list, got the string \".\"; write [{path: .}]",
		"roots: {path: .}":                       "expected a list, got a mapping; put it in [ ]",
		"command: node\n  args: [-y, '@a/b', 3]": ":4:12: a command is one list, with its arguments: write `command: [node, -y, \"@a/b\", 3]`, and no args",
		"roots: [{path: ~}]":                     "~ alone means nothing in YAML",
		"memory: 512MB":                          ":4:11: a size is in bytes or has a unit such as MiB: write 512MiB",
		"memory: 1g":                             "write 1GiB",
		"memory: much":                           `expected a number of bytes, or a size such as 512MiB, got the string "much"`,
		"memory: 1.5":                            "expected a whole number",
		"memory: 9999999TiB":                     "too much",
		"memory: 99999999999999999999KiB":        "too much",
	} {
		t.Run(text, func(t *testing.T) {
			c, err := config.Parse("toolpost.yaml", []byte("sources:\n- name: a\n  protocol: p\n  "+text+"\n"))
			kit.OK(t, err)
			err = c.Sources[0].Decode(&options{})
			kit.Fails(t, err, want)
		})
	}
}

func TestWhatPeopleWriteIsUnderstood(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	c := mustParse(t, `
state: ~/state
sources:
  - {name: a, protocol: p, command: [~/bin/x, "~/data", a~/b, ~x], roots: [{path: ~/}, {path: "~"}, {path: ./~/x}], memory: 512MiB, lines: 2Ki}
doors: {http: {listen: 8700}}
`)
	var o options
	kit.OK(t, c.Sources[0].Decode(&o))
	want := options{
		Command: []string{"/home/ada/bin/x", "/home/ada/data", "a~/b", "~x"}, Roots: []root{{Path: "/home/ada"}, {Path: "/home/ada"}, {Path: "./~/x"}},
		Memory: 512 << 20, Lines: 2 << 10,
	}
	kit.Equal(t, cmp.Diff(want, o), "")
	kit.Equal(t, c.StateDir(), "/home/ada/state")
	var d door
	kit.OK(t, c.Doors[0].Decode(&d))
	kit.Equal(t, d.Listen, "127.0.0.1:8700")
	kit.Fails(t, c.Placed("source a", errors.New("/home/ada/bin/x is missing")), ":4:38: /home/ada/bin/x is missing")
	for written, want := range map[string]string{
		"sqlite:~/db": "sqlite:/home/ada/db", "sqlite:x~/db": "sqlite:x~/db", "https://x/~/": "https://x/~/",
	} {
		kit.Equal(t, kit.Must(config.AtHome(written))(t), want)
	}
	t.Setenv("HOME", "")
	kit.Fails(t, c.Sources[0].Decode(&o), "toolpost.yaml:4:38: ")
}

func TestProblemsOfAPartHaveAPlace(t *testing.T) {
	c := mustParse(t, `
sources: [{name: one, protocol: p}]
policy:
  rules:
    - {name: zero, tools: wrong}
    - {name: one, tools: [right, wrong]}
secrets: {KEY: {env: VARIABLE}}
models: [{name: one, url: here}]
`)
	for about, want := range map[string]string{
		"rule one": ":6:34: no \"wrong\"", "rule zero": ":5:27: ", "secret KEY": ":7:16: ", "tool x of one": ":2:11: ", "source one": ":2:11: ",
		"model one": ":8:10: ",
	} {
		kit.Fails(t, c.Placed(about, errors.New(`no "wrong"`)), want, about)
	}
	for _, about := range []string{"planner x", "store", "machine"} {
		kit.Equal(t, c.Placed(about, errors.New("why")).Error(), "why")
	}
}

// A door has the fields of some door.
type door struct {
	Listen string   `yaml:"listen" kind:"listen"`
	Hosts  []string `yaml:"hosts"`
}

func TestWithoutDoorsTheHTTPDoorIsThere(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "http",
		"sources: []":           "http",
		"doors: {http: }":       "http",
		"doors: {}":             "",
		"doors: {nats: {}}":     "nats",
		"doors: {b: {}, a: {}}": "b a",
	} {
		var got []string
		for _, d := range mustParse(t, text).Doors {
			got = append(got, d.Name)
			kit.Check(t, d.Decode(&door{}), text)
		}
		kit.Equal(t, strings.Join(got, " "), want, text, got)
	}
}

func TestMistakesInADoorNameTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"doors: {http: {hosts: a}}":    `expected a list, got the string "a"`,
		"doors: {http: {listen: [a]}}": "expected a string, got a list",
		"doors: {htp: {}}":             `toolpost.yaml:1:9: unknown field "htp"; did you mean "http"?`,
		"doors: {http: {lisen: a}}":    `unknown field "lisen"; did you mean "listen"?`,
	} {
		kit.Fails(t, mustParse(t, text).Doors[0].Check([]config.Part{{Name: "http", Options: door{}}}), want, text)
	}
}

func TestTheDefaultServesTheFolderReadOnly(t *testing.T) {
	dir := t.TempDir()
	c := config.Default(dir)
	var o options
	kit.OK(t, c.Sources[0].Decode(&o))
	if d := cmp.Diff([]root{{Path: "."}}, o.Roots); d != "" || c.Dir != dir || c.Path != "" {
		t.Errorf("%+v %s", c, d)
	}
}

func TestEqualIgnoresLayout(t *testing.T) {
	dir := t.TempDir()
	parse := func(text string) config.Source {
		c := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))(t)
		return c.Sources[0]
	}
	a := parse("sources: [{name: a, protocol: p, n: 1.0}]")
	if b := parse("# hello\nsources:\n  - name: 'a'\n    protocol: p\n    n: 1.0 # one\n"); !a.Equal(b) {
		t.Error("another layout is another source")
	}
	if b := parse("sources: [{name: a, protocol: p, n: 1.00}]"); a.Equal(b) {
		t.Error("another value is the same source")
	}
}

func TestLoadSaysWhyAFileCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	kit.Fails(t, kit.Err(config.Load(filepath.Join(dir, "no.yaml"))), "toolpost init")
	kit.Fails(t, kit.Err(config.Load(dir)), "is a folder")
	path := filepath.Join(dir, "toolpost.yaml")
	kit.OK(t, os.WriteFile(path, []byte(whole), 0o600))
	c, err := config.Load(path)
	if err != nil || c.Path != path || c.StateDir() != filepath.Join(dir, ".toolpost") {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestTheSchemaAcceptsWhatTheReaderAccepts(t *testing.T) {
	b, err := config.Schema([]config.Part{{Name: "narratoria", Doc: "events", Options: options{}}, {Name: "builtin", Options: struct{}{}}},
		[]config.Part{{Name: "http", Options: door{}}}, []config.Part{
			{Name: "secrets", Options: map[string]struct {
				Env  string `yaml:"env"`
				File string `yaml:"file"`
			}{}},
			{Name: "limits.quotas", Options: []struct {
				Name string `yaml:"name"`
				Rate int    `yaml:"rate"`
			}{}},
			{Name: "limits.tier", Doc: "how high", Options: 0},
			{Name: "policy", Options: section{}},
		})
	kit.OK(t, err)
	s := compile(t, b)
	for text, ok := range map[string]bool{
		whole:        true,
		"sorces: []": false,
		"sources: [{name: a, protocol: builtin}]":                  true,
		"sources: [{name: a, protocol: builtin, command: [a]}]":    false,
		"sources: [{name: A, protocol: builtin}]":                  false,
		"sources: [{name: a, protocol: elsewhere}]":                false,
		"sources: [{name: a, protocol: narratoria, comand: [a]}]":  false,
		"limits: {timeout: 5s}":                                    true,
		"limits: {timeout: [5]}":                                   false,
		"limits: {quotas: [{name: a, rate: 1}]}":                   true,
		"limits: {quotas: [{name: a, rat: 1}]}":                    false,
		"limits: {quotas: {name: a, rate: 1}}":                     false,
		"limits: {tier: 2}":                                        true,
		"limits: {tier: high}":                                     false,
		"doors: {http: {listen: 8700}}":                            true,
		"sources: [{name: a, protocol: narratoria, memory: 1MiB}]": true,
		"sources: [{name: a, protocol: narratoria, memory: [1]}]":  false,
		"policy: {most: 1}":                                        true,
		"policy: {moist: 1}":                                       false,
		"policy: {mood: bold}":                                     true,
		"policy: {mood: loud}":                                     false,
		"policy: {ways: down}":                                     true,
		"policy: {ways: [up, down]}":                               true,
		"policy: {ways: [up, left]}":                               false,
		"telemetry: {}":                                            false,
		"secrets: {A_1: {env: A}, b: {file: b}}":                   true,
		"secrets: {A: {env: A, file: b}}":                          false,
		"secrets: {A: {}}":                                         false,
		"secrets: {A: {evn: A}}":                                   false,
		"secrets: {1A: {env: A}}":                                  false,
	} {
		v := kit.Must(jsonschema.UnmarshalJSON(strings.NewReader(asJSON(t, text))))(t)
		if err := s.Validate(v); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	if !strings.Contains(string(b), `"what to run"`) || !strings.Contains(string(b), `"how high"`) {
		t.Error("the doc strings are missing")
	}
	kit.Contains(t, string(b), `"default": "calm"`, "the defaults are missing")
}

func compile(t *testing.T, b []byte) *jsonschema.Schema {
	t.Helper()
	doc := kit.Must(jsonschema.UnmarshalJSON(strings.NewReader(string(b))))(t)
	c := jsonschema.NewCompiler()
	kit.OK(t, c.AddResource("toolpost.json", doc))
	return c.MustCompile("toolpost.json")
}

// asJSON reads YAML by wrapping it in a source: config.JSON is the converter under test elsewhere.
func asJSON(t *testing.T, text string) string {
	t.Helper()
	indented := strings.ReplaceAll("\n"+text, "\n", "\n    ")
	c := mustParse(t, "sources:\n- name: a\n  protocol: p\n  doc:"+indented+"\n")
	var o struct {
		Doc config.JSON `yaml:"doc"`
	}
	kit.OK(t, c.Sources[0].Decode(&o))
	return string(o.Doc)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, c := range refused {
		if len(c.text) < 4096 {
			f.Add([]byte(c.text))
		}
	}
	f.Add([]byte("sources:\n- name: a\n  protocol: p\n  text: |\n\n- name: b\n  protocol: q\n  text: >-\n    x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Now()
		c, err := config.Parse("toolpost.yaml", data)
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%d bytes took %v", len(data), took)
		}
		if err != nil {
			return
		}
		for _, s := range c.Sources {
			_ = s.Decode(&options{})
			var all struct {
				Input config.JSON `yaml:"input"`
			}
			if s.Decode(&all) == nil && all.Input != nil && !json.Valid(all.Input) {
				t.Errorf("input is not JSON: %s", all.Input)
			}
		}
	})
}

// A word may be written alone in place of a list, and as a number too.
type word struct{ text string }

func (w *word) UnmarshalText(b []byte) error {
	if w.text = string(b); w.text == "bad" {
		return errors.New("that is a bad word")
	}
	return nil
}

type wordList []word

func (l *wordList) UnmarshalText(b []byte) error {
	*l = make(wordList, 1)
	return (*l)[0].UnmarshalText(b)
}

type section struct {
	Words wordList `yaml:"words"`
	Most  int      `yaml:"most"`
	Mood  string   `yaml:"mood" schema:"enum=calm|bold default=calm"`
	Ways  wordList `yaml:"ways" schema:"items.enum=up|down"`
}

func (s *section) Validate() error {
	if s.Most > 0 && len(s.Words) > s.Most {
		return errors.New("too many words")
	}
	return nil
}

func TestSectionIsDecodedIntoItsOwnType(t *testing.T) {
	for text, want := range map[string]string{
		"policy: {words: one}":        "[{one}]",
		"policy: {words: 5}":          "[{5}]",
		"policy: {words: [one, 2]}":   "[{one} {2}]",
		"policy:":                     "[]",
		"{}":                          "[]",
		"policy: {words: [one, bad]}": ":1:23: that is a bad word",
		"policy: {words: [[one]]}":    ":1:18: expected a string, got a list",
		"policy: {words: [{a: b}]}":   "expected a string, got a mapping",
		"policy: {words: {a: b}}":     "expected a list",
		"limits: {}\npolicy:\n  words: [a, b]\n  most: 1": ":3:3: too many words",
		"policy: {wrds: one}":                             `unknown field "wrds"; did you mean "words"?`,
	} {
		var s section
		got := ""
		if err := mustParse(t, text).Section("policy").Decode(&s); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(s.Words)
		}
		kit.Contains(t, got, want, text)
	}
	a, b := mustParse(t, "policy: {most: 1}"), mustParse(t, "policy:\n  most: 1 # the same")
	if !a.Section("policy").Equal(b.Section("policy")) || a.Section("policy").Equal(mustParse(t, "policy: {most: 2}").Section("policy")) || a.Section("policy").Equal(mustParse(t, "{}").Section("policy")) {
		t.Error("sections that say the same are not equal, or others are")
	}
	var tier int
	if err := mustParse(t, "limits: {timeout: 1s, tier: 3}").Section("limits.tier").Decode(&tier); err != nil || tier != 3 {
		t.Errorf("%d, %v", tier, err)
	}
}

func TestUnknownSectionsAreRefused(t *testing.T) {
	known := []config.Part{{Name: "policy"}, {Name: "limits.quotas"}}
	for text, want := range map[string]string{
		"policy: {}":                      "",
		"limits: {quotas: [], drain: 1s}": "",
		"limits: {}\npolcy: {}":           `toolpost.yaml:2:1: unknown field "polcy"; did you mean "policy"?`,
		"quotas: []":                      "known are sources, doors, limits, state, store, callers, secrets, policy",
		"limits: {policy: {}}":            ":1:10: unknown field \"policy\"; known are timeout, drain, quotas",
		"limits: {qoutas: []}":            `did you mean "quotas"?`,
		"limits: {quotas: [], frob: 1}":   "known are timeout, drain, quotas",
	} {
		err := mustParse(t, text).Only(known)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestATimeMayBeWrittenInDays(t *testing.T) {
	cfg, err := config.Parse("toolpost.yaml", []byte("limits: {timeout: 30d, drain: 1d12h}"))
	if err != nil || time.Duration(cfg.Limits.Timeout) != 720*time.Hour || time.Duration(cfg.Limits.Drain) != 36*time.Hour {
		t.Errorf("%v, %v, %v", cfg.Limits.Timeout, cfg.Limits.Drain, err)
	}
}

func TestAByteOrderMarkIsIgnored(t *testing.T) {
	cfg, err := config.Parse("toolpost.yaml", []byte("\ufeffsources: [{name: a, protocol: p}]\n"))
	if err != nil || len(cfg.Sources) != 1 {
		t.Fatal(cfg, err)
	}
	_, err = config.Parse("toolpost.yaml", []byte("\ufeffstate: [1]\n"))
	if err == nil || !strings.Contains(err.Error(), "toolpost.yaml:1:8: ") || strings.Contains(err.Error(), "\ufeff") {
		t.Errorf("the place of a mistake: %v", err)
	}
	text, err := config.AddSource("toolpost.yaml", []byte("\ufeffsources:\n- {name: a, protocol: p}\n"), "",
		config.Fields{{Name: "name", Value: "b"}, {Name: "protocol", Value: "p"}})
	if err != nil || !strings.HasPrefix(string(text), "\ufeffsources:\n- {name: a, protocol: p}\n") || !strings.Contains(string(text), "name: b") {
		t.Errorf("changed: %q, %v", text, err)
	}
}
