package narratoria

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The ui_events that ask. The first is the contract's: a list of choices. The other is ours, for any question: a
// message and a JSON Schema of the answers, or several needs. The tool ends with done as ever, and is called again with
// what was answered as the answers of its request, and with the id of its question as resume. The id is the tool's to
// choose: it is a place for what it wants to know again, and nobody but the tool reads it.
const (
	eventChoice = "narrative_choice"
	eventAsk    = "ask"
)

// questionOf reads what an event asks; nil: it does not ask.
func questionOf(event string, payload []byte) (a *tool.Ask, err error) {
	switch event {
	case eventChoice:
		if a, err = readChoices(payload); err != nil {
			return nil, fmt.Errorf("this narrative_choice cannot be shown as choices: %w", err)
		}
	case eventAsk:
		if a, err = readAsk(payload); err != nil {
			return nil, fmt.Errorf("this question cannot be asked: %w", err)
		}
	default:
		return nil, nil
	}
	if a.ID == "" { // the same for the same question
		sum := sha256.Sum256(payload)
		a.ID = hex.EncodeToString(sum[:8])
	}
	return a, nil
}

func readAsk(payload []byte) (*tool.Ask, error) {
	a := &tool.Ask{}
	switch err := strictjson.Unmarshal(payload, a); {
	case strictjson.KindOf(payload) != "object":
		return nil, errors.New("its payload is not an object with a message and a schema, or with needs")
	case err != nil:
		return nil, fmt.Errorf("%.200s", err.Error())
	case a.Message == "" && len(a.Needs) == 0:
		return nil, errors.New("it has neither a message nor needs")
	}
	for i := range a.Needs {
		if a.Needs[i].Kind == "" {
			a.Needs[i].Kind = tool.NeedForm
		}
	}
	return a, nil
}

// A choice is a text, or an object that has one as its label. What is answered is its id, where it has one.
type choice struct {
	ID    *string `json:"id"`
	Label *string `json:"label"`
	Hint  *string `json:"hint"`
}

func (c *choice) read(b []byte) error {
	switch kind := strictjson.KindOf(b); {
	case kind == "string":
		return strictjson.Unmarshal(b, &c.Label)
	case kind != "object":
		return errors.New("must be a string or an object {id, label, hint}")
	case strictjson.Unmarshal(b, c) != nil:
		return errors.New("must have strings as id, label and hint")
	case c.Label == nil:
		return errors.New("has no label")
	}
	return nil
}

func (c *choice) value() string {
	if c.ID != nil {
		return *c.ID
	}
	return *c.Label
}

func (c *choice) title() string {
	if c.Hint != nil && *c.Hint != "" {
		return *c.Label + " (" + *c.Hint + ")"
	}
	return *c.Label
}

// readChoices makes a question of choices: which one. The answers are {"choice": ...}. What is asked is what done says.
func readChoices(payload []byte) (*tool.Ask, error) {
	var p struct {
		Choices []json.RawMessage `json:"choices"`
	}
	if strictjson.KindOf(payload) != "object" {
		return nil, errors.New("its payload is not an object with choices")
	}
	if err := strictjson.Unmarshal(payload, &p); err != nil || len(p.Choices) == 0 {
		return nil, errors.New("its payload has no list of choices")
	}
	type titled struct {
		Const string `json:"const"`
		Title string `json:"title"`
	}
	var values []string
	var titles []titled
	plain := true
	for i, raw := range p.Choices {
		var c choice
		if err := c.read(raw); err != nil {
			return nil, fmt.Errorf("choice %d %w", i+1, err)
		}
		values, titles = append(values, c.value()), append(titles, titled{c.value(), c.title()})
		plain = plain && c.value() == c.title()
	}
	which := map[string]any{"type": "string", "enum": values}
	if !plain {
		which = map[string]any{"type": "string", "oneOf": titles}
	}
	schema, err := strictjson.Marshal(map[string]any{
		"type": "object", "properties": map[string]any{"choice": which}, "required": []string{"choice"},
		"additionalProperties": false,
	})
	return &tool.Ask{Schema: schema}, err
}
