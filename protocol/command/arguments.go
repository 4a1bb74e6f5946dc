package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
	"toolpost/wire/typeschema"
)

// An argument is the part of an argument's schema that matters for a command line.
type argument struct {
	Type    schema.Types      `json:"type"`
	Format  string            `json:"format"`
	Enum    []json.RawMessage `json:"enum"`
	Const   json.RawMessage   `json:"const"`
	Items   *argument         `json:"items"` // of a list
	Default json.RawMessage   `json:"default"`
}

// formatPath is the format of an argument that is a path below the working folder.
const formatPath = "path"

// path reports whether the argument, or each of its items, is a path.
func (a *argument) path() bool { return a.Format == formatPath || a.Items != nil && a.Items.path() }

// closed reports whether no value of the argument can be mistaken for an option. This holds for numbers, choices, and paths,
// which begin with ./ on a command line.
func (a *argument) closed() bool {
	if a.Items != nil {
		return a.Items.closed()
	}
	number := func(t string) bool { return t == "integer" || t == "number" || t == "boolean" }
	return a.Enum != nil || a.Const != nil || a.path() ||
		len(a.Type) > 0 && !slices.ContainsFunc(a.Type, func(t string) bool { return !number(t) })
}

// A shortForm is an argument that is declared under arguments.
type shortForm struct {
	name   string
	schema json.RawMessage
}

// readArguments reads the short form: each argument with a schema, or with just the name of a type. It knows one type more
// than JSON Schema: path, a string that names a file or folder below the working folder.
func readArguments(raw json.RawMessage) (list []shortForm, err error) {
	err = strictjson.Object(raw, func(name, value []byte) error {
		one := shortForm{name: string(name)}
		if !placeholder().MatchString("{"+one.name+"}") || one.name == everything {
			return fmt.Errorf("%q cannot be the name of an argument; use letters, digits, _ and -", one.name)
		}
		long, err := longForm(value)
		if err == nil {
			one.schema, err = strictjson.Marshal(long)
		}
		if err != nil {
			return fmt.Errorf("the argument %s: %w", one.name, err)
		}
		list = append(list, one)
		return nil
	})
	return list, err
}

// longForm expands a short schema.
func longForm(value []byte) (any, error) {
	switch kind := strictjson.KindOf(value); kind {
	case "string":
		value = slices.Concat([]byte(`{"type":`), value, []byte(`}`))
	case "object":
	default:
		return nil, fmt.Errorf("expected a type, such as integer, or a schema, such as {type: integer, default: 10}, got %s", kind)
	}
	long := &typeschema.Object{}
	return long, strictjson.Object(value, func(name, member []byte) error {
		switch {
		case string(name) == "type" && string(member) == `"path"`:
			long.Set("type", "string").Set("minLength", 1).Set("format", formatPath)
		case string(name) == "items":
			items, err := longForm(member)
			long.Set("items", items)
			return err
		default:
			long.Set(string(name), json.RawMessage(member))
		}
		return nil
	})
}

// inputOf makes the schema of the arguments. An argument that the command line always uses, and that has no default, is
// required without having to be declared so.
func inputOf(list []shortForm, sure []string) (json.RawMessage, error) {
	properties, required := &typeschema.Object{}, []string{}
	for _, one := range list {
		properties.Set(one.name, one.schema)
		var about argument
		if err := strictjson.Unmarshal(one.schema, &about); err != nil {
			return nil, fmt.Errorf("the argument %s: %w", one.name, err)
		}
		if slices.Contains(sure, one.name) && about.Default == nil {
			required = append(required, one.name)
		}
	}
	input := (&typeschema.Object{}).Set("type", "object").Set("properties", properties)
	if len(required) > 0 {
		input.Set("required", required)
	}
	return strictjson.Marshal(input.Set("additionalProperties", false))
}

// readInput reads the arguments of a schema, and which of them are required.
func readInput(input json.RawMessage) (about map[string]*argument, required []string, err error) {
	if _, err := schema.Compile(input); err != nil {
		return nil, nil, err
	}
	var s struct {
		Properties map[string]*argument `json:"properties"`
		Required   []string             `json:"required"`
	}
	return s.Properties, s.Required, strictjson.Unmarshal(input, &s)
}

// values are the arguments of one call.
type values struct {
	about map[string]*argument
	given map[string]any // without nulls
	dir   string         // absolute, the base of relative paths
	paths []string       // the paths among the values that were used so far, absolute
}

// readValues reads the arguments of a call, and adds the defaults of missing ones.
func readValues(args json.RawMessage, about map[string]*argument, dir string) (*values, error) {
	v := &values{about: about, given: map[string]any{}, dir: dir}
	if len(args) > 0 {
		decoded, err := strictjson.Decode(args)
		given, ok := decoded.(map[string]any)
		if err == nil && !ok {
			err = fmt.Errorf("expected an object, got %s", strictjson.KindOf(args))
		}
		if err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments: %w", err)
		}
		v.given = given
	}
	for name, a := range about {
		if _, ok := v.given[name]; !ok && a != nil && a.Default != nil {
			value, err := strictjson.Decode(a.Default)
			if err != nil {
				return nil, tool.Errorf(tool.CodeInvalidInput, "the default of %s: %w", name, err)
			}
			v.given[name] = value
		}
	}
	for name, value := range v.given {
		if value == nil {
			delete(v.given, name)
		}
	}
	return v, nil
}

// has reports whether a piece is used: a list needs all of its arguments, and an empty list counts as not given.
func (v *values) has(p Piece) (bool, error) {
	for _, w := range p {
		for _, part := range w.parts {
			value, given := v.given[part.name]
			list, isList := value.([]any)
			switch {
			case part.name == "":
			case p.always() && !given:
				return false, tool.Errorf(tool.CodeInvalidInput, "the argument %s is missing", part.name)
			case p.always():
			case !given, isList && len(list) == 0, part.only && (value == false || value == ""):
				return false, nil
			}
		}
	}
	return true, nil
}

// texts returns the value of an argument: one text, or one for each item of a list.
func (v *values) texts(name string) ([]string, error) {
	about := v.about[name]
	list, ok := v.given[name].([]any)
	if !ok {
		list = []any{v.given[name]}
	} else if about != nil && about.Items != nil {
		about = about.Items
	}
	texts := make([]string, 0, len(list))
	for _, item := range list {
		text, err := textOf(item)
		if err == nil && about != nil && about.path() {
			text, err = v.local(text)
		}
		if err != nil {
			e := *tool.AsError(err)
			e.Message = "the argument " + name + ": " + e.Message
			return nil, &e
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// textOf returns a value as text: strings and numbers verbatim, everything else as JSON.
func textOf(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case json.Number:
		return value.String(), nil
	}
	b, err := strictjson.Marshal(value)
	return string(b), err
}

// local returns a path in the form of the command line. It is below the working folder and begins with ./, so that no
// program takes it for an option (-x), a script (+x), a list of arguments (@x), an assignment (x=y), a machine (x:y), an
// expression or a URL. The walls check the targets of links in the folder, because they apply when the program opens the
// path.
func (v *values) local(value string) (string, error) {
	rel := value
	if filepath.IsAbs(value) {
		var err error
		if rel, err = filepath.Rel(v.dir, value); err != nil {
			rel = value
		}
	}
	switch {
	case value == "":
		return "", tool.Errorf(tool.CodeInvalidInput, "it is empty; name a file or a folder")
	case strings.ContainsRune(value, 0):
		return "", tool.Errorf(tool.CodeInvalidInput, "it has a NUL byte, which no path can have")
	case !filepath.IsLocal(rel):
		return "", tool.Errorf(tool.CodeAccessDenied, "%.80q is outside the working folder of the tool; "+
			"give a path in it, from there", value).Because("outside")
	}
	v.paths = append(v.paths, filepath.Join(v.dir, rel))
	text := "./" + filepath.Clean(rel)
	if strings.HasSuffix(value, "/") {
		text += "/"
	}
	return text, nil
}

// input returns the standard input of the program: strings verbatim, everything else as JSON.
func (v *values) input(p Piece, args json.RawMessage) ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	v.given[everything] = json.RawMessage(cmp.Or(string(args), "{}"))
	defer delete(v.given, everything)
	if there, err := v.has(p); err != nil || !there {
		return nil, err
	}
	var all []byte
	for _, part := range p[0].parts {
		text := part.text
		if part.name != "" && !part.only {
			var err error
			if text, err = textOf(v.given[part.name]); err != nil {
				return nil, err
			}
		}
		all = append(all, text...)
	}
	return all, nil
}
