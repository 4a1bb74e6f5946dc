package all

import (
	"context"
	"encoding/json"

	"toolpost/protocol/machina"
	"toolpost/tool"
)

// Selected is the decision of an external policy, in the terms of the Machina contract, and what it means here: the
// tool to call and its arguments, if it picked one.
type Selected struct {
	machina.Selection
	AID    string          `json:"aid,omitempty"`
	Tool   string          `json:"tool,omitempty"`
	Inputs json.RawMessage `json:"inputs,omitzero"`
}

// Select lets a policy, an external program, choose among the tools that can be called now. request is the caller's id
// for the selection, if any.
func Select(
	ctx context.Context, command []string, c tool.Catalog, p tool.Principal, request string, inputs json.RawMessage,
) (Selected, error) {
	var specs []*tool.Spec
	for spec, err := range c.Specs(ctx, p) {
		if err == nil {
			specs = append(specs, spec)
		}
	}
	menu, err := machina.Menu(specs)
	if err != nil {
		return Selected{}, err
	}
	header := machina.Header(&tool.Call{ID: request})
	s, err := machina.Policy(command).Select(ctx, header, menu, inputs)
	if err != nil || s.Kind != machina.Pick {
		return Selected{Selection: s}, err
	}
	offer, err := machina.Picked(menu, s)
	if err != nil {
		return Selected{Selection: s}, err
	}
	merged, err := s.Inputs(inputs)
	return Selected{Selection: s, AID: offer.AID, Tool: offer.Name, Inputs: merged}, err
}
