package machina

import (
	"encoding/json"
	"fmt"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An answer is a reply or a refusal, as a host reads it.
type answer struct {
	refusal
	OK         *bool           `json:"ok"`
	Status     string          `json:"status"`
	OutputJSON json.RawMessage `json:"output_json"`
	Hit        bool            `json:"idempotent_hit"`
	DSState    json.RawMessage `json:"ds_state"`

	output json.RawMessage
	state  *change
}

// decodeAnswer reads what a toolhost said and checks all that it says.
func decodeAnswer(line []byte) (*answer, error) {
	a := &answer{}
	if err := strictjson.Unmarshal(line, a); err != nil {
		return nil, err
	}
	switch a.Status {
	case "":
		if a.OK == nil {
			return nil, fmt.Errorf("it has neither status nor ok")
		}
	case statusOK, statusToolError, statusInvalidPick, statusBreakerTrip:
	default:
		return nil, fmt.Errorf("its status %.40q is unknown", a.Status)
	}
	var err error
	if a.output, err = decodeOutput(a.OutputJSON); err != nil {
		return nil, fmt.Errorf("its output_json: %w", err)
	}
	if a.state, err = decodeChange(a.DSState); err != nil {
		return nil, fmt.Errorf("its ds_state: %w", err)
	}
	return a, nil
}

// decodeOutput reads an output_json, which is whatever the tool returned: JSON in a string, as the contract has it, or
// text that is no JSON, or not even a string. Nothing of it is the toolhost's fault.
func decodeOutput(raw json.RawMessage) (json.RawMessage, error) {
	switch strictjson.KindOf(raw) {
	case "nothing", "null":
		return nil, nil
	case "string":
		said := unquoted(raw)
		if len(said) == 0 {
			return nil, nil
		}
		if strictjson.Check(said) != nil {
			return strictjson.Marshal(string(said))
		}
		return said, nil
	}
	return raw, nil
}

// dispatched reports whether the call reached its tool. A status decides where there is one, else ok.
func (a *answer) dispatched() bool { return a.Status != "" || *a.OK }

// changed returns the state after the call, where before is what the toolhost was told. What a hit says about
// the state is about another call; a refusal has changed nothing.
func (a *answer) changed(before slots) slots {
	if a.Hit || !a.dispatched() {
		return before
	}
	return before.apply(a.state)
}

// outcome is the result or the error that the answer means.
func (a *answer) outcome(aid string) (*tool.Result, error) {
	switch {
	case a.Status == statusOK || a.Status == "" && *a.OK:
		return &tool.Result{OK: true, Output: a.output}, nil
	case a.Status == statusInvalidPick:
		return nil, tool.Errorf(tool.CodeNotFound, "the toolhost does not offer %s now: %s", aid,
			clip(a.Error)).Because(statusInvalidPick)
	case a.Status == statusBreakerTrip:
		return nil, tool.Errorf(tool.CodeBreakerOpen, "the toolhost's breaker for %s is open: %s", aid,
			clip(a.Error)).Because(statusBreakerTrip)
	case a.Status == "":
		if e := understand(aid, &a.refusal); e != nil {
			return nil, e
		}
	}
	message := a.Error
	if message == "" {
		message = aid + " failed and did not say why"
	}
	r := tool.Failed(typeToolError, message)
	r.Output, r.Failure.Details = a.output, detailsOf(typeToolError, aid, message)
	return r, nil
}
