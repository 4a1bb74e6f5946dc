package machina

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The types of a structured error, with which a host reports that a call of a toolhost has failed.
const (
	typeTimeout     = "timeout"
	typeCrash       = "crash"
	typeParseError  = "parse_error"
	typeNotFound    = "not_found"
	typeException   = "exception"
	typeEmptyOutput = "empty_output"
	typeToolError   = "tool_error"
)

// codes are the classes of structured errors; that of an exception is internal.
var codes = map[string]tool.Code{
	typeTimeout: tool.CodeTimeout, typeCrash: tool.CodeCrash, typeParseError: tool.CodeProtocol,
	typeEmptyOutput: tool.CodeProtocol, typeNotFound: tool.CodeUnavailable, typeToolError: tool.CodeToolError,
}

// structured makes the error of a call: its type is the reason, and the details are those of the contract.
func structured(typ, aid, format string, args ...any) *tool.Error {
	e := tool.Errorf(cmp.Or(codes[typ], tool.CodeInternal), format, args...)
	e.Reason = typ
	e.Details = detailsOf(typ, aid, e.Message)
	return e
}

func detailsOf(typ, aid, detail string) json.RawMessage {
	b, _ := strictjson.Marshal(map[string]any{
		"error": true, "aid": strings.ToValidUTF8(aid, "\uFFFD"), "type": typ,
		"detail": strings.ToValidUTF8(detail, "\uFFFD"),
	})
	return b
}

// interrupted returns the error of a call whose context ended.
func interrupted(ctx context.Context, aid string) *tool.Error {
	e := tool.Ended(ctx)
	e.Message = aid + " was ended: " + e.Message
	if e.Code == tool.CodeTimeout {
		e.Reason, e.Details = typeTimeout, detailsOf(typeTimeout, aid, e.Message)
	}
	return e
}

// statusOf is the door's table: it returns the status of a call that ended with an error of this class, or "" if the call
// was not dispatched and gets a refusal.
func statusOf(c tool.Code) string {
	switch c {
	case tool.CodeBreakerOpen:
		return statusBreakerTrip
	case tool.CodeNotFound, tool.CodeTimeout, tool.CodeCancelled, tool.CodeCrash, tool.CodeProtocol, tool.CodeInternal,
		tool.CodeToolError:
		return statusToolError
	}
	return ""
}

const conflict = "idempotency_conflict"

// refuse encodes an error of a call that was not dispatched.
func refuse(aid string, e *tool.Error) refusal {
	switch {
	case e.Code == tool.CodeLeaseRequired:
		var d struct {
			Tier int `json:"tier"`
		}
		_ = strictjson.Unmarshal(e.Details, &d) // details of another form have no tier for us
		return refusal{Error: "lease_required", Tier: &d.Tier, AID: aid}
	case e.Code == tool.CodeLeaseRejected:
		return refusal{Error: "lease_rejected", Reason: cmp.Or(e.Reason, "not_found")}
	case e.Code == tool.CodeConflict && e.Reason == conflict:
		return refusal{Error: conflict}
	}
	return refusal{Error: inWords(e)}
}

// inWords formats an error so that its text names its class.
func inWords(e *tool.Error) string {
	return strings.ToValidUTF8(string(e.Code)+": "+e.Message, "\uFFFD")
}

// understand is the runner's table: it returns the meaning of a toolhost's refusal, or nil if it is the tool's own failure,
// in its own words.
func understand(aid string, r *refusal) *tool.Error {
	switch said := r.Error; {
	case strings.HasPrefix(said, notFound):
		return &tool.Error{Code: tool.CodeNotFound, Reason: typeNotFound, Message: said}
	case said == "lease_required":
		e := tool.Errorf(tool.CodeLeaseRequired, "the toolhost wants a lease for %s", aid)
		e.Details, _ = strictjson.Marshal(map[string]any{"tier": r.Tier, "aid": aid})
		return e
	case said == "lease_rejected" || strings.HasPrefix(said, "lease "):
		phrase := cmp.Or(r.Reason, said)
		return tool.Errorf(tool.CodeLeaseRejected, "the toolhost rejected the lease for %s: %s", aid,
			clip(phrase)).Because(leaseReason(phrase))
	case said == conflict:
		return tool.Errorf(tool.CodeConflict,
			"the toolhost has seen this idempotency key with another input").Because(conflict)
	case said == "invalid JSON" || said == missingAID:
		return structured(typeParseError, aid, "the toolhost did not understand the request for %s: %s", aid, said)
	default:
		return sameClass(said)
	}
}

// leaseReason maps the phrases of existing toolhosts ("lease tool mismatch: ...") to the contract's reasons.
func leaseReason(phrase string) string {
	phrase = strings.ReplaceAll(strings.TrimPrefix(phrase, "lease "), " ", "_")
	for _, reason := range []string{"expired", "not_found", "already_consumed", "tool_mismatch", "tier_too_low"} {
		if strings.HasPrefix(phrase, reason) {
			return reason
		}
	}
	return clip(phrase)
}

// sameClass reads the text of inWords: our own toolhosts name the class of their refusals.
func sameClass(said string) *tool.Error {
	class, message, ok := strings.Cut(said, ": ")
	code := tool.Code(class)
	if !ok || statusOf(code) != "" || !slices.Contains(tool.Codes(), code) {
		return nil
	}
	return tool.Errorf(code, "the toolhost refused: %s", clip(message))
}

// An ExitError ends a toolhost with one of the exit codes of the protocol.
type ExitError struct {
	Code int // 2 usage or unknown mode, 3 no such plugin, 4 no such aid, 5 bad JSON or too much of it
	Err  error
}

// Error implements error.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit status of the program.
func (e *ExitError) ExitCode() int { return e.Code }

func exit(code int, format string, args ...any) *ExitError {
	return &ExitError{Code: code, Err: fmt.Errorf(format, args...)}
}

// An answer is a reply or a refusal, as a host reads it.
type answer struct {
	refusal
	OK         *bool           `json:"ok"`
	Status     string          `json:"status"`
	OutputJSON json.RawMessage `json:"output_json"`
	Hit        bool            `json:"idempotent_hit"`
	DSState    json.RawMessage `json:"ds_state"`

	output json.RawMessage
	wrong  error // with the output; the rest of the answer is valid
	state  *change
}

// decodeAnswer reads and checks a toolhost's answer.
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
	a.output, a.wrong = decodeOutput(a.OutputJSON)
	var err error
	if a.state, err = decodeChange(a.DSState); err != nil {
		return nil, fmt.Errorf("its ds_state: %w", err)
	}
	return a, nil
}

// decodeOutput reads an output_json, which may be anything the tool returned: JSON in a string, as in the contract, text
// that is not JSON, or not even a string. JSON that readers disagree about, such as with duplicate keys, is an error.
func decodeOutput(raw json.RawMessage) (json.RawMessage, error) {
	switch strictjson.KindOf(raw) {
	case "nothing", "null":
		return nil, nil
	case "string":
		said := unquoted(raw)
		if len(said) == 0 {
			return nil, nil
		}
		err := strictjson.Check(said)
		if err != nil && !json.Valid(said) { //nolint:forbidigo // what no reader takes for JSON is text
			return strictjson.Marshal(string(said))
		}
		return said, err
	}
	return raw, nil
}

// dispatched reports whether the call reached its tool. The status decides if there is one, otherwise ok.
func (a *answer) dispatched() bool { return a.Status != "" || *a.OK }

// changed returns the state after the call, given the state that the toolhost was told. The state in a hit belongs to
// another call; a refusal has changed nothing.
func (a *answer) changed(before slots) slots {
	if a.Hit || !a.dispatched() {
		return before
	}
	return before.apply(a.state)
}

// outcome returns the answer as a result or an error.
func (a *answer) outcome(aid string) (*tool.Result, error) {
	switch {
	case a.wrong != nil:
		return nil, structured(typeParseError, aid, "the output_json of %s: %w", aid, a.wrong)
	case a.Status == statusOK || a.Status == "" && *a.OK:
		return &tool.Result{OK: true, Output: a.output}, nil
	case a.Status == statusInvalidPick:
		said := cmp.Or(a.Error, "the toolhost does not offer "+aid+" now")
		return nil, &tool.Error{Code: tool.CodeNotFound, Reason: a.Status, Message: said}
	case a.Status == statusBreakerTrip:
		said := cmp.Or(a.Error, "the toolhost's breaker for "+aid+" is open")
		return nil, &tool.Error{Code: tool.CodeBreakerOpen, Reason: a.Status, Message: said}
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
