package modeltext

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Choosing is the ui_event with which a tool offers choices. It asks nothing: the player's choice is the next prompt.
const Choosing = "narrative_choice"

// A Choice is something that the player can say next.
type Choice struct {
	ID    string `json:"id"`
	Label string `json:"label" doc:"the next prompt, if this is chosen"`
	Hint  string `json:"hint,omitzero"`
}

// UnmarshalJSON reads a choice as tools write it: a text, or an object.
func (c *Choice) UnmarshalJSON(b []byte) error {
	type plain Choice
	*c = Choice{}
	into := any((*plain)(c))
	if strictjson.KindOf(b) == "string" {
		into = &c.Label
	}
	if err := strictjson.Unmarshal(b, into); err != nil {
		return err
	}
	c.ID, c.Label = cmp.Or(c.ID, c.Label), cmp.Or(c.Label, c.ID)
	if c.Label == "" {
		return tool.Errorf(tool.CodeInvalidInput, "a choice is a text, or has a label")
	}
	return nil
}

// String returns the choice as shown to the player.
func (c Choice) String() string {
	if c.Hint == "" {
		return c.Label
	}
	return c.Label + " (" + c.Hint + ")"
}

// Choices returns the choices that an event offers, or nil if it offers none.
func Choices(ev tool.UIEvent) []Choice {
	var payload struct {
		Choices []Choice `json:"choices"`
	}
	if ev.Event != Choosing || strictjson.Unmarshal(ev.Payload, &payload) != nil {
		return nil
	}
	return payload.Choices
}

// Bounds on what a model is told about choices.
const (
	maxChoices = 50
	maxLabel   = 300
)

// Offered describes to a model the choices in the data of a ui_event; it returns "" if there are none.
func Offered(data json.RawMessage) string {
	var ev tool.UIEvent
	if strictjson.Unmarshal(data, &ev) != nil {
		return ""
	}
	choices := Choices(ev)
	if len(choices) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("[choices; what the user chooses is the next prompt:")
	for i, c := range choices[:min(len(choices), maxChoices)] {
		text := c.String()
		fmt.Fprintf(&b, "\n%d. %s", i+1, tool.VisibleName(strings.ToValidUTF8(text[:min(len(text), maxLabel)], "")))
	}
	if more := len(choices) - maxChoices; more > 0 {
		fmt.Fprintf(&b, "\nand %d more", more)
	}
	return b.String() + "]"
}
