package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// maxNeeds bounds the number of needs in one question.
const maxNeeds = 32

// sound checks a question before it is asked.
func sound(a *tool.Ask) error {
	if len(a.Needs) > maxNeeds {
		return fmt.Errorf("it is about %d things; %d is the most", len(a.Needs), maxNeeds)
	}
	if err := works("its schema", a.Schema); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, n := range a.Needs {
		switch {
		case n.Key == "" || seen[n.Key]:
			return fmt.Errorf("the key %.80q of a need is empty, or there twice", n.Key)
		case !slices.Contains([]tool.NeedKind{tool.NeedForm, tool.NeedLink, tool.NeedModel, tool.NeedRoots}, n.Kind):
			return fmt.Errorf("%.80q is of the kind %.40q; there are form, link, model and roots", n.Key, n.Kind)
		}
		seen[n.Key] = true
		if err := works("the schema of "+n.Key, n.Schema); err != nil {
			return err
		}
		if len(n.Params) > 0 && strictjson.CheckObject(n.Params) != nil {
			return fmt.Errorf("the params of %.80q must be an object", n.Key)
		}
	}
	return nil
}

func works(what string, raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	if _, err := schema.Compile(raw); err != nil {
		return fmt.Errorf("%s does not work: %w", what, err)
	}
	return nil
}

// check checks the answers of a call against the question, and returns only those that were asked for.
func (s *sealed) check(c *tool.Call) (json.RawMessage, error) {
	if len(c.Answers) == 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the question of %s came back without answers; send them along", c.Tool).Because(Invalid)
	}
	answers, err := c.Answers, s.match("", s.Schema, c.Answers)
	if len(s.Needs) > 0 {
		answers, err = s.each(c.Answers)
	}
	if err == nil {
		return answers, nil
	}
	e := tool.Errorf(tool.CodeInvalidInput, "the answers for %s: %w", c.Tool, err).Because(Invalid)
	if f, ok := errors.AsType[*faulty](err); ok {
		e.Details, _ = strictjson.Marshal(map[string]any{"faults": f.faults}) // marshals: only strings
	}
	return nil, e
}

// each checks the answers one by one, and drops those that were not asked for.
func (s *sealed) each(raw json.RawMessage) (json.RawMessage, error) {
	var given map[string]json.RawMessage
	if err := strictjson.Unmarshal(raw, &given); err != nil || given == nil {
		return nil, errors.New("they must be an object with a member for each thing that was asked")
	}
	kept := map[string]json.RawMessage{}
	for _, n := range s.Needs {
		answer, ok := given[n.Key]
		if !ok && n.Optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("%q is missing", n.Key)
		}
		if err := s.one(n, answer); err != nil {
			return nil, err
		}
		kept[n.Key] = answer
	}
	return strictjson.Marshal(kept)
}

// one checks one answer in the form of its kind.
func (s *sealed) one(n tool.Need, raw json.RawMessage) error {
	var said struct {
		Action  *string           `json:"action"`
		Content json.RawMessage   `json:"content"`
		Role    *string           `json:"role"`
		Model   *string           `json:"model"`
		Roots   []json.RawMessage `json:"roots"`
		Error   json.RawMessage   `json:"error"` // any kind: the caller could not be asked
	}
	if strictjson.KindOf(raw) != "object" || strictjson.Unmarshal(raw, &said) != nil {
		return fmt.Errorf("%q is not what is answered to a %s", n.Key, n.Kind)
	}
	if strictjson.KindOf(said.Error) == "object" && said.Action == nil && said.Content == nil {
		return nil // it says nothing else, which would have to fit
	}
	switch n.Kind {
	case tool.NeedForm, tool.NeedLink:
		if said.Action == nil || !slices.Contains([]string{tool.Accept, tool.Decline, tool.Cancel}, *said.Action) {
			return fmt.Errorf("the action of %q must be accept, decline or cancel", n.Key)
		}
		if n.Kind == tool.NeedLink || *said.Action != tool.Accept {
			return nil
		}
		if len(said.Content) == 0 {
			return fmt.Errorf("%q is accepted and has no content", n.Key)
		}
		return s.match("/"+n.Key+"/content", n.Schema, said.Content)
	case tool.NeedModel:
		if said.Role == nil || len(said.Content) == 0 || said.Model == nil {
			return fmt.Errorf("%q must have what a model says: role, content and model", n.Key)
		}
	case tool.NeedRoots:
		if said.Roots == nil {
			return fmt.Errorf("%q must have a list of roots", n.Key)
		}
	}
	return nil
}

// match checks JSON against a schema; without a schema everything matches.
func (s *sealed) match(at string, want, raw json.RawMessage) error {
	v, err := strictjson.Decode(raw)
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if len(want) == 0 {
		return nil
	}
	compiled, err := schema.Compile(want)
	if err != nil {
		return err
	}
	faults := compiled.Validate(v)
	if faults == nil {
		return nil
	}
	for i := range faults {
		faults[i].At = at + faults[i].At
	}
	return &faulty{faults}
}

// A faulty is the error of an answer that does not match its schema.
type faulty struct{ faults []schema.Fault }

func (f *faulty) Error() string { return schema.Words(f.faults) }
