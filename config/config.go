// Package config reads toolpost.yaml into typed values. It is strict: an unknown field, a duplicate
// key or a wrong type is an error that names the file, the line and the column.
package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml/ast"

	"toolpost/config/offlimits"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/regex"
)

// FileName is the default name of a config.
const FileName = "toolpost.yaml"

// MaxSize is the maximum size of a config file.
const MaxSize = 1 << 20

// A Config is a whole toolpost.yaml.
type Config struct {
	Path    string // the file it came from; empty for the defaults
	Dir     string // absolute; relative paths in the file start here
	Sources []Source
	Doors   []Door
	Limits  Limits
	Store   Section
	Secrets Section // a mapping of their names
	Callers Section
	State   string // the state folder as written in the file; empty to leave it to FindState

	state  string // absolute
	doc    *document
	others []other // entries for Section and Only, in the order of the file
}

// An other is an entry whose name this package does not know, at the top or among the limits.
type other struct {
	pair
	path    string // such as policy, or limits.quotas
	section Section
}

// Section returns the part of the file at a path, such as policy or limits.quotas. The code that reads it must also
// list it for Only and for Schema.
func (c *Config) Section(path string) Section {
	for _, o := range c.others {
		if o.path == path && !isNull(o.value) {
			return o.section
		}
	}
	return Section{}
}

// Digests returns the digests of the sections that other packages read, and of the callers, by their paths.
func (c *Config) Digests() map[string]string {
	all := map[string]string{}
	add := func(path string, s Section) {
		if len(s.value) > 0 {
			sum := sha256.Sum256(s.value)
			all[path] = hex.EncodeToString(sum[:8])
		}
	}
	for _, o := range c.others {
		add(o.path, o.section)
	}
	add("callers", c.Callers)
	return all
}

// Only refuses a file that has more than the package's own fields and the given sections. The stages of the engine
// bring theirs, so the file is read before it is known what may be in it.
func (c *Config) Only(sections []Part) error {
	for _, o := range c.others {
		if slices.ContainsFunc(sections, func(p Part) bool { return p.Name == o.path }) {
			continue
		}
		own, under := reflect.TypeFor[layout](), ""
		if strings.HasPrefix(o.path, underLimits) {
			own, under = reflect.TypeFor[Limits](), underLimits
		}
		var names []string
		for _, p := range sections {
			if name, ok := strings.CutPrefix(p.Name, under); ok && !strings.Contains(name, ".") {
				names = append(names, name)
			}
		}
		return c.doc.explain(unknownField(o.pair, fieldsOf(own), names))
	}
	return nil
}

// underLimits is the prefix of the paths of sections among the limits.
const underLimits = "limits."

// OwnSource is the source of Toolpost's own tools.
const OwnSource = tool.OwnSource

// SourceNames lists the sources that a rule can name.
func (c *Config) SourceNames() []string {
	names := []string{OwnSource}
	for _, s := range c.Sources {
		names = append(names, s.Name)
	}
	return names
}

// RuleSources are SourceNames; nil of a hub, whose rules can name sources of other nodes of its fleet.
func (c *Config) RuleSources() []string {
	if !c.Section("fleet").Equal(Section{}) {
		return nil
	}
	return c.SourceNames()
}

// A Source is an origin of tools. Its other fields belong to its protocol, which reads them with Decode into its own
// Options.
type Source struct {
	Name     string
	Protocol string
	Dir      string // Config.Dir
	State    string // Config.StateDir; empty means the folder beside the config
	Pin      string // on or off: whether the descriptions of its tools are pinned; empty means its protocol's default
	// Connections names the providers whose accounts the source's calls use, each that of its caller.
	Connections []string
	// Credentials describe the connections, without values. The code that opens the source sets them, and Equal ignores them.
	Credentials []*tool.Credential
	// Injector is set likewise, for one instance of a source with connections, and Equal ignores it.
	Injector Injector
	// Secrets returns the values of the secrets that the source's own fields name. The code that opens the source sets
	// it, and Equal ignores it; nil if there are none.
	Secrets Secrets
	// Redact is called with secrets that the source obtains itself, such as the tokens of a login, so that they are
	// redacted like those of the config. It is set likewise, and may be nil.
	Redact func(name, value string)
	// OffLimits lists what no tool of the source may see or change. It is set likewise, and Equal ignores it.
	OffLimits *offlimits.Checker
	// Engine is for tools of the source that call other tools. It is set likewise; if it is nil they can call none.
	Engine Engine

	entry Section // the whole of it
}

// A Problem is a part of a config that will not work, or not as intended.
type Problem struct {
	About string // such as door http, source files, secret KEY, rule no-deletes
	Err   error
}

// An Injector gives one instance of a source the credentials of the calls that run there. It is the one of host/walls.
type Injector interface {
	// Begin makes the credentials of a call available until it ends. The error refuses the call.
	Begin(c *tool.Call) (end func(), err error)
}

// An Engine runs the calls that tools make, each with its caller and its Parent, and lists what a caller may call. A
// call that needs an approval waits for it.
type Engine interface {
	tool.Handler
	tool.Catalog
}

// Secrets returns the values of secrets by name, or an error if one has no value.
type Secrets interface {
	Secret(name string) (string, error)
}

// Decode reads the fields of the source, other than name, protocol, pin and connections, into a struct with yaml tags. A field that
// the file leaves out keeps its value.
func (s Source) Decode(into any) error {
	return s.entry.doc.explain(decodeFields(s.entry.node, into, "name", "protocol", "pin", "connections"))
}

// Placed adds a position to an error of the source, unless it has one.
func (s Source) Placed(err error) error { return s.entry.placed(err, s.Name, s.Protocol) }

// Peek reads those fields of the source that a struct has, and ignores all others.
func (s Source) Peek(into any) error { return s.entry.doc.explain(decodeSome(s.entry.node, into)) }

// JSON returns the whole entry as JSON.
func (s Source) JSON() json.RawMessage { return s.entry.value }

// Equal reports whether two entries have the same content in the same order, whatever their layout and comments.
func (s Source) Equal(o Source) bool { return s.Dir == o.Dir && s.entry.Equal(o.entry) }

// A Door is an entrance for calls. Its fields belong to its protocol, which reads them with Decode.
type Door struct {
	Name string // http, nats

	key    ast.Node
	fields Section // without a node for the defaults
}

// Decode reads the fields of the door into a struct with yaml tags. A field that the file leaves out keeps its value.
func (d Door) Decode(into any) error { return d.fields.Decode(into) }

// Peek reads those fields of the door that a struct has, and ignores all others.
func (d Door) Peek(into any) error { return d.fields.doc.explain(decodeSome(d.fields.node, into)) }

// Equal reports whether two entries have the same content, whatever their layout and comments.
func (d Door) Equal(o Door) bool { return d.Name == o.Name && d.fields.Equal(o.fields) }

// Placed adds a position in the door to an error.
func (d Door) Placed(err error) error {
	if isNull(d.fields.node) {
		d.fields.node = d.key
	}
	return d.fields.placed(err)
}

// Check refuses an unknown door, or one with fields that it does not know.
func (d Door) Check(known []Part) error {
	var names []string
	for _, p := range known {
		if p.Name == d.Name {
			return d.Decode(reflect.New(reflect.TypeOf(p.Options)).Interface())
		}
		names = append(names, p.Name)
	}
	return d.fields.doc.explain(unknownField(pair{d.Name, d.key, d.fields.node}, nil, names))
}

// A Section is a part of the file whose fields belong to another package, which reads them with Decode.
// The zero value is a section that the file leaves out.
type Section struct {
	doc   *document
	node  ast.Node
	value json.RawMessage // the same as JSON, for Equal
}

// section returns a part of the file. It must be convertible to JSON, so that it can be compared.
func (d *document) section(n ast.Node) (Section, error) {
	value, err := toJSON(n)
	return Section{d, n, value}, err
}

// Decode reads the fields into a struct with yaml tags, or into a list of such structs, or a map of them by name. A
// field that the file leaves out keeps its value.
func (s Section) Decode(into any) error {
	if v := reflect.ValueOf(into).Elem(); v.Kind() != reflect.Struct {
		return s.doc.explain(decode(s.node, v))
	}
	return s.doc.explain(decodeFields(s.node, into))
}

// placed adds a position to an error about a part of the section, unless it has one: that of the longest value which the
// error quotes, other than those given, or else that of the section.
func (s Section) placed(err error, except ...string) error {
	if err == nil || s.doc == nil || strings.Contains(tool.AsError(err).Message, s.doc.path+":") {
		return err
	}
	about, longest, message := s.node, 2, tool.AsError(err).Message
	for n := range scalars(s.node) {
		whole, err := atHome(n)
		if t, ok := text(whole); err == nil && ok && len(t) > longest && !slices.Contains(except, t) && strings.Contains(message, t) {
			about, longest = n, len(t)
		}
	}
	return s.doc.explain(faultAt(about, "%s", message))
}

// Placed adds a position to an error about a part of the file, such as source files, rule no-deletes or secret KEY, unless
// it has one or there is no such part; see Problem.
func (c *Config) Placed(about string, err error) error {
	kind, name, _ := strings.Cut(about, " ")
	if _, of, ok := strings.Cut(name, " of "); ok {
		kind, name = "source", of // a tool of a source
	}
	path := strings.Fields(partsOf[kind])
	if len(path) == 0 {
		return err
	}
	n := c.doc.root
	for _, key := range path {
		in := n
		if n = child(in, key); n == in {
			return err
		}
	}
	part := child(n, name)
	if list, ok := n.(*ast.SequenceNode); ok {
		for _, entry := range list.Values {
			if called, ok := text(child(entry, "name")); ok && called == name {
				part = entry
			}
		}
	}
	return Section{doc: c.doc, node: part}.placed(err, name)
}

// partsOf lists where the parts are that problems are about, by the first word about them.
var partsOf = map[string]string{
	"source": "sources", "roots": "sources", "rule": "policy rules", "role": "callers roles", "caller": "callers list",
	"model": "models", "planner": "planners", "secret": "secrets", "door": "doors", "webhook": "notify webhooks", "store": "store",
	"connection": "connections", "provider": "identity oidc",
}

// Equal reports whether two sections have the same content, whatever their layout and comments.
func (s Section) Equal(o Section) bool { return bytes.Equal(s.value, o.value) }

// Limits are the defaults of the engine and of every door. Zero means their own defaults.
type Limits struct {
	Timeout Duration `yaml:"timeout" schema:"default=30s" doc:"time limit of a call whose tool sets none"`
	Drain   Duration `yaml:"drain" schema:"default=10s" doc:"how long a shutdown waits for calls in flight"`
}

// layout is the file as it is written, without the sections that others bring; see Config.Only.
type layout struct {
	Sources []entry `yaml:"sources" doc:"where tools come from"`
	Doors   *entry  `yaml:"doors" doc:"where calls come in; default: the HTTP door, with the MCP door on the same address"`
	Limits  *entry  `yaml:"limits" doc:"limits that apply to every call"`
	State   string  `yaml:"state" kind:"path" doc:"folder for everything that is written, except what a section names itself; default: .toolpost beside the config, or, if that cannot be written, a folder below $XDG_STATE_HOME/toolpost"`
	Store   *entry  `yaml:"store" doc:"where records, sessions, leases and jobs are kept; default: a SQLite file in the state folder"`
	Callers *entry  `yaml:"callers" doc:"who may call, and what each caller may use; default: only the owner of this folder"`
	Secrets *entry  `yaml:"secrets" doc:"secrets by name, and where each value comes from; a tool only gets the secrets that its source names"`
}

// An entry is a part of the file that is not decoded until its protocol does so.
type entry struct{ node ast.Node }

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (e *entry) UnmarshalYAML(n ast.Node) error {
	e.node = n
	return nil
}

// FromEnv reads a secret for a server from the environment variable that a config names; it returns "" if name is
// empty.
func FromEnv(name, what, server string) (string, error) {
	value := os.Getenv(name)
	if value == "" && name != "" {
		return "", tool.Errorf(tool.CodeUnavailable,
			"the environment variable %s, which should hold the %s for %s, is not set", name, what, server)
	}
	return value, nil
}

// Load reads a file.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	data, err := read(path, f)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

func read(path string, f *os.File) ([]byte, error) {
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, cannotRead(path, err)
	}
	return data, nil
}

func cannotRead(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &tool.Error{
			Code: tool.CodeInvalidInput, Message: path + ": no such config file; `toolpost init` writes one", Err: err,
		}
	}
	if errors.Is(err, syscall.EISDIR) {
		return tool.Errorf(tool.CodeInvalidInput, "%s is a folder; name the config file in it", path)
	}
	var why *fs.PathError
	if errors.As(err, &why) {
		err = why.Err
	}
	return tool.Errorf(tool.CodeInvalidInput, "%s: the config cannot be read: %w", path, err)
}

// Parse reads the content of a file; path is its location.
func Parse(path string, data []byte) (*Config, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	doc, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	c := &Config{Path: abs, Dir: filepath.Dir(abs), doc: doc}
	return c, doc.explain(c.read())
}

// Default returns the config of a start without a file: the built-in tools over dir, read-only.
func Default(dir string) *Config {
	const text = "sources: [{name: files, protocol: builtin, roots: [{path: .}]}]\n"
	c, err := Parse(filepath.Join(dir, FileName), []byte(text))
	if err != nil {
		panic(err) // the text is ours
	}
	c.Path = ""
	return c
}

func (c *Config) read() (err error) {
	var l layout
	if err := c.readSome(c.doc.root, &l, ""); err != nil {
		return err
	}
	if l.Limits != nil {
		if err := c.readSome(l.Limits.node, &c.Limits, underLimits); err != nil {
			return err
		}
	}
	for into, given := range map[*Section]*entry{&c.Store: l.Store, &c.Secrets: l.Secrets, &c.Callers: l.Callers} {
		if given == nil {
			continue
		}
		if *into, err = c.doc.section(given.node); err != nil {
			return err
		}
	}
	if err := checkSecretNames(c.Secrets.node); err != nil {
		return err
	}
	c.Doors = []Door{{Name: "http"}}
	if l.Doors != nil {
		if c.Doors, err = c.readDoors(l.Doors.node); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for _, e := range l.Sources {
		s, err := c.source(e.node)
		if err != nil {
			return err
		}
		if seen[s.Name] {
			return faultAt(child(e.node, "name"), "two sources are called %q; give one of them another name", s.Name)
		}
		seen[s.Name] = true
		c.Sources = append(c.Sources, s)
	}
	c.State = l.State
	if err := c.KeepStateIn(offlimits.Under(c.Dir, cmp.Or(l.State, StateName))); err != nil {
		return faultAt(child(c.doc.root, "state"), "%s", tool.AsError(err).Message)
	}
	return nil
}

// readSome reads the fields that a struct has, and keeps the others for Section and Only.
func (c *Config) readSome(n ast.Node, into any, under string) error {
	return decodeKnown(n, reflect.ValueOf(into).Elem(), func(p pair) error {
		s, err := c.doc.section(p.value)
		c.others = append(c.others, other{p, under + p.name, s})
		return err
	})
}

// secretName is the pattern for the name of a secret, which becomes the name of a variable.
const secretName = `^[A-Za-z_][A-Za-z0-9_]*$` //nolint:gosec // the shape of a name, not a secret

func checkSecretNames(n ast.Node) error {
	pairs, err := pairsOf(n)
	if err != nil {
		return err
	}
	valid := regexp.MustCompile(secretName)
	for _, p := range pairs {
		if !valid.MatchString(p.name) {
			return faultAt(p.key, "secret name %q: use letters, digits and _, no digit first", p.name)
		}
		if isNull(p.value) {
			return faultAt(p.key, "the secret %s has no source; say `env: VARIABLE`, `file: PATH` or "+
				"`command: [PROGRAM, ...]`", p.name)
		}
	}
	return nil
}

// anyDoor is the field that most doors have, for an example in errors.
type anyDoor struct {
	Listen string `yaml:"listen" kind:"listen"`
}

func (c *Config) readDoors(n ast.Node) (doors []Door, err error) {
	pairs, err := pairsOf(n)
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		if _, err := pairsLike(p.value, reflect.TypeFor[anyDoor]()); err != nil {
			return nil, err
		}
		fields, err := c.doc.section(p.value)
		if err != nil {
			return nil, err
		}
		doors = append(doors, Door{p.name, p.key, fields})
	}
	return doors, nil
}

var sourceName = regex.Lazy(`^[a-z0-9][a-z0-9_-]*$`)

// IsSourceName reports whether a source may have a name.
func IsSourceName(name string) bool { return sourceName().MatchString(name) }

func (c *Config) source(n ast.Node) (Source, error) {
	var head struct {
		Name        string   `yaml:"name"`
		Protocol    string   `yaml:"protocol"`
		Pin         string   `yaml:"pin"`
		Connections []string `yaml:"connections"`
	}
	if err := decodeSome(n, &head); err != nil {
		return Source{}, err
	}
	switch {
	case head.Name == "":
		return Source{}, missing(n, "name", "a source has no name; give it one, such as `name: files`")
	case !IsSourceName(head.Name):
		return Source{}, faultAt(child(n, "name"),
			"source name %q: use lower-case letters, digits, _ and -, a letter or digit first", head.Name)
	case head.Protocol == "":
		return Source{}, missing(n, "protocol",
			"source %q has no protocol; say what its tools speak, such as `protocol: mcp`", head.Name)
	case head.Pin != "" && head.Pin != "on" && head.Pin != "off":
		return Source{}, faultAt(child(n, "pin"), "pin is on or off, not %q", head.Pin)
	}
	entry, err := c.doc.section(n)
	return Source{Name: head.Name, Protocol: head.Protocol, Dir: c.Dir, Pin: head.Pin, Connections: head.Connections, entry: entry}, err
}

// missing reports that a field is missing, or which misspelt one is in its place.
func missing(n ast.Node, name, format string, args ...any) error {
	pairs, _ := pairsOf(n)
	for _, p := range pairs {
		if p.name != name && len(nearest.Of(p.name, []string{name})) > 0 {
			return unknownField(p, nil, []string{name})
		}
	}
	return faultAt(n, format, args...)
}
