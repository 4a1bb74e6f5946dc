// Package listing encodes a tool for a list of tools, the same for every door: its Spec, with "available" and, if it is
// not, the "reason".
package listing

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// state is the part of an entry beside the Spec.
type state struct {
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
}

// Encode writes the entry of a tool, with the reason why it cannot be called, or nil if it can. It never fails: a spec
// that cannot be written must not hide the others.
func Encode(s *tool.Spec, why error) json.RawMessage {
	b, err := strictjson.Marshal(s)
	if err != nil {
		why = fmt.Errorf("its description cannot be written as JSON: %w", err)
		b, _ = strictjson.Marshal(&tool.Spec{Name: s.Name, Source: s.Source, Protocol: s.Protocol})
	}
	now := state{Available: why == nil}
	if why != nil {
		now.Reason = strings.ToValidUTF8(tool.AsError(why).Message, "\uFFFD")
	}
	more, _ := strictjson.Marshal(now)
	return slices.Concat(b[:len(b)-1], []byte(","), more[1:]) // a spec always has members
}

// Decode reads an entry: the tool, and why it cannot be called.
func Decode(b []byte) (s *tool.Spec, why, err error) {
	s = new(tool.Spec)
	var now state
	if err = strictjson.Unmarshal(b, s); err == nil {
		err = strictjson.Unmarshal(b, &now)
	}
	if err != nil {
		return nil, nil, err
	}
	if !now.Available {
		why = &tool.Error{Code: tool.CodeUnavailable, Message: now.Reason}
	}
	return s, why, nil
}
