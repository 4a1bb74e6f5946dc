package plan

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A reference is replaced by the output of another tool: ${toolId.output}, or a part of it,
// ${toolId.output.list.0.name}. A string that is nothing but a reference becomes the value, whatever its kind; a
// reference within a longer string becomes text. Any other ${...} is left alone, because it may mean something to the
// tool; $${ is a ${ that begins no reference.
type reference struct {
	tool string
	path []string
}

// referring matches what may be a reference: an escape in front, the id, the path.
var referring = regex.Lazy(`\$?\$\{([^{}]+?)\.output((?:\.[^.{}]+)*)\}`)

func (r reference) String() string {
	return "${" + strings.Join(append([]string{r.tool, "output"}, r.path...), ".") + "}"
}

// A template is an input that may have references.
type template struct {
	value any         // as strictjson.Decode returns it; strings may have references
	refs  []reference // in no order
	at    []string    // JSON pointers to the strings with references
}

// templateOf finds the references of an input.
func templateOf(input json.RawMessage) (*template, error) {
	if len(input) == 0 {
		input = json.RawMessage(`{}`)
	}
	v, err := strictjson.Decode(input)
	if err != nil {
		return nil, err
	}
	t := &template{value: v}
	t.find(v, "")
	return t, nil
}

func (t *template) find(v any, at string) {
	switch v := v.(type) {
	case string:
		found := false
		_ = eachReference(v, func(r reference) (string, error) {
			t.refs, found = append(t.refs, r), true
			return "", nil
		})
		if found || strings.Contains(v, "$${") {
			t.at = append(t.at, at)
		}
	case map[string]any:
		for name, member := range v {
			t.find(member, at+"/"+escaped.Replace(name))
		}
	case []any:
		for i, item := range v {
			t.find(item, at+"/"+strconv.Itoa(i))
		}
	}
}

// escaped escapes a name for a JSON pointer.
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

// eachReference calls by for each reference of a text.
func eachReference(text string, by func(reference) (string, error)) error {
	_, err := expand(text, by)
	return err
}

func expand(text string, by func(reference) (string, error)) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	var failed error
	text = referring().ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "$$") {
			return found[1:]
		}
		with, err := by(parsed(found))
		if err != nil && failed == nil {
			failed = err
		}
		return with
	})
	return text, failed
}

func parsed(found string) reference {
	m := referring().FindStringSubmatch(found)
	r := reference{tool: m[1]}
	if m[2] != "" {
		r.path = strings.Split(m[2][1:], ".")
	}
	return r
}

// whole returns the reference in a string that is nothing else.
func whole(text string) (reference, bool) {
	at := referring().FindStringIndex(text)
	if at == nil || at[0] != 0 || at[1] != len(text) || strings.HasPrefix(text, "$$") {
		return reference{}, false
	}
	return parsed(text), true
}

// strictNumber is a number as strictjson.Decode returns it.
const strictNumber = json.Number("0")

// standing returns the input with a value in place of each reference.
func (t *template) standing(value any) any {
	all := filling{of: func(string) any { return anything{value} }, room: math.MaxInt} // it has every part
	v, _ := all.in(t.value)
	return v
}

// anything is an output in which every part is the same value.
type anything struct{ value any }

// absent is the value of a reference to a tool that failed and was optional.
type absent struct{}

// filled returns the arguments, with references replaced by their values. of returns the output of a tool, or absent.
//
// A reference to an optional tool that failed is dropped, so that a tool that depends on it runs as if the argument had
// not been given: a member of an object is left out, an item of a list is null, and within a text it is empty. A part
// that is not in an output is an error: the tool ran, and its output is not what the plan expects.
func (t *template) filled(of func(toolID string) any) (json.RawMessage, error) {
	one := filling{of: of, room: MaxBytes}
	v, err := one.in(t.value)
	if err != nil {
		return nil, err
	}
	return strictjson.Marshal(v)
}

// A filling replaces references by values. A reference is short but can be as large as the output of a tool, and a plan
// has room for a million of them. So the values have their own limit, that of a document at a door.
type filling struct {
	of   func(toolID string) any
	room int // bytes that are left
}

func (f *filling) in(v any) (any, error) {
	switch v := v.(type) {
	case string:
		if r, ok := whole(v); ok {
			return f.value(r)
		}
		return expand(v, func(r reference) (string, error) {
			found, err := f.value(r)
			if err != nil {
				return "", err
			}
			return textOf(found)
		})
	case map[string]any:
		with := make(map[string]any, len(v))
		for name, member := range v {
			one, err := f.in(member)
			if err != nil {
				return nil, err
			}
			if one != (any)(absent{}) {
				with[name] = one
			}
		}
		return with, nil
	case []any:
		with := make([]any, len(v))
		for i, item := range v {
			one, err := f.in(item)
			if err != nil {
				return nil, err
			}
			if one != (any)(absent{}) {
				with[i] = one
			}
		}
		return with, nil
	}
	return v, nil
}

// value returns the value of a reference, if there is room for it.
func (f *filling) value(r reference) (any, error) {
	if f.room < 0 { // an earlier one was too large; a text continues with its other references
		return nil, errTooMuch
	}
	v, err := r.in(f.of(r.tool))
	if err != nil {
		return nil, err
	}
	if f.room -= weight(v, f.room); f.room < 0 {
		return nil, errTooMuch
	}
	return v, nil
}

var errTooMuch = tool.Errorf(tool.CodeInvalidInput,
	"its references stand for more than %d bytes, which is more than arguments may have", MaxBytes).Because("too_large")

// weight returns roughly the length of a value as JSON, or a number above most.
func weight(v any, most int) int {
	n := 2 // for its brackets, its quotes, or its comma
	switch v := v.(type) {
	case string:
		n += len(v)
	case json.Number:
		n += len(v)
	case map[string]any:
		for name, member := range v {
			if n += len(name) + 3; n > most {
				break
			}
			n += weight(member, most-n)
		}
	case []any:
		for _, item := range v {
			if n > most {
				break
			}
			n += weight(item, most-n)
		}
	}
	return n
}

func textOf(v any) (string, error) {
	switch v := v.(type) {
	case absent:
		return "", nil
	case string:
		return v, nil
	}
	b, err := strictjson.Marshal(v)
	return string(b), err
}

// in returns the part of an output that a reference names.
func (r reference) in(v any) (any, error) {
	switch v := v.(type) {
	case absent:
		return v, nil
	case anything:
		return v.value, nil
	}
	for i, name := range r.path {
		var ok bool
		switch of := v.(type) {
		case map[string]any:
			v, ok = of[name]
		case []any:
			n, err := strconv.Atoi(name)
			if ok = err == nil && n >= 0 && n < len(of); ok {
				v = of[n]
			}
		}
		if !ok {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s has no value: the output of %s has no %s", r, r.tool,
				strings.Join(r.path[:i+1], ".")).Because("unresolved_reference")
		}
	}
	return v, nil
}
