package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"toolpost/config"
	"toolpost/host/notice"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A file has a plan for each prompt that it knows. It is the stub that the contract of Narratoria asks for, and enough
// for a story whose turns are all written down.
type file struct {
	path string

	mu     sync.Mutex
	seen   notice.Sight
	script *script // as of seen; nil if it was never read, or is invalid
}

// A script is the content of the file.
type script struct {
	Title    string   `yaml:"title"`
	Opening  string   `yaml:"opening"`
	Answers  []answer `yaml:"answers"`
	Fallback *answer  `yaml:"fallback"` // for any other prompt; nil means an error
}

// Validate checks the script as a whole.
func (s *script) Validate() error {
	if len(s.Answers) == 0 && s.Fallback == nil {
		return errors.New("there are no answers; write `answers: [{prompts: [...], plan: {...}}]`")
	}
	for i, a := range s.Answers {
		if len(a.Prompts) == 0 {
			return fmt.Errorf("answer %d has no prompts; for whatever else is said there is the fallback", i+1)
		}
	}
	if s.Fallback != nil && (s.Fallback.Prompts != nil || s.Fallback.When != nil) {
		return errors.New("the fallback has a plan alone: it is for whatever else is said, whenever")
	}
	return nil
}

// An answer is the plan for some prompts, if the state of the session matches.
type answer struct {
	Prompts []string               `yaml:"prompts"`
	When    map[string]config.JSON `yaml:"when"` // the value of the state at a path; null means none
	Plan    config.JSON            `yaml:"plan"` // Plan JSON, in which ${prompt} and ${state.PATH} are replaced

	prompts []tool.Glob
	when    map[string]any
	plan    *plan.Plan
}

// Validate prepares and checks the answer.
func (a *answer) Validate() error {
	for _, text := range a.Prompts {
		var g tool.Glob
		if err := g.UnmarshalText([]byte(plain(text))); err != nil {
			return fmt.Errorf("prompt %.80q: %w", text, err)
		}
		a.prompts = append(a.prompts, g)
	}
	a.when = map[string]any{}
	for path, value := range a.When {
		a.when[path] = nil
		if len(value) == 0 { // null
			continue
		}
		v, err := strictjson.Decode(value)
		if err != nil {
			return err
		}
		a.when[path] = v
	}
	made, err := decode(a.Plan)
	if err != nil {
		return errors.New(tool.AsError(err).Message)
	}
	a.plan = made
	for _, t := range made.Tools {
		if t.ID == "prompt" || t.ID == "state" {
			return fmt.Errorf("a toolId cannot be %q: ${%s} means something else; give it another name", t.ID, t.ID)
		}
	}
	return nil
}

// plain returns a prompt without what does not matter: case, spaces, and punctuation at its end.
func plain(prompt string) string {
	return strings.TrimRight(strings.ToLower(strings.Join(strings.Fields(prompt), " ")), ".!? ")
}

// Plan implements plan.Planner. It takes the first answer that fits. It skips an answer that uses a tool which has
// failed: a later one may do without it.
func (f *file) Plan(_ context.Context, r plan.Request) (*plan.Plan, error) {
	s, err := f.read()
	if err != nil {
		return nil, err
	}
	v, err := strictjson.Decode(r.State)
	state, _ := v.(map[string]any)
	if err != nil && len(r.State) > 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the state cannot be read: %w", err)
	}
	said := plain(r.Prompt)
	for i := range s.Answers {
		if a := &s.Answers[i]; a.fits(said, state) {
			if made, err := a.fill(r, state); err != nil || !uses(made, r.Disabled) {
				return made, err
			}
		}
	}
	if s.Fallback == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "it has no plan for %.80q; say something else, or add a fallback to %s",
			r.Prompt, f.path)
	}
	made, err := s.Fallback.fill(r, state)
	if err == nil && uses(made, r.Disabled) {
		return nil, tool.Errorf(tool.CodeUnavailable, "it has no plan for %.80q without %s", r.Prompt,
			strings.Join(r.Disabled, ", "))
	}
	return made, err
}

func uses(p *plan.Plan, disabled []string) bool {
	for _, t := range p.Tools {
		for _, d := range disabled {
			if d == t.Name || d == t.Path {
				return true
			}
		}
	}
	return false
}

func (a *answer) fits(said string, state map[string]any) bool {
	for path, want := range a.when {
		if !reflect.DeepEqual(at(state, path), want) {
			return false
		}
	}
	for _, p := range a.prompts {
		if p.Match(said) {
			return true
		}
	}
	return false
}

// at returns the value of the state at a path such as inventory.torch.lit, or nil.
func at(state map[string]any, path string) (v any) {
	v = state
	for name := range strings.SplitSeq(path, ".") {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

// fill makes the plan of an answer.
func (a *answer) fill(r plan.Request, state map[string]any) (*plan.Plan, error) {
	resolve := func(name string) (any, bool) {
		path, isState := strings.CutPrefix(name, "state.")
		switch {
		case name == "prompt":
			return r.Prompt, true
		case isState:
			return at(state, path), true
		}
		return nil, false // the output of another tool of the plan
	}
	made := *a.plan
	made.Narrative = text(made.Narrative, resolve)
	made.Tools = slices.Clone(made.Tools)
	for i, t := range made.Tools {
		if len(t.Input) == 0 {
			continue
		}
		v, err := strictjson.Decode(t.Input)
		if err != nil {
			return nil, err
		}
		// The prompt, or a tool's value in the state, is never taken for a reference itself.
		made.Tools[i].Input, err = strictjson.Marshal(filled(v, func(name string) (any, bool) {
			value, known := resolve(name)
			return literal(value), known
		}))
		if err != nil {
			return nil, err
		}
	}
	return &made, nil
}

// reference matches a reference in a text.
var reference = regex.Lazy(`\$\{[^{}]*\}`)

// filled returns a value with its references resolved. A text that is nothing but a reference becomes the value itself;
// a member of an object that would be nil is left out.
func filled(v any, resolve func(name string) (any, bool)) any {
	switch v := v.(type) {
	case map[string]any:
		next := make(map[string]any, len(v))
		for name, member := range v {
			if value := filled(member, resolve); value != nil || member == nil {
				next[name] = value
			}
		}
		return next
	case []any:
		next := make([]any, len(v))
		for i, item := range v {
			next[i] = filled(item, resolve)
		}
		return next
	case string:
		if v != "" && reference().FindString(v) == v {
			if value, known := resolve(v[2 : len(v)-1]); known {
				return value
			}
		}
		return text(v, resolve)
	}
	return v
}

// text returns a text with its references resolved.
func text(v string, resolve func(name string) (any, bool)) string {
	return reference().ReplaceAllStringFunc(v, func(ref string) string {
		value, known := resolve(ref[2 : len(ref)-1])
		if !known {
			return ref
		}
		return words(value)
	})
}

// outputs matches the beginning of a reference to a tool's output; with another $ in front, plan takes it literally.
var outputs = regex.Lazy(`\$\{[^{}]+?\.output`)

// literal returns a value whose texts are not references.
func literal(v any) any {
	switch v := v.(type) {
	case string:
		return outputs().ReplaceAllString(v, "$$$0")
	case []any:
		next := make([]any, len(v))
		for i, item := range v {
			next[i] = literal(item)
		}
		return next
	case map[string]any:
		next := make(map[string]any, len(v))
		for name, member := range v {
			next[name] = literal(member)
		}
		return next
	}
	return v
}

// words returns a value as part of a text.
func words(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	}
	b, _ := strictjson.Marshal(v) // it came from JSON
	return string(b)
}

// read returns the present content of the file. If a changed file has a mistake, that is an error; the earlier content
// is not used, because the author of a story wants to know.
func (f *file) read() (*script, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sight := notice.Look([]string{f.path})
	if f.script != nil && sight == f.seen {
		return f.script, nil
	}
	f.script = nil
	data, err := contents(f.path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", f.path, err)
	}
	s := new(script)
	if err := config.DecodeYAML(f.path, data, s); err != nil {
		return nil, err
	}
	f.script, f.seen = s, sight
	return s, nil
}

// mistakes returns why the file cannot be used, or which members of its plans have no effect. A plan may have unknown
// members if its planner may be newer than this program; in a file they are typing errors.
func (f *file) mistakes() error {
	s, err := f.read()
	if err != nil {
		return err
	}
	answers := s.Answers
	if s.Fallback != nil {
		answers = append(slices.Clone(answers), *s.Fallback)
	}
	for _, a := range answers {
		for _, one := range plan.Ignored(a.Plan) {
			return tool.Errorf(tool.CodeInvalidInput, "%s: the plan for %q: %s", f.path, strings.Join(a.Prompts, ", "), one)
		}
	}
	return nil
}

// contents reads a regular file. Anything that would block, such as a pipe, is refused.
func contents(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, tool.WithoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, tool.WithoutPath(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	return bounded.ReadDocument(f, config.MaxSize)
}
