// Package modeltext renders the outcome of a call for a model, whichever protocol carries it.
package modeltext

import (
	"encoding/json"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Of returns the readable part of a result: its output, or its summary if the output adds nothing to it.
func Of(res *tool.Result) json.RawMessage {
	more := !res.OK || len(res.Output) > 100+6*len(res.Summary) // no encoding of a summary is that long
	if !more && len(res.Output) > 0 && string(res.Output) != "null" {
		err := strictjson.Object(res.Output, func(name, _ []byte) error {
			more = more || string(name) != "ok" && string(name) != "summary"
			return nil
		})
		more = more || err != nil // it is not an object
	}
	if more && len(res.Output) > 0 {
		return res.Output
	}
	return strictjson.Quote(res.Summary)
}

// Plain returns an output in words: a text as it is, everything else as JSON.
func Plain(output json.RawMessage) string {
	if strictjson.KindOf(output) == "string" {
		if text, err := strictjson.Unquote(output); err == nil {
			return string(text)
		}
	}
	return string(output)
}
